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

// Inputs contains the properties of a proxy that only some entries of its outbound side read. Entries are clusters,
// endpoint assignments, listeners and route configurations. A property that no entry needs is zero, so that proxies
// share entries. Telemetry, Self, Extensions, Listeners and Own are zero for proxies that are not sidecars. Inputs is
// comparable.
type Inputs struct {
	// Labels lists labels of the proxy as sorted "key=value". A label is in the list if a record (a configuration
	// object) names its key and value, or compares it with labels of endpoints.
	Labels intern.List[string]
	// Locality is the proxy's region/zone/sub-zone. It is "" if it is unknown, or if no record reads the locality of
	// this proxy. Zone-aware load balancing only reads the locality of proxies with xds.CapSelfDiscovery.
	Locality string
	// Network is the proxy's network, or "" if it is unknown. It is also "" if all of these hold: networks have no
	// gateways, no record compares networks, and the proxy's agent does not resolve names.
	Network string
	// Alone is true if REQUESTED_NETWORK_VIEW in the proxy's metadata names only its own network. Such a proxy gets no
	// endpoints of other networks. Alone is false if Network is "".
	Alone bool
	// Node is the name of the proxy's Kubernetes Node. It is "" if it is unknown, or if no service or rule compares it
	// with the Nodes of endpoints.
	Node string
	// Telemetry is the oldest Telemetry of the proxy's namespace that selects the proxy by labels. It is zero without
	// such a Telemetry. Only listeners read it.
	Telemetry model.Key
	// Self is the proxy's description in its spans. It is zero if the proxy sends no spans.
	Self Self
	// Extensions lists the filters of WasmPlugins and TrafficExtensions in the outbound listeners, in order of
	// application. Only listeners read it.
	Extensions intern.List[extension.Filter]
	// Listeners contains the settings of headers and connections in the proxy's ProxyConfig. It is zero if they equal
	// the mesh's. Only listeners read it.
	Listeners proxyconfig.Own[proxyconfig.Listeners]
	// Own selects the endpoints in the cluster of the proxy's own workload (xds.LocalCluster). Only that cluster reads
	// it.
	Own Own
}

// Own selects the endpoints of a proxy's own workload in the proxy's region. The endpoints belong to the first service
// in Workload.Services. If an Argo Rollout manages the Pods, only endpoints of the proxy's generation of Pods are
// selected (istio/istio#60765). Own is zero if the proxy's Envoy has no cluster of its own workload, or if the proxy
// has no service.
type Own struct {
	Service    model.Key
	Workload   string // Node.Workload
	Region     string // "" if the proxy's locality is unknown
	Generation string // the value of the label rollouts-pod-template-hash; "" matches all generations
}

// generation is the label that distinguishes the generations of a Rollout's Pods (Argo). Agents do not send the
// corresponding label of a Deployment.
const generation = "rollouts-pod-template-hash"

// ownOf returns Inputs.Own for a node. The parameter services lists the services that select the node, the oldest
// first.
func ownOf(n Node, services intern.List[model.Key]) Own {
	if !n.Caps.Has(xds.CapSelfDiscovery) || services.Len() == 0 {
		return Own{}
	}
	region, _, _ := strings.Cut(n.Locality, "/")
	return Own{Service: services.All()[0], Workload: n.Workload, Region: region, Generation: n.Labels[generation]}
}

// Has reports whether Own selects an endpoint of Own.Service. The caller passes only endpoints of that service. Own
// must not be zero.
func (o Own) Has(e *model.Endpoint) bool {
	region, _, _ := strings.Cut(e.GetLocality(), "/")
	return region == o.Region && e.GetWorkload() == o.Workload && (o.Generation == "" || e.GetLabels()[generation] == o.Generation)
}

// Self describes a proxy in the tracing spans that it sends (istio: pilot/pkg/networking/core/tracing.go,
// buildServiceTags). The zero Self means that the proxy sends no spans.
type Self struct {
	Sends   bool   // the proxy may send spans
	Name    string // node.cluster, the service to which the spans belong
	Service string // the label service.istio.io/canonical-name
	// Revision is the label service.istio.io/canonical-revision.
	Revision string
	Mesh     string // MESH_ID of the proxy's metadata
	Cluster  string // CLUSTER_ID of the proxy's metadata
	// Tracing contains the tracing settings of the proxy's ProxyConfig that override the mesh's.
	Tracing proxyconfig.Own[proxyconfig.Part]
}

// Reads states which of the Inputs Labels, Locality, Network, Alone and Node an entry reads. It is comparable. The zero
// Reads means that the entry reads no Inputs.
type Reads struct {
	Labels   intern.List[string] // keys of labels, sorted
	Locality bool
	Network  bool // Inputs.Network and Inputs.Alone
	Node     bool
}

// With returns a copy of r whose Labels are the given keys. The keys may be unsorted and may repeat. With does not
// retain or change the slice.
func (r Reads) With(labels []string) Reads {
	sorted := slices.Clone(labels)
	slices.Sort(sorted)
	r.Labels = strs.List(slices.Compact(sorted)...)
	return r
}

// Of returns a copy of the given inputs that has only the properties that the entry reads. All other properties of the
// result are zero. Telemetry, Self, Extensions, Listeners and Own are always zero in the result. Two proxies with equal
// results share the entry.
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

// Label returns the value of the label with a key. The result ok is false if Labels does not have the key. In this case
// the proxy has no such label, or no record reads the label's value.
func (in Inputs) Label(key string) (value string, ok bool) {
	for _, label := range in.Labels.All() {
		if k, v, _ := strings.Cut(label, "="); k == key {
			return v, true
		}
	}
	return "", false
}

// Match reports whether Labels satisfies a selector. An empty or nil selector matches every proxy. A label of the proxy
// that no record reads is missing in Labels, so a selector with this label does not match.
func (in Inputs) Match(selector map[string]string) bool {
	for k, v := range selector {
		if have, ok := in.Label(k); !ok || have != v {
			return false
		}
	}
	return true
}
