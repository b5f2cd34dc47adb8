package scene

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/obs"
)

// stage is a running scene: a pipeline, and the proxies that are compared with it.
type stage struct {
	dir      string
	envoy    string // binary; empty: nobody judges
	pipeline *pipeline
	actors   map[string]*actor
	built    counts
	planned  map[string]float64
}

// actor is one proxy, with or without a stream.
type actor struct {
	*proxy
	view   view.Node
	joined *plan.Proxy // nil: its stream has ended
	last   view.View
}

func newStage(dir, envoy string, allowEmpty bool) (*stage, error) {
	w, err := newPipeline(filepath.Join(dir, "config"), allowEmpty)
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, envoy: envoy, pipeline: w, actors: map[string]*actor{}}
	_, err = s.clear(nil)
	return s, err
}

func (s *stage) each() []*actor {
	var all []*actor
	for _, name := range slices.Sorted(maps.Keys(s.actors)) {
		all = append(all, s.actors[name])
	}
	return all
}

func (s *stage) actor(args []string) (*actor, error) {
	if len(args) == 0 {
		return nil, errors.New("which proxy?")
	}
	a := s.actors[args[0]]
	if a == nil {
		return nil, fmt.Errorf("no proxy %s is connected", args[0])
	}
	return a, nil
}

// take lets every proxy receive its pending responses.
func (s *stage) take() {
	synctest.Wait()
	for _, a := range s.each() {
		if a.joined == nil {
			continue
		}
		if v := a.joined.View(); v != a.last {
			a.last, a.revisions = v, [xds.NumTypes]int64{} // revisions are comparable within one view only
		}
		a.take()
	}
}

func (s *stage) settle() error {
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		done := s.pipeline.planned()
		s.take()
		if done {
			return nil
		}
		if time.Since(start) > patience {
			return fmt.Errorf("nothing settles: the store is at revision %d, the plan at %d", s.pipeline.head, s.pipeline.plan.Revision())
		}
	}
}

// find reads a file of the scene, or of the shop.
func (s *stage) find(name string) (path string, err error) {
	for _, dir := range []string{s.dir, filepath.Join(s.dir, "shop")} {
		path = filepath.Join(dir, name)
		if _, err = os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", err
}

func (s *stage) apply(args []string) (string, error) {
	contents := map[string][]byte{}
	for _, arg := range args {
		if gone, is := strings.CutPrefix(arg, "-"); is {
			contents[gone] = nil
			continue
		}
		path, err := s.find(arg)
		if err != nil {
			return "", err
		}
		all := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if all, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil {
				return "", err
			}
		}
		for _, file := range all {
			data, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			name := filepath.Base(file)
			if strings.HasPrefix(arg, "cluster=") {
				name = arg
			}
			contents[name] = data
		}
	}
	return "", s.pipeline.put(contents)
}

func (s *stage) edit(args []string) (string, error) {
	if len(args) < 3 || len(args)%2 == 0 {
		return "", errors.New("want FILE OLD NEW [OLD NEW]...")
	}
	data, err := os.ReadFile(filepath.Join(s.pipeline.folder, args[0]))
	if err != nil {
		return "", err
	}
	text := string(data)
	for i := range args { // the lines of a script have no other way to say it
		args[i] = strings.ReplaceAll(args[i], `\n`, "\n")
	}
	for i := 1; i < len(args); i += 2 {
		if !strings.Contains(text, args[i]) {
			return "", fmt.Errorf("%s does not have %q", args[0], args[i])
		}
		text = strings.ReplaceAll(text, args[i], args[i+1])
	}
	return "", s.pipeline.put(map[string][]byte{args[0]: []byte(text)})
}

func (s *stage) remove(args []string) (string, error) {
	contents := map[string][]byte{}
	for _, arg := range args {
		contents[arg] = nil
	}
	return "", s.pipeline.put(contents)
}

