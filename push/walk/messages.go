package walk

import (
	"iter"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

// Messages implements Held (the configuration of one proxy), Secrets and Policed by decoded messages. The zero Messages
// is empty and ready for use. Listeners keep the order of the calls of Add. A resource that is not a listener replaces
// an earlier one with the same type and name. Methods may run concurrently, except with Add, Withhold,
// WithholdNewest and Close.
type Messages struct {
	listeners []*listenerv3.Listener
	routes    map[string]*routev3.RouteConfiguration
	clusters  map[string]*clusterv3.Cluster
	endpoints map[string]*endpointv3.ClusterLoadAssignment
	secrets   map[string]*tlsv3.Secret
	lacks     map[string]string            // reasons why the proxy lacks secrets, by the secret's name
	earlier   map[string]bool              // lacking secrets of which the proxy may hold an earlier version
	closing   []string                     // policies that cannot be enforced
	ejected   map[string]map[string]string // reasons by cluster and address; nil: Envoy was not asked (see Asked)
}

var (
	_ Secrets = (*Messages)(nil)
	_ Policed = (*Messages)(nil)
)

// Add adds a listener, route configuration, cluster, endpoint assignment or secret. The message must not change
// afterwards. Messages of other types are ignored.
func (m *Messages) Add(message proto.Message) {
	switch one := message.(type) {
	case *listenerv3.Listener:
		m.listeners = append(m.listeners, one)
	case *routev3.RouteConfiguration:
		set(&m.routes, one.GetName(), one)
	case *clusterv3.Cluster:
		set(&m.clusters, one.GetName(), one)
	case *tlsv3.Secret:
		set(&m.secrets, one.GetName(), one)
	case *endpointv3.ClusterLoadAssignment:
		set(&m.endpoints, one.GetClusterName(), one)
	}
}

// set sets an entry of a map that may be nil.
func set[V any](of *map[string]V, name string, v V) {
	if *of == nil {
		*of = map[string]V{}
	}
	(*of)[name] = v
}

// Listeners implements Held. It iterates over all added listeners, in the order of the calls of Add.
func (m *Messages) Listeners() iter.Seq[*listenerv3.Listener] { return slices.Values(m.listeners) }

// Secret implements Secrets. It returns nil for an unknown name.
func (m *Messages) Secret(name string) *tlsv3.Secret { return m.secrets[name] }

// Withhold states that the proxy requests a secret and does not hold it. The reason must not be empty.
func (m *Messages) Withhold(name, reason string) { set(&m.lacks, name, reason) }

// WithholdNewest states that the control plane does not send a secret that the proxy requests. The proxy may hold an
// earlier version, because Envoy retains removed secrets. The reason must not be empty.
func (m *Messages) WithholdNewest(name, reason string) {
	m.Withhold(name, reason)
	set(&m.earlier, name, true)
}

// MayHold implements Secrets. It returns false for a secret that was added, and for an unknown name.
func (m *Messages) MayHold(name string) bool { return m.secrets[name] == nil && m.earlier[name] }

// Lack implements Secrets. It returns "" for a secret that was added, and for an unknown name.
func (m *Messages) Lack(name string) string {
	if m.secrets[name] != nil {
		return ""
	}
	return m.lacks[name]
}

// Close states which policies select the proxy and cannot be enforced, as "Kind namespace/name". It keeps the list.
func (m *Messages) Close(policies []string) { m.closing = policies }

// Closing implements Policed.
func (m *Messages) Closing() []string { return m.closing }

// Route implements Held. It returns nil for an unknown name.
func (m *Messages) Route(name string) *routev3.RouteConfiguration { return m.routes[name] }

// Cluster implements Held. It returns nil for an unknown name.
func (m *Messages) Cluster(name string) *clusterv3.Cluster { return m.clusters[name] }

// Endpoints implements Held. It returns nil for a cluster without an endpoint assignment.
func (m *Messages) Endpoints(cluster string) *endpointv3.ClusterLoadAssignment {
	return m.endpoints[cluster]
}
