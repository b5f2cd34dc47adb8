package view

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal/fields"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/proxyconfig"
)

// Mode is how a proxy gets its traffic.
type Mode uint8

// The interception modes of the node's metadata (INTERCEPTION_MODE).
const (
	Redirect Mode = iota
	TProxy
	None
)

// Kind is what a proxy is: what front turns hosts into its configuration.
type Kind uint8

// The kinds of proxies.
const (
	Sidecar   Kind = iota // an Envoy beside a workload
	Router                // a gateway: nothing is redirected to it, and Sidecars are not for it
	Proxyless             // an application with gRPC's own xDS client (GENERATOR in the node's metadata is grpc): no proxy at all
)

// traits are the common properties of the views of one kind of proxies.
type traits struct {
	name     string                                // of the kind in names of scopes; empty: the mode's name
	outbound networkingv1.EnvoyFilter_PatchContext // what EnvoyFilters call the outbound side
	inbound  bool                                  // it serves a workload beside it
}

// kinds has the traits of each kind.
var kinds = [...]traits{
	Sidecar:   {"", networkingv1.EnvoyFilter_SIDECAR_OUTBOUND, true},
	Router:    {"router", networkingv1.EnvoyFilter_GATEWAY, false},
	Proxyless: {"grpc", networkingv1.EnvoyFilter_SIDECAR_OUTBOUND, true},
}

// Node is what Navarch keeps of the node that a proxy sends: what is used, and nothing else (a stock Envoy sends 61 KB).
type Node struct {
	ID        string // as sent: names the proxy in logs and debug pages, decides nothing
	Kind      Kind
	Name      string // of the pod
	Namespace string
	Domain    string // DNS suffix of services: svc.cluster.local
	Addresses []string
	Labels    map[string]string
	Workload  string // WORKLOAD_NAME, else the node's cluster
	Service   string // node.cluster: the service that its spans are of
	Account   string // SERVICE_ACCOUNT
	// Verified is the authenticated identity, for whoever has authenticated it to fill in; what the node says of itself is no
	// proof. Zero: nobody.
	Verified Identity
	// Pod is the Pod that its credential is bound to, for whoever has authenticated it to fill in. Empty: to none.
	Pod     string
	Peer    string // network address that it comes from, for lines of the log; whoever has it fills it in
	Cluster string // as origins of records have it: empty: the config cluster
	// ClusterUnproved: nothing that it has shown proves that it is of Cluster, and there are several; for whoever has authenticated it to fill in. It may have no Secrets, which are
	// a cluster's own.
	ClusterUnproved bool
	Network         string
	Locality        string // region/zone/sub-zone, as far as stated; empty: not known
	Version         string // ISTIO_VERSION
	Mode            Mode
	Caps            xds.Caps
	// Metadata are the plain strings of the metadata, for the proxy match of EnvoyFilters
	// (https://istio.io/latest/docs/reference/config/networking/envoy-filter/: "only string key-value pairs").
	Metadata map[string]string
	// Unacted are the keys of its metadata, whatever their values, that store/normal/fields marks as reported, sorted; mostly none.
	Unacted intern.List[string]
	// ProxyConfig is what it says of itself in PROXY_CONFIG, as far as the control plane acts on it; nil: it sends none. Shared by nodes that say the same.
	ProxyConfig *proxyconfig.Settings
}

// Identity is a service account that was proved to be the proxy's, by a token or a certificate of the mesh's trust domain.
type Identity struct {
	Namespace, Account string
	// Cluster is the proxy's own, whose Secrets and bindings are asked first; empty: the config cluster. Identities of the mesh name no
	// cluster: a View fills it in from the node.
	Cluster string
	// Bound says that the credential proves which Pod it is, and that the configuration knows that Pod; Labels are then what the
	// configuration says of its labels ("key=value", sorted), of those that decide who uses a Secret.
	Bound  bool
	Labels intern.List[string]
}

