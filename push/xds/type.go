// Package xds has common types of the folder push: resource types, encoded resources, names on which tools rely, and
// the capabilities of proxies.
//
// Owns: nothing; its values are immutable.
// Reads: encoded messages, by store/protowalk.
// Never: uses the snapshot of the stored configuration, or a stream.
//
// # Responses
//
// Small resources that follow one another in a response are encoded as one piece of up to 64 KiB (run.go). All streams
// that send the same sequence share the piece. If a response has all resources of a type, the resources of one zone or
// workload are separate from those that many proxies have (manifest.Stack.Layers). This makes long sequences equal for
// many streams.
package xds

// Type is a resource type of xDS. The package push/delta determines the order in which types are sent.
type Type uint8

// The types of Envoy's resources that Navarch serves.
const (
	Cluster Type = iota
	Endpoint
	Listener
	Route
	Secret
	Extension // filter configuration, which Envoy requests by the name that a listener states
	NumTypes  // the number of types; not a type
)

// Unknown stands for all other types, such as those of resources for agents.
const Unknown = NumTypes

// types has the names of each type.
var types = [NumTypes]struct{ url, short, noun string }{
	Cluster:   {"type.googleapis.com/envoy.config.cluster.v3.Cluster", "CDS", "cluster"},
	Endpoint:  {"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "EDS", "endpoint"},
	Listener:  {"type.googleapis.com/envoy.config.listener.v3.Listener", "LDS", "listener"},
	Route:     {"type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "RDS", "route"},
	Secret:    {"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "SDS", "secret"},
	Extension: {"type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "ECDS", "extension"},
}

// URL returns the type URL on the wire. It panics for Unknown.
func (t Type) URL() string { return types[t].url }

// String returns the short name of the discovery service: CDS, EDS, LDS, RDS, SDS, ECDS. For Unknown it is "unknown".
func (t Type) String() string {
	if t >= NumTypes {
		return "unknown"
	}
	return types[t].short
}

// Noun returns the name on command lines: cluster, endpoint, listener, route, secret, extension. It panics for Unknown.
func (t Type) Noun() string { return types[t].noun }

// Wildcard reports whether a delta subscription to the type is for all resources, even if the subscription lists names.
// The result is true for CDS and LDS. Envoy lists names of these types only after a reconnect, and still wants all
// resources. Wildcard does not apply to state-of-the-world streams, where Envoy lists no names of these types. On such
// a stream, a client that lists names wants only these resources, as gRPC's clients do.
func (t Type) Wildcard() bool { return t == Cluster || t == Listener }

// ParseURL returns the type whose type URL is url, or Unknown for any other URL.
func ParseURL(url string) Type {
	for t := range types {
		if types[t].url == url {
			return Type(t)
		}
	}
	return Unknown
}

// ParseNoun returns the type for which Noun returns noun, or Unknown for any other string.
func ParseNoun(noun string) Type {
	for t := range types {
		if types[t].noun == noun {
			return Type(t)
		}
	}
	return Unknown
}
