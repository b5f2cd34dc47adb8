package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/files"
)

// offline has the inputs of a plan without a server: a folder of configuration, and a proxy.
type offline struct {
	configDir string
	proxy     string // file of an Envoy core.v3 Node
	cluster   string
	domain    string
	skipped   []string // locations of documents that are not Kubernetes objects, appended by events
}

// load reads the folder and returns the snapshot of records that navarchd would make of the folder, with the problems
// of the objects.
func (o *offline) load() (*mirror.Snapshot, []object.Problem, error) {
	events, problems, err := o.events()
	if err != nil {
		return nil, nil, err
	}
	snapshot, more, err := o.snapshot(events)
	return snapshot, append(problems, more...), err
}

// events reads the folder. It returns the objects as events, and the problems of files and documents.
func (o *offline) events() ([]object.Event, []object.Problem, error) {
	return files.Read(o.configDir, o.cluster, func(location string) { o.skipped = append(o.skipped, location) })
}

// snapshot converts (normalises) objects to records, and returns them as a snapshot of revision 1. It also returns the
// problems of the objects.
func (o *offline) snapshot(events []object.Event) (*mirror.Snapshot, []object.Problem, error) {
	snapshot, problems, _, err := o.reviewed(events, nil)
	return snapshot, problems, err
}

// reviewed does the same as the method snapshot, and then applies the later events. Its further result refused maps an
// object to the problems for which the validation webhook refuses the object. A stored object with such problems is
// applied all the same (ingest.RecordsAndRefusals).
func (o *offline) reviewed(
	events, later []object.Event,
) (_ *mirror.Snapshot, problems []object.Problem, refused map[object.ID][]object.Problem, err error) {
	settings, err := o.settings()
	if err != nil {
		return nil, nil, nil, err
	}
	records, problems, refused := ingest.RecordsAndRefusals(events, settings, later...)
	for _, r := range records {
		if s, is := r.(*model.Secret); is && len(s.Spec.GetChain()) > 0 {
			s.Spec.Key = []byte("not sealed") // any bytes mark that the Secret has a key; only the leader encrypts keys
		}
	}
	return mirror.Empty().Apply(1, records, nil).New, problems, refused, nil
}

// settings returns the options of normalisation, from flags and from navarchd's environment variables. The error names
// a variable with an invalid value.
func (o *offline) settings() (normal.Options, error) {
	settings := normal.Options{Domain: o.domain, Cluster: o.cluster}
	merged, err := environment("PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER", false)
	if err != nil {
		return settings, err
	}
	if settings.OwnGateways, err = environment("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", false); err != nil {
		return settings, err
	}
	names, err := environment("ENABLE_MULTICLUSTER_HEADLESS", true)
	settings.MergedListeners, settings.LocalNames = merged, !names
	return settings, err
}

// environment returns the value of a boolean environment variable of navarchd. If the variable is unset or empty, the
// value is the second argument. It is an error if the variable is not a boolean.
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

// plan reads the folder and the proxy, and plans the configuration of the proxy with navarchd's planner. The
// configuration is read through the Handle. The problems are those of objects and of references between them.
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
	proxy, err := join(planner, node)
	return planner, proxy, problems, err
}

// join adds a proxy to a planner, with the Secrets that its service account may read. Environment variables of navarchd
// apply; an invalid one is an error.
func join(planner *plan.Planner, node view.Node) (_ *plan.Handle, err error) {
	if node.Routers, err = routerSettings(); err != nil {
		return nil, err
	}
	// Offline, the identity that the node claims counts as verified: whoever runs the command can read the folder
	// anyway.
	node.Pod, node.Verified = node.Name, view.Identity{Namespace: node.Namespace, Account: node.Account}
	proxy := planner.Join(node)
	return proxy, answerSecrets(planner, proxy, access.Granted(planner.Snapshot(), proxy.View().Secrets))
}

// routerSettings returns the settings of gateways from navarchd's environment variables. An invalid variable is an
// error.
func routerSettings() (of view.RouterSettings, err error) {
	for name, into := range map[string]*bool{
		"PILOT_SCOPE_GATEWAY_TO_NAMESPACE":    &of.OwnNamespace,
		"PILOT_FILTER_GATEWAY_CLUSTER_CONFIG": &of.Routed,
		"PILOT_ENABLE_QUIC_LISTENERS":         &of.QUIC,
		"NAVARCH_GATEWAY_LOCAL_DESTINATIONS":  &of.Local,
	} {
		if *into, err = environment(name, false); err != nil {
			return of, err
		}
	}
	answers, err := environment("NAVARCH_ENABLE_MISDIRECTED_REQUESTS", true)
	of.Misdirected404 = !answers
	return of, err
}

// answerSecrets provides the planner with the Secrets that the proxy's clusters and listeners name. The argument right
// is the permission of the proxy's service account. The planner gets empty private keys, because the snapshot lacks the
// keys and no output shows them.
func answerSecrets(planner *plan.Planner, proxy *plan.Handle, right access.Answer) error {
	var names []string
	all := inspect.Of(proxy.Set())
	for _, r := range slices.Concat(all[xds.Cluster], all[xds.Listener]) {
		named, err := inspect.SecretsOf(r)
		if err != nil {
			return err
		}
		names = append(names, named...)
	}
	planner.SubscribeSecrets(proxy, names, nil)
	planner.Authorised(proxy.View().Secrets.OfAccount(), access.Standing{Known: true, Allowed: right.Allowed, Why: right.Why})
	for _, record := range planner.Sealed() {
		planner.Opened(record, model.PrivateKey{})
	}
	return nil
}

// node reads and parses the file of the proxy.
func (o *offline) node() (view.Node, error) {
	raw, err := os.ReadFile(o.proxy)
	if err != nil {
		return view.Node{}, err
	}
	return o.parseNode(o.proxy, raw)
}

// parseNode parses an Envoy core.v3 Node in JSON or YAML. The argument origin is the location of the Node. Every error
// contains it.
func (o *offline) parseNode(origin string, raw []byte) (view.Node, error) {
	raw, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return view.Node{}, fmt.Errorf("%s: %w", origin, err)
	}
	node := &corev3.Node{}
	if err := protojson.Unmarshal(raw, node); err != nil {
		return view.Node{}, fmt.Errorf("%s: not an Envoy core.v3 Node: %w", origin, err)
	}
	encoded, err := proto.Marshal(node)
	if err != nil {
		return view.Node{}, fmt.Errorf("%s: %w", origin, err)
	}
	parsed, err := view.Parse(encoded, o.cluster)
	if err != nil {
		return view.Node{}, fmt.Errorf("%s: %w", origin, err)
	}
	return parsed, nil
}

// reportProblems prints one problem per line, with the file and the document of its object if they are known.
func reportProblems(w io.Writer, problems []object.Problem) {
	for _, p := range problems {
		text := p.String()
		if p.Location != "" && p.ID.Name != "" {
			text = p.Location + ": " + text
		}
		fmt.Fprintln(w, show.Printable(text))
	}
}
