package proxy

// Kind is a kind of violation: a server's act that harms a proxy. Checks that many proxies make with names and versions
// alone have limits, which are stated below.
type Kind string

const (
	// EndpointBeforeCluster: an assignment arrived that no cluster of the proxy uses. Envoy ignores it, and a cluster that
	// arrives later waits.
	EndpointBeforeCluster Kind = "endpoint-before-cluster"
	// EndpointsMissing: a cluster was new or changed, and no assignment followed within Config.WarmTimeout. Envoy does not
	// subscribe again for a changed cluster, and an earlier assignment does not help (reference 1.7). Counted once for
	// each proxy and wait.
	EndpointsMissing Kind = "endpoints-missing"
	// Unanswered: a first request, a route or a secret got no answer in time, or a route was answered with a removal,
	// after which a listener waits for ever (reference 1.8).
	Unanswered Kind = "unanswered"
	// MissingReference: a listener or route names a cluster that the proxy does not have: break before make, or a
	// configuration with a name that does not exist. For the latter a server is not at fault (Config.Dangling).
	MissingReference Kind = "missing-reference"
	// RemovedInUse: a cluster was removed while a listener or route of the proxy still names it.
	RemovedInUse Kind = "removed-in-use"
	// VersionBack: an old version returned on a proxy after all proxies had left it, while most holders of the newer
	// version keep that one. In a real revert the others follow, and it is no violation. For a version with one holder
	// (inbound listeners), or when half of the fleet goes back together, a violation looks like a revert; RevisionBack
	// detects it.
	VersionBack Kind = "version-back"
	// RevisionBack: system_version_info of a type decreased on a proxy, also across streams. Exact if it is a number, as
	// with Navarch; other values are not compared.
	RevisionBack Kind = "revision-back"
	// Duplicate: a version that the proxy holds was sent again without a reason. Reasons are a new subscription, a NACK, a
	// changed cluster (for endpoints), or another claim in initial_resource_versions.
	Duplicate Kind = "duplicate"
	// DuplicateInResponse: one name twice in one response, which Envoy refuses as a whole (reference 1.10). Only sampled
	// proxies check it.
	DuplicateInResponse Kind = "duplicate-in-response"
	// UnknownRemoval: the removal of a name that the proxy neither has nor requested.
	UnknownRemoval Kind = "unknown-removal"
	// LostRemoval: a probe waited for a removal that did not arrive. Without a probe, CheckEqual detects it.
	LostRemoval Kind = "lost-removal"
	// Unrequested: a type or a name that was not requested on this stream.
	Unrequested Kind = "unrequested"
	// Emptied: the last cluster or listener was removed from a proxy that had some.
	Emptied Kind = "emptied"
	// Unequal: proxies of one View held different names or versions at a call of CheckEqual.
	Unequal Kind = "unequal"
	// NotReadable: a response that is not a protobuf message; the stream is ended.
	NotReadable Kind = "malformed"
	// InvalidContent: a resource that violates Envoy's validation rules, or has another name than its Resource. All
	// proxies check that clusters and listeners are protobuf; sampled proxies check the rest.
	InvalidContent Kind = "invalid-content"
	// VersionReused: one name and version with two contents, seen by a sampled proxy.
	VersionReused Kind = "version-reused"
	// FramingError: HTTP/2 or gRPC framing, or flow control, was violated; the stream is ended.
	FramingError Kind = "framing"
)