// OfAccount is the identity of all proxies of the service account: what a right is given to.
func (i Identity) OfAccount() Identity {
	return Identity{Namespace: i.Namespace, Account: i.Account, Cluster: i.Cluster}
}

// String is "service account NAMESPACE/ACCOUNT", with the cluster where it is not the config cluster.
func (i Identity) String() string {
	return "service account " + i.Namespace + "/" + i.Account + origin.New(i.Cluster, "").Suffix()
}

// Compare orders identities by namespace, then by account, then by cluster.
func (i Identity) Compare(o Identity) int {
	return cmp.Or(cmp.Compare(i.Namespace, o.Namespace), cmp.Compare(i.Account, o.Account), cmp.Compare(i.Cluster, o.Cluster))
}

// DefaultDomain is assumed where the node's id names no DNS domain.
const DefaultDomain = "svc.cluster.local"

// longest is the length in bytes of the longest metadata value that is kept.
const longest = 256

// Bounds of what is kept of a node's texts: of its metadata, and of its labels. Pods have a few dozen of each.
const (
	mostTexts = 512
	mostBytes = 32 << 10 // keys and values
)

// texts counts them.
type texts struct{ number, bytes int }

func (t *texts) add(key, value []byte) (room bool) {
	t.number, t.bytes = t.number+1, t.bytes+len(key)+len(value)
	return t.number <= mostTexts && t.bytes <= mostBytes
}

func (t *texts) check(field string) error {
	if t.number > mostTexts || t.bytes > mostBytes {
		return fmt.Errorf("%s: %d texts of %d bytes; %d and %d at most", field, t.number, t.bytes, mostTexts, mostBytes)
	}
	return nil
}

// text lists the metadata keys that must be strings where they are there.
var text = []string{"NAME", "NAMESPACE", "WORKLOAD_NAME", "SERVICE_ACCOUNT", "INSTANCE_IPS", "CLUSTER_ID", "NETWORK",
	"ISTIO_VERSION", "NAVARCH_IDENTITY", "NAVARCH_FILES", "NAVARCH_BOOTSTRAP", "INTERCEPTION_MODE", "GENERATOR", "OWNER", "NODE_NAME", "MESH_ID", "ISTIO_REVISION"}

// reported are the keys of metadata that are not acted on, and whose presence is told.
var reported = func() map[string]bool {
	out := map[string]bool{}
	for row := range fields.In(fields.Metadata) {
		if row.Mark == fields.Reported {
			out[row.Field] = true
		}
	}
	return out
}()

// own lists those of text that each proxy has of its own: there is nothing to share.
var own = []string{"NAME", "INSTANCE_IPS"}

// Parse reads an encoded core.v3.Node. config is what the config cluster is called: a node that names it, or no cluster, is of it. The
// error names the field that is malformed and says what is expected there. The bytes are the caller's again afterwards.
func Parse(raw []byte, config string) (Node, error) {
	w, err := read(raw)
	if err != nil {
		return Node{}, err
	}
	n := Node{ID: string(w.id), Caps: w.caps}
	kind, ip, name, domain, err := parseID(n.ID)
	if err != nil {
		return Node{}, err
	}
	if kind != "sidecar" && kind != "router" {
		return Node{}, fmt.Errorf("node.id %q: proxy type %q is not served; want sidecar or router", n.ID, kind)
	}
	if err := n.metadata(w.metadata); err != nil {
		return Node{}, err
	}
	if n.Kind, err = kindOf(n.ID, n.Metadata["GENERATOR"]); err != nil {
		return Node{}, err
	}
	if err := n.named(name); err != nil {
		return Node{}, err
	}
	n.Domain = cmp.Or(strings.TrimPrefix(domain, n.Namespace+"."), DefaultDomain)
	if len(w.cluster) <= longest {
		n.Service = words.of(w.cluster)
	}
	n.Workload = cmp.Or(n.Metadata["WORKLOAD_NAME"], n.Service)
	n.Account, n.Cluster, n.Network = n.Metadata["SERVICE_ACCOUNT"], n.Metadata["CLUSTER_ID"], n.Metadata["NETWORK"]
	if n.Cluster == config {
		n.Cluster = ""
	}
	n.Version = n.Metadata["ISTIO_VERSION"]
	if n.Locality, err = locality(w.locality); err != nil {
		return Node{}, err
	}
	n.Locality = cmp.Or(labelledLocality(n.Labels), n.Locality)
	if n.Mode, err = parseMode(n.Metadata["INTERCEPTION_MODE"]); err != nil {
		return Node{}, err
	}
	if n.Addresses, err = parseAddresses(ip, n.Metadata["INSTANCE_IPS"]); err != nil {
		return Node{}, err
	}
	if !w.listed {
		n.Caps = xds.StockCaps
	}
	if n.Caps.Has(xds.CapStatsLog) && !hasScopes(semantic(w.build)) {
		n.Caps &^= xds.CapStatsLog
	}
	if n.Kind == Proxyless { // nothing is redirected to it, and it has none of Envoy's extensions
		n.Mode, n.Caps = None, 0
	}
	n.agentCaps()
	return n, nil
}

