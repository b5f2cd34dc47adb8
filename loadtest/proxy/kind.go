package proxy

// Kind is a kind of violation: something that a server must not do to a proxy. A check that many proxies make of names and
// versions alone says below what it cannot see.
type Kind string

const (
	// EndpointBeforeCluster: an assignment came that no cluster of the proxy wants. Envoy ignores it; the cluster that
	// comes later then waits.
	EndpointBeforeCluster Kind = "endpoint-before-cluster"
	// EndpointsMissing: a cluster was new or had changed, and within Config.WarmTimeout no assignment followed. Envoy does
	// not ask again for those of a changed cluster, and an assignment from before does not help (reference 1.7). Counted
	// once for each proxy and wait.
	EndpointsMissing Kind = "endpoints-missing"
	// Unanswered: a first request, a route or a secret was not answered in time, or a route was answered with a removal,
	// for which a listener waits for ever (reference 1.8).
	Unanswered Kind = "unanswered"
	// MissingReference: a listener or route names a cluster that the proxy does not have: break before make, or a
	// configuration that names what does not exist (a server cannot know better then: Config.Dangling).
	MissingReference Kind = "missing-reference"
	// RemovedInUse: a cluster was removed that a listener or route of the proxy still names.
	RemovedInUse Kind = "removed-in-use"
	// VersionBack: a version came back on a proxy after everybody had left it, while most of those who had the newer one
	// keep it. Contents that are really reverted take the others along, and are no violation. Where a version has only one
	// holder (inbound listeners), or half of the fleet goes back together, it cannot be told from a revert; RevisionBack
	// can.
	VersionBack Kind = "version-back"
	// RevisionBack: system_version_info of a type went back on a proxy, over streams too. Exact, where it is a number (as
	// Navarch's); others are not compared.
	RevisionBack Kind = "revision-back"
	// Duplicate: what the proxy has was sent again though it had not asked: neither subscribed again, nor lost a response
	// by a NACK, nor (endpoints) had its cluster changed, nor claimed anything else in initial_resource_versions.
	Duplicate Kind = "duplicate"
	// DuplicateInResponse: one name twice in one response, which Envoy refuses as a whole (reference 1.10). Only sampled
	// proxies look.
	DuplicateInResponse Kind = "duplicate-in-response"
	// UnknownRemoval: the removal of a name that the proxy neither has nor asked for.
	UnknownRemoval Kind = "unknown-removal"
	// LostRemoval: a probe waited for a removal that did not come. What nobody probes is seen by CheckEqual.
	LostRemoval Kind = "lost-removal"
	// Unrequested: a type or a name that was not asked for on this stream.
	Unrequested Kind = "unrequested"
	// Emptied: the last cluster or listener was taken away from a proxy that had some.
	Emptied Kind = "emptied"
	// Unequal: proxies of one View hold different names or versions when CheckEqual looked.
	Unequal Kind = "unequal"
	// NotReadable: a response that is no protobuf message; the stream is ended.
	NotReadable Kind = "malformed"
	// InvalidContent: a resource that Envoy would refuse by its own rules of validation, or that is named otherwise than
	// its Resource. Clusters and listeners that are no protobuf are seen by all, the rest by sampled proxies.
	InvalidContent Kind = "invalid-content"
	// VersionReused: one name and version with two contents, as a sampled proxy saw it.
	VersionReused Kind = "version-reused"
	// FramingError: HTTP/2 or gRPC framing, or flow control, violated; the stream is ended.
	FramingError Kind = "framing"
)
