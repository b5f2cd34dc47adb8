// Package cluster draws clusters: a Spec in, an encoded Cluster out.
//
// Owns: nothing.  Reads: its Specs and nothing else; a Spec is the key under which the pool keeps the result, so it
// cannot miss an input.  Never: the snapshot, a view, a clock.
package cluster

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// MeshFields are the fields of MeshConfig that clusters depend on, read by the builders here or by push/traffic, which decides for them: Specs have a mesh
// configuration with these alone. A test of push/inspect compares them with the code.
var MeshFields = []protoreflect.Name{
	"connect_timeout", "locality_lb_setting", "zone_aware_lb_setting", "tcp_keepalive", "h2_upgrade_policy", "outbound_cluster_stat_name",
	"inbound_cluster_stat_name", "dns_refresh_rate", "tls_defaults", "default_traffic_policy", "trust_domain", "trust_domain_aliases",
}

// Outbound is all that one cluster outbound|port|subset|host can depend on.
type Outbound struct {
	Service *model.Service
	Host    string // one of the service's hosts
	Port    uint32 // the service's port number
	Subset  string // "": the cluster of all endpoints
	// Rule is the rule of the host; nil: none applies. SubsetRule is the rule that defines the subset (most often the same); nil for the
	// cluster of all endpoints. What they come to, over the mesh, are Policy, Connection, Upgrade, Discovery and TLS.
	Rule       *model.DestinationRule
	SubsetRule *model.DestinationRule
	Policy     traffic.Ref
	Connection traffic.Connection
	Upgrade    bool // HTTP/1.1 is sent on as HTTP/2
	Discovery  traffic.Discovery
	TLS        traffic.TLS
	// Members are the endpoints of DNS services, which stand inside the cluster; empty for all others (EDS,
	// ORIGINAL_DST).
	Members intern.List[model.Member]
	// Balance is how the proxy's place decides among the endpoints, here or in the assignment. Of the proxy itself it says something for
	// DNS services alone.
	endpoint.Balance
	Mesh    *model.Mesh
	Caps    xds.Caps
	Patches intern.List[model.Patch] // CLUSTER MERGE that match, in order of application
	// What the mesh's mTLS believes. Accounts are the service accounts behind the service, "namespace/name",
	// sorted. MTLSDisabled is a digest of where PeerAuthentications turn mTLS off for endpoints, empty: nowhere, or a rule says how to connect;
	// it is in here so that another mode makes another cluster: Envoy keeps connections in the clear to endpoints that want mTLS now (measured).
	// Denied are SPIFFE IDs that are believed in no case, of those that would be, sorted.
	Accounts     intern.List[string]
	Denied       intern.List[string]
	MTLSDisabled string
	Plain        intern.List[model.Member] // of Members, as of endpoint.Spec
	AllPlain     bool
	// Families are those of the proxy's addresses, where names are resolved; else the zero Families.
	Families xds.Families
	// Horizon is which Members the proxy reaches through gateways.
	Horizon endpoint.Horizon
	// HeaderCase: names of HTTP/1 headers keep their case.
	HeaderCase bool
}

// Inbound is all that one cluster inbound|port|| can depend on.
type Inbound struct {
	Port uint32 // in the name: the port the workload listens on, or the port of a Sidecar's ingress listener
	// Target is where the application listens: "ip:port" or "unix://path"; empty: where the connection was going to
	// (ORIGINAL_DST, from an address of its own).
	Target   string
	Families xds.Families   // of the proxy's addresses
	Service  *model.Service // for metadata; nil: none
	Host     string
	// Pool is the connection pool that holds, and PoolAt where it stands: in the Sidecar, a rule of the service, or the mesh configuration; nil: nowhere.
	Pool       *networkingv1.ConnectionPoolSettings
	PoolAt     model.Place
	Connection traffic.Connection // by that pool, over the mesh
	HTTP2      bool
	Auto       bool // the protocol is not known: the application is spoken to as the client speaks; HTTP2 goes before it
	// HeaderCase: names of HTTP/1 headers keep their case.
	HeaderCase bool
	Mesh       *model.Mesh
	Patches    intern.List[model.Patch]
}

// Static is one of the clusters that every sidecar has, by name: xds.BlackHole, xds.Passthrough or
// xds.InboundPassthrough; and that of unknown hosts whose names the proxy resolves, xds.AllowAnyDynamic.
type Static struct {
	Name       string
	Families   xds.Families       // of the proxy's addresses
	Connection traffic.Connection // by the mesh's default connection pool, over the mesh; of xds.BlackHole by the mesh alone
	HeaderCase bool               // names of HTTP/1 headers keep their case
	Mesh       *model.Mesh
	Patches    intern.List[model.Patch]
	// Of xds.AllowAnyDynamic alone: who resolves names, and how connections are secured, as the mesh says (outboundTrafficPolicy.tls).
	dnscache.Unknown
	Policy traffic.Ref
	TLS    traffic.TLS
	Caps   xds.Caps
}

// Added is a cluster that an EnvoyFilter adds.
type Added struct {
	Patch model.Patch
}

// Proxyless is a cluster of a service as gRPC's own xDS client takes it (gRFC A27, A29, A32, A42): what that would refuse the cluster
// for, or ignores, is left out and is a problem.
type Proxyless struct{ Outbound }

// ProxylessBlackHole is the cluster of routes to what is not there: it has no endpoints. gRPC knows no static clusters.
type ProxylessBlackHole struct{}
