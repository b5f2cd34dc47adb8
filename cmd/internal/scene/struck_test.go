package scene

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

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

// struckScene is what all steps of a scene apply, at once, and the proxies that it connects: one moment, whatever its script does in between. Of two
// files of a name it is the first.
type struckScene struct {
	name     string
	objects  []object.Event
	nodes    map[string]map[string]any // by the proxy's name
	verified map[string]view.Identity
	rows     map[*fields.Row]bool // of what its objects and nodes have
	pool     *pool.Pool
	injector *inject.Config
	baseline []byte
	problems []object.Problem
}

// loadStruck reads a scene; nil: it connects nobody, or nothing of it is struck.
func loadStruck(t *testing.T, name string) *struckScene {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	s := &struckScene{name: name, nodes: map[string]map[string]any{}, verified: map[string]view.Identity{}, rows: map[*fields.Row]bool{}, pool: &pool.Pool{}}
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
		}
	}
	events, _, err := files.Read(folder, configCluster)
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

// output is what objects and nodes come to: what each proxy is sent, its name table, which Secrets are referred to, which certificates of other CAs
// agents are told of, what machines register with, and the Pods with their proxies.
func (s *struckScene) output(events []object.Event, nodes map[string]map[string]any) ([]byte, []object.Problem, error) {
	records, problems := ingest.Records(events, normal.Options{Cluster: configCluster, Automatic: true, ResolveGateways: true, Signers: true})
	raw := mirror.Empty().Apply(1, records, nil).New
	snapshot, _ := resolve.Snapshot(raw)
	sum := sha256.New()
	planner := plan.New(plan.Settings{Snapshot: snapshot, Pool: s.pool})
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
	settings := &inject.Settings{Config: s.injector, Mesh: mesh, Namespace: "istio-system"}
	for _, e := range events {
		if e.Object == nil || e.ID.Kind != "Pod" {
			continue
		}
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal(e.Object.JSON, pod); err != nil {
			return nil, nil, err
		}
		out, err := settings.Inject(inject.Request{Pod: pod, Namespace: e.ID.Namespace})
		if err != nil {
			problems = append(problems, object.Problem{ID: e.ID, Code: notInjected, Message: err.Error()})
		}
		injected, err := json.Marshal(out)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintln(sum, string(injected), settings.Decide(pod, e.ID.Namespace))
	}
	return sum.Sum(nil), problems, nil
}

func parseNode(tree map[string]any) (view.Node, error) {
	raw, err := yaml.Marshal(tree)
	if err == nil {
		raw, err = yaml.YAMLToJSON(raw)
	}
	if err != nil {
		return view.Node{}, err
	}
	node := &corev3.Node{}
	if err := protojson.Unmarshal(raw, node); err != nil {
		return view.Node{}, err
	}
	encoded, err := proto.Marshal(node)
	if err != nil {
		return view.Node{}, err
	}
	return view.Parse(encoded, configCluster)
}

// collect finds the rows of what the scene has.
func (s *struckScene) collect(t *testing.T) {
	t.Helper()
	see := func(row *fields.Row) bool {
		s.rows[row] = true
		return false
	}
	s.each(t, s.objects, s.nodes, see)
}

// without is the objects and nodes without what a row is of.
func (s *struckScene) without(t *testing.T, row *fields.Row) ([]object.Event, map[string]map[string]any) {
	t.Helper()
	return s.each(t, s.objects, s.nodes, func(of *fields.Row) bool { return of == row })
}

