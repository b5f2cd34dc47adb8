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
	"navarch.io/navarch/store/proxyconfig"
)

// Mode is the way in which traffic is redirected to a proxy. The zero Mode is Redirect.
type Mode uint8

// The interception modes. Nodes state the mode in INTERCEPTION_MODE of their metadata.
const (
	Redirect Mode = iota // REDIRECT, the default
	TProxy               // TPROXY
	None                 // NONE: no traffic is redirected
)

// Kind is the kind of a proxy. It decides which code plans the proxy's listeners and routes.
type Kind uint8

// The kinds of proxies.
const (
	Sidecar   Kind = iota // an Envoy beside a workload
	Router                // a gateway; no traffic is redirected to it, and no Sidecar applies
	Proxyless             // an application with gRPC's own xDS client (GENERATOR in the node's metadata is grpc)
)

// traits contains the common properties of the Views of one kind of proxy.
type traits struct {
	name     string                                // text for the kind in Scope.String; if "", the text is the mode
	outbound networkingv1.EnvoyFilter_PatchContext // the context of the outbound side in EnvoyFilters
	inbound  bool                                  // the proxy has an inbound side, for its workload
}

// kinds has the traits of each kind.
var kinds = [...]traits{
	Sidecar:   {"", networkingv1.EnvoyFilter_SIDECAR_OUTBOUND, true},
	Router:    {"router", networkingv1.EnvoyFilter_GATEWAY, false},
	Proxyless: {"grpc", networkingv1.EnvoyFilter_SIDECAR_OUTBOUND, true},
}

// Node contains the fields of a core.v3.Node that the control plane uses. All other fields are dropped, because a stock
// Envoy sends 61 KB. All fields that Parse sets are unverified claims of the proxy. The caller sets Verified, Pod,
// Peer, ClusterUnproved and Routers, and may replace unverified claims.
type Node struct {
	ID        string // the id as sent; after Parse it only names the proxy in logs and debug pages
	Kind      Kind
	Name      string            // the name of the Pod; never "" after Parse
	Namespace string            // the namespace of the Pod; never "" after Parse
	Domain    string            // the DNS suffix of services, such as svc.cluster.local
	Addresses []string          // the proxy's IP addresses, each once; nil if the node states no address
	Labels    map[string]string // the labels of the Pod; nil if the node states no labels
	Workload  string            // WORKLOAD_NAME, or else Service
	Service   string            // node.cluster, the service of the proxy's spans; "" if it is longer than 256 bytes
	Account   string            // SERVICE_ACCOUNT
	// Verified is the authenticated identity. It is zero for an unauthenticated client. The caller sets it after Parse.
	Verified Identity
	// Pod is the name of the Pod to which the client's credential is bound. It is "" without such a Pod. The caller
	// sets it.
	Pod     string
	Peer    string // the network address of the client, for log lines (the caller sets it)
	Cluster string // CLUSTER_ID; "" for the config cluster
	// ClusterUnproved is true if there are several clusters, and an authenticated client has not proved that it belongs
	// to Cluster. Such a proxy gets no Secrets, because each Secret belongs to one cluster. The caller sets it after
	// authentication.
	ClusterUnproved bool
	// Routers contains the settings of the control plane for routers. The caller sets it.
	Routers  RouterSettings
	Network  string // NETWORK
	Locality string // region/zone/sub-zone by the labels, or else by node.locality; "" if it is unknown
	Version  string // ISTIO_VERSION
	Mode     Mode   // INTERCEPTION_MODE; None for a Proxyless node
	// Caps contains the capabilities of the proxy and its agent. A node that lists no extensions has the capabilities
	// of a stock Envoy.
	Caps xds.Caps
	// Metadata contains the entries of the metadata whose values are strings, for the proxy match of EnvoyFilters
	// (https://istio.io/latest/docs/reference/config/networking/envoy-filter/: "only string key-value pairs"). Keys and
	// values of more than 256 bytes are left out.
	Metadata map[string]string
	// Unacted lists the metadata keys of the node that have an effect in Istio, but not in this control plane. The
	// control plane only reports their presence. The list is sorted. Keys with the value null are not listed.
	Unacted intern.List[string]
	// ProxyConfig contains the settings in PROXY_CONFIG that the control plane acts on. It is nil without PROXY_CONFIG.
	// Nodes with equal settings may share the value, so callers must not change it.
	ProxyConfig *proxyconfig.Settings
}

// DefaultDomain is the DNS suffix of services if the node's id names no DNS domain.
const DefaultDomain = "svc.cluster.local"

// longest is the maximum length in bytes of a retained metadata key or value.
const longest = 256

// Limits of a node's metadata, and separately of its labels. Pods have a few dozen of each.
const (
	mostTexts = 512
	mostBytes = 32 << 10 // keys and values
)

// texts counts the entries of one group (a node's metadata, or its labels), and their bytes.
type texts struct{ number, bytes int }

// add counts one entry, and reports whether the group is still within the limits.
func (t *texts) add(key, value []byte) (room bool) {
	t.number, t.bytes = t.number+1, t.bytes+len(key)+len(value)
	return t.number <= mostTexts && t.bytes <= mostBytes
}