// named sets name and namespace, which are in metadata, or in the third part of the id.
func (n *Node) named(part string) error {
	short, namespace, _ := strings.Cut(part, ".")
	n.Name = cmp.Or(n.Metadata["NAME"], short)
	n.Namespace = cmp.Or(n.Metadata["NAMESPACE"], namespace)
	switch {
	case n.Name == "":
		return fmt.Errorf("node.id %q: no name; want name.namespace in its third part, or node.metadata.NAME", n.ID)
	case n.Namespace == "":
		return fmt.Errorf("node.id %q: no namespace; want name.namespace in its third part, or node.metadata.NAMESPACE", n.ID)
	case strings.ContainsAny(n.Namespace, "/\x00"):
		return fmt.Errorf("node.metadata.NAMESPACE: %q is not the name of a namespace", n.Namespace)
	}
	return nil
}

// kindOf tells a proxy's kind by its id and by GENERATOR, as Istio's control plane does (pilot/pkg/xds, findGenerator: the generator
// of a client that names none is Envoy's).
func kindOf(id, generator string) (Kind, error) {
	switch {
	case generator != "" && generator != "grpc":
		return 0, fmt.Errorf("node.metadata.GENERATOR: %q is not served; want grpc, or nothing for an Envoy", generator)
	case IsRouter(id) && generator != "":
		return 0, fmt.Errorf("node.metadata.GENERATOR: %q is for applications; node.id %q is a gateway's", generator, id)
	case generator != "":
		return Proxyless, nil
	case IsRouter(id):
		return Router, nil
	}
	return Sidecar, nil
}

// IsRouter says whether a node's id is a gateway's: a proxy that carries traffic of others.
func IsRouter(id string) bool { return strings.HasPrefix(id, "router~") }

// parseID takes apart type~ip~name.namespace~domain.
func parseID(id string) (kind, ip, name, domain string, err error) {
	parts := strings.Split(id, "~")
	if len(parts) != 4 {
		return "", "", "", "", fmt.Errorf("node.id %q: want type~ip~name.namespace~domain", id)
	}
	if parts[2] == "" {
		return "", "", "", "", fmt.Errorf("node.id %q: no name; want name.namespace in its third part", id)
	}
	if parts[1] != "" {
		if _, err := netip.ParseAddr(parts[1]); err != nil {
			return "", "", "", "", fmt.Errorf("node.id %q: second part %q: want an IP address", id, parts[1])
		}
	}
	return parts[0], parts[1], parts[2], parts[3], nil
}