// each calls struck with the row of everything that objects and nodes have, and gives them without that for which it is true.
func (s *struckScene) each(t *testing.T, events []object.Event, nodes map[string]map[string]any, struck func(*fields.Row) bool) ([]object.Event, map[string]map[string]any) {
	t.Helper()
	out := slices.Clone(events)
	for i, e := range events {
		if e.Object == nil {
			continue
		}
		whole := tree(t, e.Object.JSON)
		changed := false
		next := *e.Object
		if md := root(e.ID.Kind); md != nil && strings.HasSuffix(e.ID.Group, "istio.io") {
			changed = strike(whole["spec"], md, nil, struck)
		}
		data, _ := whole["data"].(map[string]any)
		for key, of := range map[string]string{"mesh": "MeshConfig", "meshNetworks": "MeshNetworks"} {
			stated, is := data[key].(string)
			if !is || e.ID.Kind != "ConfigMap" {
				continue
			}
			raw, err := yaml.YAMLToJSON([]byte(stated))
			if err != nil {
				continue
			}
			if mesh := tree(t, raw); strike(mesh, root(of), nil, struck) {
				data[key], changed = string(text(t, mesh)), true
			}
		}
		metadata, _ := whole["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if stated, is := annotations[proxyConfig].(string); is {
			raw, err := yaml.YAMLToJSON([]byte(stated))
			if err != nil {
				t.Fatal(err)
			}
			if config := tree(t, raw); strike(config, (&meshv1.ProxyConfig{}).ProtoReflect().Descriptor(), nil, struck) {
				next.Annotations = maps.Clone(next.Annotations)
				next.Annotations[proxyConfig] = string(text(t, config))
				annotations[proxyConfig], changed = next.Annotations[proxyConfig], true
			}
		}
		for _, of := range []struct {
			section, field string
			has            *map[string]string
		}{{fields.Annotations, "annotations", &next.Annotations}, {fields.Labels, "labels", &next.Labels}} {
			kept := maps.Clone(*of.has)
			stated, _ := metadata[of.field].(map[string]any)
			for name := range *of.has {
				if row := fields.Named(of.section, name); row != nil && struck(row) {
					delete(kept, name)
					delete(stated, name)
					changed = true
				}
			}
			*of.has = kept
		}
		if changed {
			next.JSON = text(t, whole)
			out[i].Object = &next
		}
	}
	kept := map[string]map[string]any{}
	for name, node := range nodes {
		kept[name] = maps.Clone(node)
		metadata, _ := node["metadata"].(map[string]any)
		less := maps.Clone(metadata)
		for key := range metadata {
			if row := fields.Named(fields.Metadata, key); row != nil && struck(row) {
				delete(less, key)
			}
		}
		if less != nil {
			kept[name]["metadata"] = less
		}
	}
	return out, kept
}

// proxyConfig is the annotation of Pods that has a ProxyConfig of the mesh configuration.
const proxyConfig = "proxy.istio.io/config"

func root(kind string) protoreflect.MessageDescriptor {
	for _, r := range fields.Roots() {
		if r.Name == kind {
			return r.Message
		}
	}
	return nil
}

// strike calls struck with the row of each field that a tree has, the outer ones first, and takes out those for which it is true.
func strike(v any, md protoreflect.MessageDescriptor, within []protoreflect.FieldDescriptor, struck func(*fields.Row) bool) (changed bool) {
	object, is := v.(map[string]any)
	if !is {
		return false
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		fd := md.Fields().ByJSONName(key)
		if fd == nil {
			fd = md.Fields().ByName(protoreflect.Name(key))
		}
		if fd == nil {
			continue
		}
		value, _ := object[key].(string)
		row := fields.Of(fd, value, within)
		if row == nil {
			continue
		}
		if struck(row) {
			delete(object, key)
			changed = true
			continue
		}
		below := fields.Below(fd)
		if below == nil || row.Mark != fields.Acted && row.Mark != fields.Closed && row.Mark != fields.Whole {
			continue
		}
		inner := append(within[:len(within):len(within)], fd)
		switch elements := object[key].(type) {
		case []any:
			for _, element := range elements {
				changed = strike(element, below, inner, struck) || changed
			}
		case map[string]any:
			if fd.IsMap() {
				for _, element := range elements {
					changed = strike(element, below, inner, struck) || changed
				}
			} else {
				changed = strike(elements, below, inner, struck) || changed
			}
		}
	}
	return changed
}
