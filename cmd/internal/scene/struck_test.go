package scene

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	injected "navarch.io/navarch/cmd/navarchd/injection"
	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/normal/fields"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
)

// struckScene has the objects that all steps of a scene apply, together, and the proxies that it connects: one moment,
// whatever its script does in between. Of two files with one name it has the first.
type struckScene struct {
	name     string
	objects  []object.Event
	nodes    map[string]map[string]any // by the proxy's name
	verified map[string]view.Identity
	rows     map[*fields.Row]bool // of what its objects and nodes have
	values   map[enumValue]bool   // values of fields of its objects
	pool     *pool.Pool
	injector *inject.Config
	injected map[string]injectedPod // by all that injection reads
	baseline []byte
	problems []object.Problem
}

// loadStruck reads a scene; nil: it connects no proxy, or has no field to strike.
func loadStruck(t *testing.T, name string) *struckScene {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	s := &struckScene{name: name, nodes: map[string]map[string]any{}, verified: map[string]view.Identity{}, rows: map[*fields.Row]bool{}, values: map[enumValue]bool{}, pool: &pool.Pool{}, injected: map[string]injectedPod{}}
	in := map[string][]byte{}
	for _, f := range archive.Files {
		in[f.Name] = f.Data
	}
	folder := t.TempDir()
	var said []*object.Object
	for line := range strings.Lines(string(archive.Comment)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "apply":
			s.apply(t, folder, in, words[1:])
		case "connect":
			s.connect(t, in, words[1:])
		case "automatic":
			hosts := map[string][]string{}
			for _, word := range words[2:] {
				host, ips, _ := strings.Cut(word, "=")
				hosts[host] = strings.Split(ips, ",")
			}
			namespace, entry, _ := strings.Cut(words[1], "/")
			made, err := normal.NewAutomatic(namespace, entry, hosts)
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, made)
		case "keys":
			id, set, err := keysOf(words[1:], func(name string) ([]byte, error) { return in[name], nil })
			if err != nil {
				t.Fatal(err)
			}
			made, err := normal.NewKeys(id, set, "")
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, made)
		}
	}
	events, _, err := files.Read(folder, configCluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.objects = events
	for _, made := range said {
		s.objects = append(s.objects, object.Event{Op: object.Put, ID: made.ID, Object: made})
	}
	if s.injector, err = inject.ParseConfig("injection", injection.Config(), injection.Values(), nil); err != nil {
		t.Fatal(err)
	}
	s.collect(t)
	if s.baseline, s.problems, err = s.output(s.objects, s.nodes); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.problems {
		if p.Code == notInjected {
			t.Error(p)
		}
	}
	return s
}

// notInjected is the code, here, of a Pod that injection refuses.
const notInjected problem.Code = "NotInjected"

func (s *struckScene) apply(t *testing.T, folder string, in map[string][]byte, names []string) {
	t.Helper()
	put := func(name string, data []byte) {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			return
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		short := filepath.Base(name)
		if strings.HasPrefix(name, "cluster=") {
			short = name
		}
		if data, there := in[name]; there {
			put(short, data)
			continue
		}
		all, _ := filepath.Glob(filepath.Join("testdata", name, "*.yaml")) // shop
		if strings.HasSuffix(name, ".yaml") {
			all = []string{filepath.Join("testdata", "shop", name)}
		}
		for _, path := range all {
			if data, err := os.ReadFile(path); err == nil {
				put(filepath.Base(path), data)
			}
		}
		for of, data := range in { // a folder of the scene
			if filepath.Dir(of) == name {
				put(filepath.Base(of), data)
			}
		}
	}
}

