// Package xds is the vocabulary of the push side: resource types, resources as encoded bytes, names
// that tools rely on, and what a proxy is able to do.
//
// Owns: nothing; values are immutable.  Reads: store/protowalk.  Never: the snapshot, a stream.
//
// # Responses
//
// Resources that follow one another in a response are encoded as one piece of up to 64 KB, shared by all streams that
// send the same sequence (run.go). A whole type is sent layer by layer, so that the resources of one zone or workload
// do not break up the pieces that all proxies have (manifest.Stack.Layers).
package xds

// Type is a resource type. In which order they are sent push/delta says (order in compose.go).
type Type uint8

const (
	Cluster Type = iota
	Endpoint
	Listener
	Route
	Secret
	Extension // configuration of a filter that a listener names, and does not have itself
	NumTypes  // how many there are; not a type
)

// Unknown is returned by ParseURL for types that Navarch does not serve.
const Unknown = NumTypes

var types = [NumTypes]struct{ url, short, noun string }{
	Cluster:   {"type.googleapis.com/envoy.config.cluster.v3.Cluster", "CDS", "cluster"},
	Endpoint:  {"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "EDS", "endpoint"},
	Listener:  {"type.googleapis.com/envoy.config.listener.v3.Listener", "LDS", "listener"},
	Route:     {"type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "RDS", "route"},
	Secret:    {"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "SDS", "secret"},
	Extension: {"type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "ECDS", "extension"},
}

// URL is the type URL on the wire.
func (t Type) URL() string { return types[t].url }

// String is the short name of the discovery service: CDS, EDS, LDS, RDS, SDS, ECDS.
func (t Type) String() string {
	if t >= NumTypes {
		return "unknown"
	}
	return types[t].short
}

// Noun is the name on command lines: cluster, endpoint, listener, route, secret, extension.
func (t Type) Noun() string { return types[t].noun }

// Wildcard says whether a subscription of this type is "all that there is": Envoy lists no names for CDS and LDS, and
// where names are listed on a reconnect they still mean all (reference: consul#12174). On a state-of-the-world stream, where Envoy never
// lists any, names mean themselves: gRPC's clients subscribe so.
func (t Type) Wildcard() bool { return t == Cluster || t == Listener }

// ParseURL is the inverse of URL; Unknown for any other.
func ParseURL(url string) Type {
	for t := range types {
		if types[t].url == url {
			return Type(t)
		}
	}
	return Unknown
}

// ParseNoun is the inverse of Noun; Unknown for any other.
func ParseNoun(noun string) Type {
	for t := range types {
		if types[t].noun == noun {
			return Type(t)
		}
	}
	return Unknown
}
