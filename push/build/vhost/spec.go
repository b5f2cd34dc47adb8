// Package vhost builds virtual hosts: a Spec in, an encoded VirtualHost out. The result is a fragment that all route
// configurations with this virtual host share.
//
// Owns: nothing.  Reads: its Specs and nothing else.  Never: the snapshot, a view, a clock.
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
// contains no other fields. A test of push/inspect compares the list with the code.
var MeshFields = []protoreflect.Name{"default_http_retry_policy"}

// Spec is the input of one outbound virtual host.
type Spec struct {
	Host    string              // fully qualified; may be a wildcard
	Port    uint32              // of the listener
	Domains intern.List[string] // the plan ensures that they are unique within the route configuration
	// Rules are the rules of the routes, in order; without rules all requests go to the one destination.
	Rules intern.List[Rule]
	// Destinations resolves each destination of the rules (routes and mirrors), each once. Without rules it has one entry,
	// the service itself.
	Destinations intern.List[Destination]
	// NoDefault: without rules there are no routes, instead of one to the service. It is set for virtual hosts of
	// gateways.
	NoDefault bool
	// TLSOnly: requests without TLS are redirected to https (httpsRedirect of a gateway's server).
	TLSOnly bool
	// Misdirected: every request is answered 421, because connections of another server are for these hosts. Policies and
	// rate limits do not apply to the answer.
	Misdirected bool
	// HTTP3 is the UDP port at which the host is served by HTTP/3 too; responses state it (alt-svc). 0: no HTTP/3.
	HTTP3   uint32
	Mesh    *model.Mesh              // nil: Istio's defaults
	Caps    xds.Caps                 // of the proxy; filters that it does not have are left out
	Proxy   proxyconfig.Routes       // settings of routes in the proxy's ProxyConfig, or in the mesh's
	Patches intern.List[model.Patch] // VIRTUAL_HOST and HTTP_ROUTE that may match, in order of application
}

// Rule is one http rule of a VirtualService: spec.http[Index].
type Rule struct {
	VirtualService *model.VirtualService
	Index          int
	// Excluded lists the indices of its matches that do not apply to these proxies, this port or this gateway, ascending.
	Excluded intern.List[int]
}

// HTTP returns the rule.
func (r Rule) HTTP() *networkingv1.HTTPRoute { return r.VirtualService.Spec.GetHttp()[r.Index] }

// Applies reports whether the rule has no matches, or one of its matches is not excluded.
func (r Rule) Applies() bool {
	n := len(r.HTTP().GetMatch())
	return n == 0 || r.Excluded.Len() < n
}

// Object returns the VirtualService, for pages that explain Specs.
func (r Rule) Object() model.Record { return r.VirtualService }

// Passed lists the fields of the rule's excluded matches ("spec.http[0].match[1]"), for pages that explain Specs.
func (r Rule) Passed() (fields []string) {
	for _, match := range r.Excluded.All() {
		fields = append(fields, fmt.Sprintf("spec.http[%d].match[%d]", r.Index, match))
	}
	return fields
}

// Destination resolves one (host, subset, port) of a rule in a scope.
type Destination struct {
	Host   string // as in the normalised VirtualService
	Subset string // empty: all endpoints
	Port   uint32 // as in the VirtualService; 0: not stated
	// Cluster is zero if no cluster is known: the route then answers 503 by BlackHoleCluster.
	Cluster xds.ClusterName
	// Hash is the setting of a consistent-hash balancer; its key becomes part of the route. nil: another balancer.
	Hash *networkingv1.LoadBalancerSettings_ConsistentHashLB
	Rule *model.DestinationRule // with the setting of Hash; nil if Hash is nil
}

// CatchAll is the input of the virtual host "*" that ends a route configuration: allow_any, allow_any_dynamic_dns or
// block_all.
type CatchAll struct {
	Passthrough bool   // false: block_all
	EgressProxy string // cluster for passed-through requests; empty: their original destination
	// ByName sends passed-through requests to the address that their host resolves to (ALLOW_ANY_DYNAMIC_DNS).
	ByName bool
	// Sent, with ByName, sends requests whose host is not a name to their original destination.
	Sent    bool
	Mesh    *model.Mesh
	Proxy   proxyconfig.Routes // as of Spec
	Patches intern.List[model.Patch]
}

// Name returns the name of the virtual host, which patches match.
func (s CatchAll) Name() string {
	switch {
	case !s.Passthrough:
		return xds.BlockAll
	case s.byName():
		return xds.AllowAnyByName
	}
	return xds.AllowAny
}

// byName reports whether the proxy resolves the hosts of passed-through requests. An egress proxy has priority.
func (s CatchAll) byName() bool { return s.Passthrough && s.ByName && s.EgressProxy == "" }

// Added is the input of a virtual host that an EnvoyFilter adds (VIRTUAL_HOST ADD).
type Added struct {
	Patch model.Patch
}

// Proxyless is the input of the route configuration of one host and port for gRPC's own xDS client (gRFC A28, A31, A33,
// A44). It has one virtual host for all names, with the parts of routes that the client supports. ProxylessProblems
// lists the fields that it does not support.
type Proxyless struct {
	Name string // outbound|port||host
	Spec
}