func (s *struckScene) connect(t *testing.T, in map[string][]byte, words []string) {
	t.Helper()
	file := filepath.Join("nodes", words[0]+".json")
	for _, word := range words[1:] {
		if of, is := strings.CutPrefix(word, "as="); is {
			namespace, account, _ := strings.Cut(of, "/")
			s.verified[words[0]] = view.Identity{Namespace: namespace, Account: account}
		} else if strings.HasSuffix(word, ".json") {
			file = word
		}
	}
	raw, there := in[file]
	if !there {
		var err error
		if raw, err = os.ReadFile(filepath.Join("testdata", "shop", file)); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := yaml.YAMLToJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	s.nodes[words[0]] = tree(t, raw)
}

// output returns the result for objects and nodes: the configuration of each proxy, its name table, the referenced
// Secrets, the other CAs' certificates for agents, the registrations of machines, and the Pods with their proxies.
func (s *struckScene) output(events []object.Event, nodes map[string]map[string]any) ([]byte, []object.Problem, error) {
	records, problems := ingest.Records(events, normal.Options{Cluster: configCluster, Automatic: []netip.Prefix{netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")}, ResolveGateways: true, Signers: true})
	raw := mirror.Empty().Apply(1, records, nil).New
	snapshot, _ := resolve.Snapshot(raw)
	sum := sha256.New()
	planner := plan.New(plan.Settings{Snapshot: snapshot, Pool: s.pool, Cluster: configCluster})
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		node, err := parseNode(nodes[name])
		if err != nil {
			return nil, nil, err
		}
		node.Verified = s.verified[name]
		h := planner.Join(node)
		planner.AskNames(h)
		set := h.Set()
		for t := range xds.NumTypes {
			var all []string
			for r := range set.Types[t].All() {
				all = append(all, r.Name+" "+r.Version)
			}
			slices.Sort(all)
			fmt.Fprintln(sum, name, t, all)
		}
		if table := set.Names.Get(""); table != nil {
			fmt.Fprintln(sum, table.Version)
		}
		if set.Bootstrap != nil {
			fmt.Fprintln(sum, set.Bootstrap.Version)
		}
	}
	for _, r := range records {
		fmt.Fprintln(sum, r.Meta().Key, access.SecretUses(r, ""))
		if r.Meta().Key.Kind == model.KindWorkloadGroup {
			fmt.Fprintln(sum, r.Meta().Hash)
		}
	}
	mesh := model.MeshDefaults()
	if r, there := raw.Get(model.MeshKey); there {
		mesh = r.(*model.Mesh).Spec
	}
	fmt.Fprintln(sum, normal.CACertificates(mesh), normal.SignerCertificates(mesh, "example.com/signer"))
	pods, wrong, err := s.inject(events, raw, mesh)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintln(sum, pods)
	return sum.Sum(nil), append(problems, wrong...), nil
}

// inject returns the Pods with their proxies. Injection is most of the work, and most strikes do not change its inputs,
// so its results are cached.
func (s *struckScene) inject(events []object.Event, raw *mirror.Snapshot, mesh *meshv1.MeshConfig) (all []injectedPod, problems []object.Problem, err error) {
	const system = "istio-system"
	mesh = forAgents(mesh)
	configs := func(namespace string) []*proxyconfigv1.ProxyConfig { return injected.ProxyConfigs(raw, namespace) }
	settings := &inject.Settings{Config: s.injector, Mesh: mesh, Namespace: system, Proxies: configs}
	for _, e := range events {
		if e.Object == nil || e.ID.Kind != "Pod" {
			continue
		}
		reads := fmt.Sprint(string(e.Object.JSON), e.ID.Namespace, protojson.Format(mesh), configs(system), configs(e.ID.Namespace))
		pod, known := s.injected[reads]
		if !known {
			if pod, err = injectOne(settings, e); err != nil {
				return nil, nil, err
			}
			s.injected[reads] = pod
		}
		if pod.refused != "" {
			problems = append(problems, object.Problem{ID: e.ID, Code: notInjected, Message: pod.refused})
		}
		all = append(all, pod)
	}
	return all, problems, nil
}

// injectedPod is the result of injection for a Pod.
type injectedPod struct{ patch, decision, refused string }

func injectOne(settings *inject.Settings, e object.Event) (injectedPod, error) {
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal(e.Object.JSON, pod); err != nil {
		return injectedPod{}, err
	}
	made := injectedPod{decision: fmt.Sprint(settings.Decide(pod, e.ID.Namespace))}
	out, err := settings.Inject(context.Background(), inject.Request{Pod: pod, Namespace: e.ID.Namespace})
	if err != nil {
		made.refused = err.Error()
	}
	text, err := json.Marshal(out)
	made.patch = string(text)
	return made, err
}

// forAgents returns a mesh configuration without the settings that injection passes on to nodes and that the control
// plane reads there again: passing them on proves nothing.
func forAgents(mesh *meshv1.MeshConfig) *meshv1.MeshConfig {
	mesh = proto.CloneOf(mesh)
	if c := mesh.GetDefaultConfig(); c != nil {
		c.ProxyHeaders, c.ConnectionSettings, c.Tracing = nil, nil, nil
	}
	return mesh
}

func parseNode(tree map[string]any) (view.Node, error) {
	raw, err := yaml.Marshal(tree)
	if err != nil {
		return view.Node{}, err
	}
	return nodeOf(raw)
}
