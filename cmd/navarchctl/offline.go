package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/files"
)

// offline is a folder of configuration and a proxy.
type offline struct {
	configDir string
	proxy     string // file of an Envoy core.v3 Node
	cluster   string
	domain    string
	skipped   []string // documents of the folder that are not objects, after it was read
}

// load runs the pipeline in memory up to the snapshot, with the server's code.
func (o *offline) load() (*mirror.Snapshot, []object.Problem, error) {
	events, problems, err := files.Read(o.configDir, o.cluster, func(location string) { o.skipped = append(o.skipped, location) })
	if err != nil {
		return nil, nil, err
	}
	settings := normal.Options{Domain: o.domain, Cluster: o.cluster}
	if settings.MergedListeners, err = environment("PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER", false); err != nil {
		return nil, nil, err
	}
	names, err := environment("ENABLE_MULTICLUSTER_HEADLESS", true)
	if err != nil {
		return nil, nil, err
	}
	settings.LocalNames = !names
	records, more := ingest.Records(events, settings)
	return mirror.Empty().Apply(1, records, nil).New, append(problems, more...), nil
}

// environment reads a setting of navarchd that affects proxies from the environment, as navarchd does.
func environment(name string, otherwise bool) (bool, error) {
	stated := os.Getenv(name)
	if stated == "" {
		return otherwise, nil
	}
	is, err := strconv.ParseBool(stated)
	if err != nil {
		return false, fmt.Errorf("environment %s=%q: want true or false", name, stated)
	}
	return is, nil
}

// plan plans the proxy's configuration with the server's planner.
func (o *offline) plan() (*plan.Planner, *plan.Handle, []object.Problem, error) {
	snapshot, problems, err := o.load()
	if err != nil {
		return nil, nil, nil, err
	}
	node, err := o.node()
	if err != nil {
		return nil, nil, nil, err
	}
	snapshot, unresolved := resolve.Snapshot(snapshot)
	for _, p := range unresolved {
		problems = append(problems, object.Problem{ID: normal.SourceObject(p.Key),
			Field: p.Field, Code: p.Code, Analyzer: p.Analyzer, Severity: p.Severity, Message: p.Message})
	}
	planner := plan.New(plan.Settings{Snapshot: snapshot, Cluster: o.cluster})
	return planner, planner.Join(node), problems, nil
}

// node reads the proxy's file.
func (o *offline) node() (view.Node, error) {
	raw, err := os.ReadFile(o.proxy)
	if err != nil {
		return view.Node{}, err
	}
	if raw, err = yaml.YAMLToJSON(raw); err != nil {
		return view.Node{}, fmt.Errorf("%s: %w", o.proxy, err)
	}
	node := &corev3.Node{}
	if err := protojson.Unmarshal(raw, node); err != nil {
		return view.Node{}, fmt.Errorf("%s: not an Envoy core.v3 Node: %w", o.proxy, err)
	}
	encoded, err := proto.Marshal(node)
	if err != nil {
		return view.Node{}, fmt.Errorf("%s: %w", o.proxy, err)
	}
	parsed, err := view.Parse(encoded, o.cluster)
	if err != nil {
		return view.Node{}, fmt.Errorf("%s: %w", o.proxy, err)
	}
	return parsed, nil
}

// report prints one problem per line.
func report(w io.Writer, problems []object.Problem) {
	for _, p := range problems {
		fmt.Fprintln(w, p)
	}
}
