// Package cluster encodes Specs as Envoy's clusters. A Spec is a comparable struct with all inputs of one resource. The
// types of Specs are Outbound, Inbound, Static, Added, Proxyless and ProxylessBlackHole.
//
// Owns: nothing. Reads: its Specs and nothing else, because a Spec is the cache key of its result. Never: reads the
// stored configuration, the state of a proxy, or a clock.
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

// MeshFields lists the fields of MeshConfig on which clusters depend. The fields are read by this package, by packages
// that it calls, or by packages that compute fields of its Specs. The mesh configuration of a Spec contains no other
// fields. The list must not be modified.
var MeshFields = []protoreflect.Name{
	"connect_timeout", "locality_lb_setting", "zone_aware_lb_setting", "tcp_keepalive", "h2_upgrade_policy", "outbound_cluster_stat_name",
	"inbound_cluster_stat_name", "dns_refresh_rate", "tls_defaults", "default_traffic_policy", "trust_domain", "trust_domain_aliases",
}

// Outbound is the input of one cluster outbound|port|subset|host. All its fields are read-only.
type Outbound struct {
	Service *model.Service // not nil
	Host    string         // one of the service's hosts
	Port    uint32         // the service's port number
	Subset  string         // name of a subset in SubsetRule; empty: the cluster of all endpoints
	// Rule is the DestinationRule of the host; nil: no rule applies.
	Rule *model.DestinationRule
	// SubsetRule is the rule that defines the subset, most often Rule; nil for the cluster of all endpoints.
	SubsetRule *model.DestinationRule
	// The planner computes Policy, Connection, Upgrade, Discovery and TLS from the rules and the mesh, with package
	// traffic. The zero Policy has no settings.
	Policy     traffic.Ref
	Connection traffic.Connection
	Upgrade    bool // requests of HTTP/1.1 are forwarded as HTTP/2
	// Plainly makes the cluster use HTTP/1.1 for a port without a stated protocol. If Plainly is false, the cluster
	// uses the client's version of HTTP for such a port.
	Plainly bool
	// BySNI states that the cluster is for a gateway between networks, and is named outbound_.port_.subset_.host. Such
	// a gateway forwards mTLS connections of other proxies, so the cluster adds no TLS and forwards TCP.
	BySNI     bool
	Discovery traffic.Discovery
	TLS       traffic.TLS
	// Secrets states that the proxy may request the Secrets and the ConfigMap that the TLS settings of Policy name. If
	// Secrets is false, the proxy reads files.
	Secrets bool
	// Foreign is the namespace of the rule whose TLS settings name files. It is empty if the rule is in the proxy's
	// namespace. Agents limit the number of file secrets for each foreign namespace (xds.OwnedFile).
	Foreign string
	// Members are the endpoints of DNS services, which are part of the cluster. Other types of discovery have no
	// Members.
	Members intern.List[model.Member]
	// Balance holds the settings of balancing by locality, for the cluster or its assignment. Its fields about the
	// proxy are set only for DNS services.
	endpoint.Balance
	Mesh    *model.Mesh              // not nil
	Caps    xds.Caps                 // the capabilities of the proxy that affect the cluster
	Patches intern.List[model.Patch] // matching MERGE patches of CLUSTER, in order of application
	// Accounts are the service accounts of the service's endpoints, "namespace/name", sorted. With the mesh's mTLS, the
	// proxy accepts their identities.
	Accounts intern.List[string]
	// Denied are SPIFFE IDs that the proxy does not accept from the service's endpoints, sorted.
	Denied intern.List[string]
	// MTLSDisabled is a digest of the endpoints for which PeerAuthentications switch mTLS off. MTLSDisabled is empty if
	// there are no such endpoints, or if a rule states the TLS mode. The digest is part of the cluster's metadata, so
	// that a changed mode changes the cluster. Otherwise Envoy would keep plain-text connections to endpoints that have
	// begun to require mTLS.
	MTLSDisabled string
	// Plain and AllPlain state the Members without mTLS, as in endpoint.Spec.
	Plain    intern.List[model.Member]
	AllPlain bool
	// Families are the IP families of the proxy's addresses, for the resolution of names. They are zero for clusters
	// that resolve no names.
	Families xds.Families
	// Horizon selects the Members of other networks, which the proxy reaches through gateways.
	Horizon endpoint.Horizon
	// HeaderCase preserves the case of HTTP/1 header names. It has no effect if BySNI is set, or on ports of HTTP/2,
	// gRPC and other protocols.
	HeaderCase bool
}

// Inbound is the input of one cluster inbound|port||.
type Inbound struct {
	Port uint32 // part of the name: the port of the workload, or of a Sidecar's ingress listener
	// Target is the address of the application: "ip:port" or "unix://path". Empty: connections go to their original
	// destination (ORIGINAL_DST), from a source address that is not redirected to the proxy.
	Target   string
	Families xds.Families   // families of the proxy's addresses
	Service  *model.Service // for metadata; nil: no service has the port
	Host     string         // host of Service
	// Pool has the settings of the connection pool; nil: there are no settings.
	Pool *networkingv1.ConnectionPoolSettings
	// PoolAt is the object and field that state Pool: in the Sidecar, a rule of the service, or the mesh configuration.
	// PoolAt is zero if Pool is nil. It has no effect on the cluster, but tools show it.
	PoolAt     model.Place
	Connection traffic.Connection // computed from Pool and the mesh
	HTTP2      bool               // requests are sent in HTTP/2
	Auto       bool               // requests are sent in the client's version of HTTP, unless HTTP2 is set
	// HeaderCase preserves the case of HTTP/1 header names.
	HeaderCase bool
	Mesh       *model.Mesh              // not nil
	Patches    intern.List[model.Patch] // matching MERGE patches of CLUSTER, in order of application
}

// Static is the input of a cluster with a fixed name. Sidecars have xds.BlackHole, xds.Passthrough and
// xds.InboundPassthrough. xds.AllowAnyDynamic is for unknown hosts whose names the proxy resolves.
type Static struct {
	Name string // one of these four names
	// Families are the IP families of the proxy's addresses. They are used for xds.InboundPassthrough and
	// xds.AllowAnyDynamic.
	Families xds.Families
	// Connection holds the settings of the mesh. They include the mesh's default connection pool, except for
	// xds.BlackHole.
	Connection traffic.Connection
	HeaderCase bool                     // preserves the case of HTTP/1 header names; not used for xds.BlackHole
	Mesh       *model.Mesh              // not nil
	Patches    intern.List[model.Patch] // matching MERGE patches of CLUSTER, in order of application
	// Unknown holds the settings of name resolution. Unknown, Policy, TLS and Caps are used only for
	// xds.AllowAnyDynamic.
	dnscache.Unknown
	Policy traffic.Ref // policy of the mesh's outboundTrafficPolicy.tls
	TLS    traffic.TLS // TLS mode that follows from Policy
	Caps   xds.Caps    // the capabilities of the proxy that affect TLS
}

// Added is the input of a cluster that an EnvoyFilter adds (CLUSTER ADD).
type Added struct {
	Patch model.Patch // the value of the patch is the cluster
}

// Proxyless is the input of a cluster for gRPC's own xDS client (gRFC A27, A29, A32, A42). The cluster leaves out
// settings that the client would refuse or ignore. Problems reports most of these settings.
type Proxyless struct{ Outbound }

// ProxylessBlackHole is the input of the cluster for routes to unknown destinations. It is an EDS cluster without
// endpoints, because gRPC does not support static clusters.
type ProxylessBlackHole struct{}
