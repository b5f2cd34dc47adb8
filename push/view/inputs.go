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

// Inputs are the properties of a proxy that single entries of its outbound side read. A property that no record reads
// is left out, so it splits no entries. Comparable.
type Inputs struct {
	// Labels are the proxy's labels as "key=value", sorted: those whose key and value some rule names, and those whose key
	// some rule compares with the labels of endpoints.
	Labels intern.List[string]
	// Locality is the proxy's region/zone/sub-zone. It is empty if it is unknown, or if no rule reads it.
	Locality string
	// Network is the proxy's network. It is empty if it is unknown, or unless networks have gateways, some rule compares
	// it with those of endpoints, or the proxy's agent resolves names.
	Network string
	// Alone: the proxy has no endpoints of other networks (REQUESTED_NETWORK_VIEW of its metadata is its own network).
	Alone bool
	// Node is the name of the Kubernetes Node that the proxy runs on. It is empty if it is unknown, or if no service
	// compares it with the Nodes of its endpoints.
	Node string
	// Telemetry is the Telemetry whose selector matches the proxy, which replaces the one of the namespace. Zero if there
	// is no such Telemetry. Listeners alone read it.
	Telemetry model.Key
	// Self is the proxy's description in its spans, if some record configures tracing for it.
	Self Self
	// Extensions are the filters of WasmPlugins and TrafficExtensions in its outbound listeners, in order. Listeners alone
	// read them.
	Extensions intern.List[extension.Filter]
	// Listeners are the settings of headers and connections in its ProxyConfig that replace the mesh's. Listeners alone
	// read them.
	Listeners proxyconfig.Own[proxyconfig.Listeners]
	// Own selects the endpoints in the cluster of the proxy's own workload (xds.LocalCluster). That cluster alone reads
	// it.
	Own Own
}

// Own selects the endpoints of a proxy's own workload in its own region: among those of the oldest service that selects
// the proxy, the ones of the same workload and, for a Rollout, of the same generation of Pods (istio/istio#60765). It
// is zero if the proxy's Envoy has no such cluster, or if no service selects the proxy.
type Own struct {
	Service    model.Key
	Workload   string
	Region     string
	Generation string // the value of the label generation
}

// generation is the label that distinguishes the generations of a Rollout's Pods (Argo). Agents do not send the
// corresponding label of a Deployment.
const generation = "rollouts-pod-template-hash"

// ownOf derives Inputs.Own of a node from the services that select it, the oldest first.
func ownOf(n Node, services intern.List[model.Key]) Own {
	if !n.Caps.Has(xds.CapSelfDiscovery) || services.Len() == 0 {
		return Own{}
	}
	region, _, _ := strings.Cut(n.Locality, "/")
	return Own{Service: services.All()[0], Workload: n.Workload, Region: region, Generation: n.Labels[generation]}
}

// Has reports whether an endpoint of the service is selected.
func (o Own) Has(e *model.Endpoint) bool {
	region, _, _ := strings.Cut(e.GetLocality(), "/")
	return region == o.Region && e.GetWorkload() == o.Workload && (o.Generation == "" || e.GetLabels()[generation] == o.Generation)
}

// Self is a proxy's description of itself in its spans (istio: pilot/pkg/networking/core/tracing.go, buildServiceTags).
// The zero Self means that the proxy sends no spans.
type Self struct {
	Sends   bool
	Name    string // node.cluster: the service that the spans belong to
	Service string // label service.istio.io/canonical-name
	// Revision is the label service.istio.io/canonical-revision.
	Revision string
	Mesh     string // MESH_ID of its metadata
	Cluster  string // CLUSTER_ID of its metadata
	// Tracing are the tracing settings of its ProxyConfig that replace the mesh's.
	Tracing proxyconfig.Own[proxyconfig.Part]
}

// Reads lists the Inputs that an entry reads. Comparable. The zero Reads is an entry that reads no Inputs.
type Reads struct {
	Labels   intern.List[string] // keys, sorted
	Locality bool
	Network  bool
	Node     bool
}

// With returns a copy of r whose label keys are the given ones, which may be unsorted.
func (r Reads) With(labels []string) Reads {
	sorted := slices.Clone(labels)
	slices.Sort(sorted)
	r.Labels = strs.List(slices.Compact(sorted)...)
	return r
}

// Of returns in reduced to the inputs that the entry reads. Two proxies with equal results share the entry.
func (r Reads) Of(in Inputs) (out Inputs) {
	if r.Locality {
		out.Locality = in.Locality
	}
	if r.Network {
		out.Network, out.Alone = in.Network, in.Alone
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

// Label returns the value of a label. ok is false if the proxy has no such label, or if no rule reads it.
func (in Inputs) Label(key string) (value string, ok bool) {
	for _, label := range in.Labels.All() {
		if k, v, _ := strings.Cut(label, "="); k == key {
			return v, true
		}
	}
	return "", false
}

// Match reports whether the proxy's labels satisfy a selector. An empty selector matches every proxy.
func (in Inputs) Match(selector map[string]string) bool {
	for k, v := range selector {
		if have, ok := in.Label(k); !ok || have != v {
			return false
		}
	}
	return true
}
