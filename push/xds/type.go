// Package xds has common types of the folder push: resource types, encoded resources, names on which tools rely, and
// the capabilities of proxies.
//
// Owns: nothing; values are immutable.  Reads: store/protowalk.  Never: the snapshot, a stream.
//
// # Responses
//
// Resources that follow one another in a response are encoded as one piece of up to 64 KiB, if they are small. All
// streams that send the same sequence share the piece (run.go). A whole type is sent layer by layer. So the resources
// of one zone or workload do not interrupt sequences that all proxies have in common (manifest.Stack.Layers).
package xds

// Type is a resource type. push/delta determines the order in which types are sent (compose.go).
type Type uint8

// The types of Envoy's resources that Navarch serves.
const (
	Cluster Type = iota
	Endpoint
	Listener
	Route
	Secret
	Extension // configuration of a filter that Envoy requests by the name in a listener
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

// Wildcard reports whether a delta subscription to the type is for all resources even if it lists names. The result is
// true for CDS and LDS. Envoy lists names of these types only after a reconnect, and still wants all resources
// (consul#12174). On a state-of-the-world stream Envoy lists no names of these types. There a list of names means only
// these resources, because gRPC's clients subscribe in this way.
func (t Type) Wildcard() bool { return t == Cluster || t == Listener }

// ParseURL returns the type with a type URL, or Unknown.
func ParseURL(url string) Type {
	for t := range types {
		if types[t].url == url {
			return Type(t)
		}
	}
	return Unknown
}

// ParseNoun returns the type with a name of Noun, or Unknown.
func ParseNoun(noun string) Type {
	for t := range types {
		if types[t].noun == noun {
			return Type(t)
		}
	}
	return Unknown
}
