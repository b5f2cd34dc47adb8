package view

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// Inputs are the facts of a proxy that single entries of its outbound side read. What no record reads is left out, so that it makes no
// difference. Comparable.
type Inputs struct {
	// Labels are the proxy's labels that some rule names, by key and value, or compares by key with those of endpoints, as "key=value",
	// sorted.
	Labels intern.List[string]
	// Locality is the proxy's region/zone/sub-zone, where some rule reads it; empty: not known, or nobody reads it.
	Locality string
	// Network is the proxy's, where networks have gateways, some rule compares it with those of endpoints, or its agent
	// answers questions for names; empty: not known, or nobody reads it.
	Network string
	// Node is the name of the node that the proxy runs on, where some service compares it with those of its endpoints; empty: not known, or
	// nobody reads it.
	Node string
	// Telemetry is the Telemetry whose selector picks the proxy: what its listeners report is then not what those of its namespace do.
	Telemetry model.Key
	// Self is how the proxy names itself in its spans, where some record has it send any.
	Self Self
	// Extensions are the filters that WasmPlugins and TrafficExtensions are in its outbound listeners, in order. Listeners alone read them.
	Extensions intern.List[extension.Filter]
	// Listeners is what its ProxyConfig says of headers and connections in place of the mesh's. Listeners alone read it.
	Listeners proxyconfig.Own[proxyconfig.Listeners]
	// Own is whose endpoints are in the cluster of the proxy's own workload (xds.LocalCluster). Nothing else reads it.
	Own Own
}

// Own is the endpoints of a proxy's own workload in its own region: those of the oldest service that selects it, of its workload, and, of a Rollout, of its
// generation of Pods (istio/istio#60765). The zero Own: its Envoy has no such cluster, or no service selects it.
type Own struct {
	Service    model.Key
	Workload   string
	Region     string
	Generation string // the value of the label generation
}

// generation is the label that tells the Pods of a Rollout's generations apart (Argo). Agents do not send a Deployment's.
const generation = "rollouts-pod-template-hash"

// ownOf is Inputs.Own of a node that services select, the oldest first.
func ownOf(n Node, services intern.List[model.Key]) Own {
	if !n.Caps.Has(xds.CapSelfDiscovery) || services.Len() == 0 {
		return Own{}
	}
	region, _, _ := strings.Cut(n.Locality, "/")
	return Own{Service: services.All()[0], Workload: n.Workload, Region: region, Generation: n.Labels[generation]}
}

// Has says whether an endpoint of the service is one of them.
func (o Own) Has(e *model.Endpoint) bool {
	region, _, _ := strings.Cut(e.GetLocality(), "/")
	return region == o.Region && e.GetWorkload() == o.Workload && (o.Generation == "" || e.GetLabels()[generation] == o.Generation)
}

// Self is how a proxy names itself in spans (istio: pilot/pkg/networking/core/tracing.go, buildServiceTags). The zero Self: it sends none.
type Self struct {
	Sends   bool
	Name    string // node.cluster: the service that the spans are of
	Service string // label service.istio.io/canonical-name
	// Revision is the label service.istio.io/canonical-revision.
	Revision string
	Mesh     string // MESH_ID of its metadata
	Cluster  string // CLUSTER_ID of its metadata
	// Tracing is what its ProxyConfig says of its spans in place of the mesh's.
	Tracing proxyconfig.Own[proxyconfig.Part]
}

// Reads is which of the Inputs an entry reads. Comparable; the zero Reads are none.
type Reads struct {
	Labels   intern.List[string] // keys, sorted
	Locality bool
	Network  bool
	Node     bool
}

// With are Reads of these label keys instead, in any order.
func (r Reads) With(labels []string) Reads {
	sorted := slices.Clone(labels)
	slices.Sort(sorted)
	r.Labels = strs.List(slices.Compact(sorted)...)
	return r
}

// Of are those of the inputs that an entry reads: entries that read the same of two proxies are the same for both.
func (r Reads) Of(in Inputs) (out Inputs) {
	if r.Locality {
		out.Locality = in.Locality
	}
	if r.Network {
		out.Network = in.Network
	}
	if r.Node {
		out.Node = in.Node
	}
	if r.Labels.Len() == 0 || in.Labels.Len() == 0 {
		return out
	}
	var labels []string
	for _, label := range in.Labels.All() {
		if key, _, _ := strings.Cut(label, "="); slices.Contains(r.Labels.All(), key) {
			labels = append(labels, label)
		}
	}
	out.Labels = strs.List(labels...)
	return out
}

// Label is the value of a label; false: the proxy has none, or no rule reads it.
func (in Inputs) Label(key string) (value string, ok bool) {
	for _, label := range in.Labels.All() {
		if k, v, _ := strings.Cut(label, "="); k == key {
			return v, true
		}
	}
	return "", false
}

// Match says whether a selector picks the proxy by its labels.
func (in Inputs) Match(selector map[string]string) bool {
	for k, v := range selector {
		if have, ok := in.Label(k); !ok || have != v {
			return false
		}
	}
	return true
}
