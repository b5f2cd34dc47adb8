// Package vhost draws virtual hosts: a Spec in, an encoded VirtualHost out, as the fragment of a RouteConfiguration
// that all route configurations which hold it share.
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

// MeshFields are the fields of MeshConfig that the builders here read: Specs have a mesh configuration with these
// alone. A test of push/inspect compares them with the code.
var MeshFields = []protoreflect.Name{"default_http_retry_policy"}

// Spec is all that one outbound virtual host can depend on.
type Spec struct {
	Host    string              // fully qualified; may be a wildcard
	Port    uint32              // of the listener
	Domains intern.List[string] // decided by the plan: unique within the route configuration
	// Rules decide the routes, in order; without rules all requests go to the one destination.
	Rules intern.List[Rule]
	// Destinations resolves every destination that the rules name (routes, mirrors), each once; without rules the service
	// itself.
	Destinations intern.List[Destination]
	Mesh         *model.Mesh
	Caps         xds.Caps
	Proxy        proxyconfig.Routes       // what the proxy's ProxyConfig, or the mesh's, says of them
	Patches      intern.List[model.Patch] // VIRTUAL_HOST and HTTP_ROUTE that may match, in order of application
}

// Rule is one http rule of a VirtualService: spec.http[Index].
type Rule struct {
	VirtualService *model.VirtualService
	Index          int
	// Excluded are the indices of its matches that are not for these proxies, this port or this gateway, ascending.
	Excluded intern.List[int]
}

// HTTP is the rule itself.
func (r Rule) HTTP() *networkingv1.HTTPRoute { return r.VirtualService.Spec.GetHttp()[r.Index] }

// Applies says whether the rule is for everything, or one of its matches is not excluded.
func (r Rule) Applies() bool {
	n := len(r.HTTP().GetMatch())
	return n == 0 || r.Excluded.Len() < n
}

// Object is the VirtualService, for pages that explain Specs.
func (r Rule) Object() model.Record { return r.VirtualService }

// Passed lists the fields of the rule that do not count here, for pages that explain Specs.
func (r Rule) Passed() (fields []string) {
	for _, match := range r.Excluded.All() {
		fields = append(fields, fmt.Sprintf("spec.http[%d].match[%d]", r.Index, match))
	}
	return fields
}

// Destination resolves one (host, subset, port) of a rule in a scope.
type Destination struct {
	Host   string // as the normalised VirtualService has it
	Subset string
	Port   uint32 // as the VirtualService has it; 0: not stated
	// Cluster is zero if no cluster is known: the route then answers 503 by BlackHoleCluster.
	Cluster xds.ClusterName
	// Hash is the setting of a consistent-hash balancer, which routes state, and Rule the DestinationRule that has it; nil
	// for other balancers.
	Hash *networkingv1.LoadBalancerSettings_ConsistentHashLB
	Rule *model.DestinationRule
}

// CatchAll is the virtual host "*" that ends a route configuration: allow_any, allow_any_dynamic_dns or block_all.
type CatchAll struct {
	Passthrough bool
	EgressProxy string // cluster that takes what passes through; empty: it goes where it was sent
	// ByName: what passes through goes to where its host resolves to (ALLOW_ANY_DYNAMIC_DNS). Sent: but for what has no
	// name to resolve, which goes where it was sent.
	ByName, Sent bool
	Mesh         *model.Mesh
	Proxy        proxyconfig.Routes // as of Spec
	Patches      intern.List[model.Patch]
}

// Name is the name of the virtual host, by which patches find it.
func (s CatchAll) Name() string {
	switch {
	case !s.Passthrough:
		return xds.BlockAll
	case s.byName():
		return xds.AllowAnyByName
	}
	return xds.AllowAny
}

func (s CatchAll) byName() bool { return s.Passthrough && s.ByName && s.EgressProxy == "" }

// Added is a virtual host that an EnvoyFilter adds (VIRTUAL_HOST ADD).
type Added struct {
	Patch model.Patch
}

// Proxyless is the route configuration of one host and port as gRPC's own xDS client takes it (gRFC A28, A31, A33,
// A44): one virtual host for all names, of routes that the client knows. ProxylessProblems lists the routes that gRPC
// clients do not support.
type Proxyless struct {
	Name string // outbound|port||host
	Spec
}