// metadata reads the encoded Structs that the metadata came in.
func (n *Node) metadata(parts [][]byte) error {
	n.Metadata = map[string]string{}
	given := make([]value, len(text)) // the values of these keys, strings or not
	var labels, config value
	var kept texts
	var unacted []string
	for _, part := range parts {
		err := entries(part, "node.metadata", 0, func(key []byte, v value) {
			i := slices.Index(text, borrow(key))
			if i >= 0 {
				given[i] = v
			}
			if reported[borrow(key)] && !v.null() {
				unacted = append(unacted, string(key))
			}
			switch {
			case borrow(key) == "LABELS":
				labels = v
			case borrow(key) == proxyConfigKey:
				config = v
			case v.kind != valueString || len(v.text) > longest || len(key) > longest:
				delete(n.Metadata, borrow(key)) // what came before
			case !kept.add(key, v.text): // checked below
			case i < 0 || slices.Contains(own, text[i]):
				n.Metadata[words.of(key)] = string(v.text)
			default:
				n.Metadata[text[i]] = words.of(v.text)
			}
		})
		if err != nil {
			return err
		}
	}
	if err := kept.check("node.metadata"); err != nil {
		return err
	}
	slices.Sort(unacted)
	n.Unacted = strs.List(slices.Compact(unacted)...)
	for i, v := range given {
		if v.kind != valueString && !v.null() {
			return fmt.Errorf("node.metadata.%s: want a string, got %s", text[i], v.describe())
		}
	}
	if !config.null() {
		if config.kind != valueStruct {
			return fmt.Errorf("node.metadata.%s: want an object, got %s", proxyConfigKey, config.describe())
		}
		if err := n.proxyConfig(config.fields); err != nil {
			return err
		}
	}
	if labels.null() {
		return nil
	}
	if labels.kind != valueStruct {
		return fmt.Errorf("node.metadata.LABELS: want an object of strings, got %s", labels.describe())
	}
	return n.labels(labels.fields)
}

// labels reads the encoded Structs that the labels came in.
func (n *Node) labels(parts [][]byte) error {
	n.Labels = map[string]string{}
	var notStrings map[string]value
	var kept texts
	for _, part := range parts {
		err := entries(part, "node.metadata.LABELS", 0, func(key []byte, v value) {
			if !kept.add(key, v.text) { // checked below
				return
			}
			n.Labels[words.of(key)] = words.of(v.text)
			delete(notStrings, borrow(key))
			if v.kind != valueString && !v.null() {
				if notStrings == nil {
					notStrings = map[string]value{}
				}
				notStrings[string(key)] = v
			}
		})
		if err != nil {
			return err
		}
	}
	if err := kept.check("node.metadata.LABELS"); err != nil {
		return err
	}
	if len(notStrings) == 0 {
		return nil
	}
	key := slices.Min(slices.Collect(maps.Keys(notStrings))) // the same of equal nodes
	return fmt.Errorf("node.metadata.LABELS.%s: want a string, got %s", key, notStrings[key].describe())
}

// labelledLocality is where a proxy is by its labels; empty: they do not say. Labels go before the bootstrap, as with istiod (setTopologyLabels), so that a
// proxy is where the endpoints of its Pod are: agents that do not know a label state the locality of their platform. Istio's own labels go before those that
// Kubernetes gives to Pods (https://istio.io/latest/docs/tasks/traffic-management/locality-load-balancing/).
func labelledLocality(labels map[string]string) string {
	return cmp.Or(model.StatedLocality(labels), joinLocality(labels[model.RegionLabel], labels[model.ZoneLabel], labels[model.SubzoneLabel]))
}

func parseMode(s string) (Mode, error) {
	switch s {
	case "", "REDIRECT":
		return Redirect, nil
	case "TPROXY":
		return TProxy, nil
	case "NONE":
		return None, nil
	}
	return 0, fmt.Errorf("node.metadata.INTERCEPTION_MODE: %q; want REDIRECT, TPROXY or NONE", s)
}

func parseAddresses(ip, instanceIPs string) ([]string, error) {
	var all []string
	for _, s := range append([]string{ip}, strings.Split(instanceIPs, ",")...) {
		if s == "" {
			continue
		}
		a, err := netip.ParseAddr(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("node.metadata.INSTANCE_IPS: %q; want IP addresses separated by commas", s)
		}
		if !slices.Contains(all, a.String()) {
			all = append(all, a.String())
		}
	}
	return all, nil
}