// check returns an error if the group exceeds a limit. The error contains the name in the parameter field.
func (t *texts) check(field string) error {
	if t.number > mostTexts || t.bytes > mostBytes {
		return fmt.Errorf("%s: %d texts of %d bytes; %d and %d at most", field, t.number, t.bytes, mostTexts, mostBytes)
	}
	return nil
}

// text lists the metadata keys whose values must be strings, if present.
var text = []string{"NAME", "NAMESPACE", "WORKLOAD_NAME", "SERVICE_ACCOUNT", "INSTANCE_IPS", "CLUSTER_ID", "NETWORK",
	"ISTIO_VERSION", "NAVARCH_IDENTITY", "NAVARCH_FILES", "NAVARCH_FILE_OWNERS", "NAVARCH_BOOTSTRAP", "INTERCEPTION_MODE", "GENERATOR",
	"OWNER", "NODE_NAME", "MESH_ID", "ISTIO_REVISION"}

// reported is the set of metadata keys that have no effect and whose presence is reported.
var reported = func() map[string]bool {
	out := map[string]bool{}
	for row := range fields.In(fields.Metadata) {
		if row.Mark == fields.Reported {
			out[row.Field] = true
		}
	}
	return out
}()

// own lists the keys in text whose values differ between proxies, so interning the values is useless.
var own = []string{"NAME", "INSTANCE_IPS"}

// Parse decodes an encoded core.v3.Node. The parameter config is the name of the config cluster. A node that names this
// cluster, or no cluster, gets an empty Cluster. The error names the field that is malformed, missing, not supported or
// too large. The result does not share memory with raw.
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
	if n.Kind == Proxyless { // no traffic is redirected to an application, and it has no extensions of Envoy
		n.Mode, n.Caps = None, 0
	}
	n.agentCaps()
	return n, nil
}

// named sets Name and Namespace from the metadata, or else from the third part of the id (name.namespace). The error
// names the missing or invalid field.
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

// kindOf returns the kind of a proxy by its id and GENERATOR. A client without GENERATOR is an Envoy, as in Istio's
// control plane (pilot/pkg/xds, findGenerator). The error names an unsupported GENERATOR.
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

// IsRouter reports whether a node's id has the type router, which means a gateway.
func IsRouter(id string) bool { return strings.HasPrefix(id, "router~") }

// NameOf returns name.namespace of a node's id. For an id that Parse refuses, it returns the id.
func NameOf(id string) string {
	if _, _, name, _, err := parseID(id); err == nil {
		return name
	}
	return id
}

// parseID splits an id of the form type~ip~name.namespace~domain. The error names the malformed part.
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

// metadata sets Metadata, Labels, ProxyConfig and Unacted from the encoded Structs in parts, which are merged.
func (n *Node) metadata(parts [][]byte) error {
	n.Metadata = map[string]string{}
	given := make([]value, len(text)) // the values of the keys in text, of any type
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
				delete(n.Metadata, borrow(key)) // removes an earlier value of the key
			case !kept.add(key, v.text): // over the limit, which check reports
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

// labels sets n.Labels from the encoded Structs in parts, which are merged.
func (n *Node) labels(parts [][]byte) error {
	n.Labels = map[string]string{}
	var notStrings map[string]value
	var kept texts
	for _, part := range parts {
		err := entries(part, "node.metadata.LABELS", 0, func(key []byte, v value) {
			if !kept.add(key, v.text) { // over the limit, which check reports
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
	key := slices.Min(slices.Collect(maps.Keys(notStrings))) // the smallest key, so equal nodes get equal errors
	return fmt.Errorf("node.metadata.LABELS.%s: want a string, got %s", key, notStrings[key].describe())
}

// labelledLocality returns region/zone/sub-zone by the proxy's labels, or "" without such labels. As in istiod
// (setTopologyLabels), labels override the node's field locality, which comes from the platform. A proxy thus has the
// same locality as the endpoints of its Pod. Istio's own labels override the labels that Kubernetes sets on Pods
// (https://istio.io/latest/docs/tasks/traffic-management/locality-load-balancing/).
func labelledLocality(labels map[string]string) string {
	kubernetes := joinLocality(labels[model.RegionLabel], labels[model.ZoneLabel], labels[model.SubzoneLabel])
	return cmp.Or(model.StatedLocality(labels), kubernetes)
}

// parseMode parses INTERCEPTION_MODE. The empty string means REDIRECT.
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

// parseAddresses returns the IP address of the id and the addresses in the comma-separated INSTANCE_IPS, each once.
func parseAddresses(ip, instanceIPs string) ([]string, error) {
	var all []string
	for _, s := range append([]string{ip}, strings.Split(instanceIPs, ",")...) {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("node.metadata.INSTANCE_IPS: %q; want IP addresses separated by commas", s)
		}
		if !slices.Contains(all, a.String()) {
			all = append(all, a.String())
		}
	}
	return all, nil
}
