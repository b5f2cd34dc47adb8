// Package cluster builds clusters: a Spec in, an encoded Cluster out.
//
// Owns: nothing.  Reads: its Specs and nothing else; a Spec is the cache key of the result in the pool, so that it
// contains every input.  Never: the snapshot, a view, a clock.
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

// MeshFields lists the fields of MeshConfig that clusters depend on. The builders of this package read them, or
// push/traffic, which computes fields of their Specs. The mesh configuration of a Spec contains no other fields. A test
// of push/inspect compares the list with the code.
var MeshFields = []protoreflect.Name{
	"connect_timeout", "locality_lb_setting", "zone_aware_lb_setting", "tcp_keepalive", "h2_upgrade_policy", "outbound_cluster_stat_name",
	"inbound_cluster_stat_name", "dns_refresh_rate", "tls_defaults", "default_traffic_policy", "trust_domain", "trust_domain_aliases",
}

// Outbound is the input of one cluster outbound|port|subset|host.
type Outbound struct {
	Service *model.Service
	Host    string // one of the service's hosts
	Port    uint32 // the service's port number
	Subset  string // empty: the cluster of all endpoints
	// Rule is the rule of the host; nil: no rule applies.
	Rule *model.DestinationRule
	// SubsetRule is the rule that defines the subset, most often Rule; nil for the cluster of all endpoints.
	SubsetRule *model.DestinationRule
	// Policy, Connection, Upgrade, Discovery and TLS are computed from the rules and the mesh by package traffic.
	Policy     traffic.Ref
	Connection traffic.Connection
	Upgrade    bool // requests of HTTP/1.1 are forwarded as HTTP/2
	// Plainly: requests to a port without a protocol are sent in HTTP/1.1. Otherwise they are sent in the version that the
	// client speaks.
	Plainly bool
	// BySNI: the cluster of a gateway between networks, outbound_.port_.subset_.host. Such a gateway forwards mTLS of
	// others, so the cluster has neither TLS nor a protocol of its own.
	BySNI     bool
	Discovery traffic.Discovery
	TLS       traffic.TLS
	// Secrets: the proxy requests the Secrets and the ConfigMap that the TLS of Policy names. Otherwise it reads files.
	Secrets bool
	// Members are the endpoints of DNS services, which are part of the cluster. It is empty for other discoveries.
	Members intern.List[model.Member]
	// Balance holds the settings of balancing by locality, for the cluster or its assignment. Its inputs of the proxy are
	// set for DNS services alone.
	endpoint.Balance
	Mesh    *model.Mesh              // never nil
	Caps    xds.Caps                 // of the proxy
	Patches intern.List[model.Patch] // CLUSTER MERGE that match, in order of application
	// Accounts are the service accounts behind the service, "namespace/name", sorted: the peers of the mesh's mTLS.
	Accounts intern.List[string]
	// Denied are the SPIFFE IDs among the peers that are never accepted, sorted.
	Denied intern.List[string]
	// MTLSDisabled is a digest of the endpoints for which PeerAuthentications switch mTLS off; empty: there are no such
	// endpoints, or a rule states the TLS mode. Its only purpose is that a changed mode changes the cluster: Envoy would
	// otherwise keep plain-text connections to endpoints that require mTLS now (measured).
	MTLSDisabled string
	// Plain and AllPlain state the Members without mTLS, as in endpoint.Spec.
	Plain    intern.List[model.Member]
	AllPlain bool
	// Families are the IP families of the proxy's addresses if the proxy resolves names; else zero.
	Families xds.Families
	// Horizon selects the Members that the proxy reaches through gateways.
	Horizon endpoint.Horizon
	// HeaderCase preserves the case of HTTP/1 header names.
	HeaderCase bool
}

// Inbound is the input of one cluster inbound|port||.
type Inbound struct {
	Port uint32 // in the name: the port that the workload listens on, or the port of a Sidecar's ingress listener
	// Target is the address of the application: "ip:port" or "unix://path". Empty: the original destination of the
	// connection (ORIGINAL_DST), with a source address of the proxy.
	Target   string
	Families xds.Families   // of the proxy's addresses
	Service  *model.Service // for metadata; nil: no service has the port
	Host     string         // of Service
	// Pool is the connection pool that applies; nil: none is set.
	Pool *networkingv1.ConnectionPoolSettings
	// PoolAt is the place of Pool, for problems: the Sidecar, a rule of the service, or the mesh configuration.
	PoolAt     model.Place
	Connection traffic.Connection // of Pool and the mesh
	HTTP2      bool
	Auto       bool // the protocol is unknown: the HTTP version of the client is used. HTTP2 has priority.
	// HeaderCase preserves the case of HTTP/1 header names.
	HeaderCase bool
	Mesh       *model.Mesh
	Patches    intern.List[model.Patch] // CLUSTER MERGE that match, in order of application
}

// Static is the input of a cluster with a fixed name. Every sidecar has xds.BlackHole, xds.Passthrough and
// xds.InboundPassthrough. xds.AllowAnyDynamic is for unknown hosts whose names the proxy resolves.
type Static struct {
	Name     string
	Families xds.Families // of the proxy's addresses
	// Connection holds the settings of the mesh and of its default connection pool, without the pool for xds.BlackHole.
	Connection traffic.Connection
	HeaderCase bool // preserves the case of HTTP/1 header names
	Mesh       *model.Mesh
	Patches    intern.List[model.Patch] // CLUSTER MERGE that match, in order of application
	// Unknown holds the settings of name resolution. It and the fields below are for xds.AllowAnyDynamic alone.
	dnscache.Unknown
	Policy traffic.Ref // of outboundTrafficPolicy.tls of the mesh
	TLS    traffic.TLS // the mode of that policy
	Caps   xds.Caps    // of the proxy
}

// Added is the input of a cluster that an EnvoyFilter adds (CLUSTER ADD).
type Added struct {
	Patch model.Patch
}

// Proxyless is the input of a cluster for gRPC's own xDS client (gRFC A27, A29, A32, A42). Settings that the client
// would refuse or ignore are left out and are problems.
type Proxyless struct{ Outbound }

// ProxylessBlackHole is the input of the cluster for routes to unknown destinations. It is an EDS cluster without
// endpoints, because gRPC does not support static clusters.
type ProxylessBlackHole struct{}
