// Package vhost encodes a Spec as a VirtualHost of Envoy. The result is a fragment, which is a part of an encoded
// RouteConfiguration. All route configurations with the virtual host share the fragment.
//
// Owns: caches of encoded rules, safe for concurrent use.
// Reads: its Specs.
// Never: reads a clock, or configuration outside of its Specs.
package vhost

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// MeshFields lists the fields of MeshConfig that the builders of this package read. The mesh configuration of a Spec
// contains only these fields. Callers must not change the list.
var MeshFields = []protoreflect.Name{"default_http_retry_policy"}

// Spec is the input of one virtual host of outbound listeners or of a gateway. It is comparable.
type Spec struct {
	Host    string              // fully qualified; may be a wildcard
	Port    uint32              // port of the host, a part of the virtual host's name; at a gateway, the server's port
	Domains intern.List[string] // not empty; the planner keeps domains unique within a route configuration
	// Rules become the routes, in order. Without rules, all requests go to the only element of Destinations, unless
	// NoDefault or Misdirected is set.
	Rules intern.List[Rule]
	// Destinations has each destination of the rules (of routes and of mirrors), with its cluster. Without rules it has
	// one element, the service itself.
	Destinations intern.List[Destination]
	// NoDefault omits the route to the service if there are no rules. The planner sets NoDefault for virtual hosts of
	// gateways.
	NoDefault bool
	// TLSOnly redirects requests without TLS to https (httpsRedirect of a gateway's server).
	TLSOnly bool
	// Misdirected answers every request with 421, because another server of the gateway serves these hosts. Policies
	// and rate limits do not apply to such requests.
	Misdirected bool
	// GRPCWeb enables the filter grpc_web, which is disabled in filter chains of gateways.
	GRPCWeb bool
	// HTTP3 is the UDP port at which the host is also served over HTTP/3. Responses of the rules' routes state the port
	// in the header alt-svc. 0: the host is not served over HTTP/3.
	HTTP3   uint32
	Mesh    *model.Mesh              // nil: Istio's defaults
	Caps    xds.Caps                 // capabilities of the proxy; settings of filters that the proxy lacks are left out
	Proxy   proxyconfig.Routes       // settings of routes, from the proxy's ProxyConfig or else the mesh's
	Patches intern.List[model.Patch] // VIRTUAL_HOST and HTTP_ROUTE patches that may match, in order of application
}

// Rule is one http rule of a VirtualService: spec.http[Index]. VirtualService is not nil, and Index is in range.
type Rule struct {
	VirtualService *model.VirtualService
	Index          int
	// Excluded contains, in ascending order, the indices of the rule's matches that do not apply: they are for other
	// proxies, ports or gateways.
	Excluded intern.List[int]
}

// HTTP returns the rule's message. It belongs to the record and is read-only.
func (r Rule) HTTP() *networkingv1.HTTPRoute { return r.VirtualService.Spec.GetHttp()[r.Index] }

// Applies reports whether the rule can match requests: it has no matches, or a match that is not excluded.
func (r Rule) Applies() bool {
	n := len(r.HTTP().GetMatch())
	return n == 0 || r.Excluded.Len() < n
}

// Object returns the rule's VirtualService, for pages that explain Specs.
func (r Rule) Object() model.Record { return r.VirtualService }

// Passed returns the field paths of the excluded matches, such as "spec.http[0].match[1]". It returns nil if there are
// no excluded matches. Pages that explain Specs use it.
func (r Rule) Passed() (fields []string) {
	for _, match := range r.Excluded.All() {
		fields = append(fields, fmt.Sprintf("spec.http[%d].match[%d]", r.Index, match))
	}
	return fields
}

// Destination is a destination of a rule (Host, Subset, Port), with the cluster to which it resolves for the proxies of
// a Spec.
type Destination struct {
	Host   string // as in the normalised VirtualService; without rules, the Spec's host
	Subset string // empty: all endpoints
	Port   uint32 // as in the VirtualService; 0: not stated; without rules, the Spec's port
	// Cluster is the destination's cluster. The zero value means that the destination is unresolved. The route to an
	// unresolved destination leads to BlackHoleCluster, and requests get status 503. Mirroring to it is left out.
	Cluster xds.ClusterName
	// Hash is the setting consistentHash of the load balancer, or nil if the load balancer does not use it. The hash
	// key becomes part of the route. Hash is read-only.
	Hash *networkingv1.LoadBalancerSettings_ConsistentHashLB
	Rule *model.DestinationRule // the DestinationRule that sets Hash; nil if Hash is nil
}

// CatchAll is the input of the virtual host "*", which receives the requests that no other virtual host of a route
// configuration matches. Its name is allow_any, allow_any_dynamic_dns or block_all.
type CatchAll struct {
	Passthrough bool   // false: block_all
	EgressProxy string // cluster for passed-through requests; empty: their original destination, unless ByName is set
	// ByName sends passed-through requests to the address to which their host resolves (ALLOW_ANY_DYNAMIC_DNS). It has
	// no effect without Passthrough, or with EgressProxy.
	ByName bool
	// Sent, together with ByName, sends a request whose host is an IP address or a cloud's metadata server to its
	// original destination. Without Sent, such a host is resolved like a name.
	Sent    bool
	Proxy   proxyconfig.Routes       // settings of routes, as in Spec
	Patches intern.List[model.Patch] // VIRTUAL_HOST and HTTP_ROUTE patches that may match, in order of application
}

// Name returns the name of the virtual host: block_all, allow_any or allow_any_dynamic_dns. Patches can match it.
func (s CatchAll) Name() string {
	switch {
	case !s.Passthrough:
		return xds.BlockAll
	case s.byName():
		return xds.AllowAnyByName
	}
	return xds.AllowAny
}

// byName reports whether the proxy resolves the hosts of passed-through requests.
func (s CatchAll) byName() bool { return s.Passthrough && s.ByName && s.EgressProxy == "" }

// Added is the input of a virtual host that an EnvoyFilter adds (VIRTUAL_HOST ADD).
type Added struct {
	Patch model.Patch // its value is the virtual host
}

// Proxyless is the input of a route configuration for gRPC's own xDS client (gRFC A28, A31, A33, A44). The route
// configuration contains one virtual host for one host and port, with the parts of routes that the client supports.
// ProxylessProblems lists the unsupported fields of a VirtualService.
type Proxyless struct {
	Name string // name of the route configuration, outbound|port||host
	Spec
}