func (s *stage) many(args []string) (string, error) {
	if len(args) < 2 {
		return "", errors.New("want N FILE [DURATION]")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	path, err := s.find(args[1])
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	contents := map[string][]byte{}
	for i := range n {
		name := fmt.Sprintf("%d-%s", i, filepath.Base(path))
		contents[name] = []byte(strings.ReplaceAll(string(data), "{{i}}", strconv.Itoa(i)))
		if len(args) < 3 {
			continue
		}
		if err := s.pipeline.put(contents); err != nil {
			return "", err
		}
		clear(contents)
		pause, err := time.ParseDuration(args[2])
		if err != nil {
			return "", err
		}
		time.Sleep(pause)
		s.take()
	}
	return "", s.pipeline.put(contents)
}

func (s *stage) connect(args []string) (string, error) {
	if len(args) == 0 {
		return "", errors.New("want PROXY [NODE] [sotw] [prompt]")
	}
	if err := s.settle(); err != nil {
		return "", err
	}
	file := filepath.Join("nodes", args[0]+".json")
	sotw, prompt, verified := false, false, view.Identity{}
	for _, arg := range args[1:] {
		switch arg {
		case "sotw":
			sotw = true
		case "prompt":
			prompt = true
		default:
			if of, is := strings.CutPrefix(arg, "as="); is {
				verified.Namespace, verified.Account, _ = strings.Cut(of, "/")
				continue
			}
			file = arg
		}
	}
	node, err := s.node(file)
	if err != nil {
		return "", err
	}
	node.Verified, node.Routers.OwnNamespace = verified, s.pipeline.scoped // of the server, which authenticates the identity
	a := &actor{view: node}
	if err := s.join(a); err != nil {
		return "", err
	}
	a.proxy = newProxy(sotw, prompt, node.Caps.Has(xds.CapSelfDiscovery), func() *manifest.Set { return a.joined.Set() })
	s.actors[args[0]] = a
	return "", s.settle()
}

func (s *stage) node(file string) (view.Node, error) {
	path, err := s.find(file)
	if err != nil {
		return view.Node{}, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return view.Node{}, err
	}
	return nodeOf(text)
}

// nodeOf reads a node of Envoy's, as YAML.
func nodeOf(text []byte) (view.Node, error) {
	raw, err := yaml.YAMLToJSON(text)
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

func (s *stage) join(a *actor) (err error) {
	a.joined, err = s.pipeline.plan.Join(context.Background(), a.view, nil)
	return err
}

func (s *stage) disconnect(args []string) (string, error) {
	a, err := s.actor(args)
	if err != nil {
		return "", err
	}
	a.joined.Leave()
	a.joined = nil
	return "", nil
}

func (s *stage) reconnect(args []string) (string, error) {
	a, err := s.actor(args)
	if err != nil {
		return "", err
	}
	if err := s.settle(); err != nil {
		return "", err
	}
	if a.joined != nil {
		a.joined.Leave()
	}
	if err := s.join(a); err != nil {
		return "", err
	}
	a.joined.SubscribeSecrets(context.Background(), slices.Collect(maps.Keys(a.wanted[xds.Secret])), nil)
	a.open()
	return "", s.settle()
}

func (s *stage) stall(args []string) (string, error) {
	a, err := s.actor(args)
	if err == nil {
		a.stalled = true
	}
	return "", err
}

func (s *stage) resume(args []string) (string, error) {
	a, err := s.actor(args)
	if err == nil {
		a.stalled = false
		a.acknowledge()
	}
	return "", err
}

func (s *stage) settleNow([]string) (string, error) { return "", s.settle() }

func (s *stage) lead(args []string) (string, error) {
	s.pipeline.lead(slices.Contains(args, "isolation"), slices.Contains(args, "scoped"))
	return "", s.pipeline.relook()
}

func (s *stage) clear([]string) (string, error) {
	if err := s.settle(); err != nil {
		return "", err
	}
	for _, a := range s.actors {
		a.forget()
	}
	s.built, s.planned, s.pipeline.wrote = s.pipeline.counts(), plansMade(), 0
	return "", nil
}

// plansMade counts the plans of each lane in this process. Scenes are played one after the other.
func plansMade() map[string]float64 {
	out := map[string]float64{}
	for _, lane := range []string{"config", "endpoint"} {
		m := &dto.Metric{}
		if err := obs.PushTriggers.WithLabelValues(lane).Write(m); err != nil {
			panic(err) // a counter that cannot be read
		}
		out[lane] = m.GetCounter().GetValue()
	}
	return out
}

// finish returns the errors at the end of every scene, whatever its subject.
func (s *stage) finish() []string {
	if err := s.settle(); err != nil {
		return []string{err.Error()}
	}
	out := append(s.check(true), s.leaks()...)
	if err := s.pipeline.stop(); err != nil {
		out = append(out, err.Error())
	}
	return out
}

// check compares every proxy's resources with the expected ones, and these with a plan from scratch; with judged, Envoy
// validates them.
func (s *stage) check(judged bool) (out []string) {
	s.endResumes()
	for name, a := range s.actors {
		say := func(format string, args ...any) { out = append(out, name+": "+fmt.Sprintf(format, args...)) }
		if a.joined == nil || a.stalled {
			continue
		}
		for _, fault := range a.finish(a.joined.Set()) {
			say("%s", fault)
		}
		snapshot, _ := resolve.Snapshot(s.pipeline.mirror.Current())
		fresh := plan.Fresh(snapshot, view.Of(snapshot, a.view), configCluster)
		for t := range xds.Secret { // Secrets are planned for who asks for them; plan's own tests compare these
			for _, d := range differences(a.joined.Set(), fresh, t) {
				say("what was planned step by step is not what is planned from scratch: %s", d)
			}
		}
		if judged {
			if complaint := s.judge(a); complaint != "" {
				say("Envoy: %s", complaint)
			}
		}
	}
	slices.Sort(out)
	return out
}
