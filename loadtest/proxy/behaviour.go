package proxy

import (
	"time"

	"navarch.io/navarch/push/xds"
)

// Behaviour describes how a proxy differs from a healthy Envoy. The zero Behaviour is healthy.
type Behaviour struct {
	// ReadRate limits reading from the socket, in bytes per second; 0: no limit.
	ReadRate int
	// StopReading stops reading once the proxy has joined; the socket stays open.
	StopReading bool
	// HoldWindow returns no flow-control window once the proxy has joined. The proxy still reads its socket and answers
	// pings, like an agent whose Envoy is stuck.
	HoldWindow bool
	// AckDelay is the delay of each ACK; a delay of hours means no ACK.
	AckDelay time.Duration
	// Refuse lists the resources that the proxy rejects. A response with one of them gets a NACK, as from Envoy; its other
	// resources are applied but not recorded.
	Refuse []Ref
	// DuplicateSubscriptions sends each subscription twice, the second time without versions.
	DuplicateSubscriptions bool
	// ForgeVersions claims invented versions at every reconnect.
	ForgeVersions bool
	// HalfOpen stops at a stage of connecting; the proxy then sends nothing more.
	HalfOpen Stage
	// Malformed is an invalid message that the proxy sends once it has joined.
	Malformed Malformed
}

// Ref names a resource.
type Ref struct {
	Type xds.Type
	Name string
}

// Stage is the last completed stage of a half-open connection.
type Stage uint8

const (
	Whole          Stage = iota // all stages: not half-open
	AfterConnect                // TCP only
	AfterHandshake              // TLS and the HTTP/2 preface
	AfterHeaders                // a stream without requests
)

// Malformed is a kind of request that Envoy never sends.
type Malformed uint8

const (
	WellFormed     Malformed = iota // no invalid request
	NotProtobuf                     // bytes that are not a message
	NotUTF8                         // a name that is not UTF-8
	UnknownType                     // a type URL that no server knows
	StaleNonce                      // the ACK of an invented nonce
	HugeName                        // a subscription to a name of 64 KiB
	HugeMessage                     // a length prefix of 4 GiB
	NodeAgain                       // a different node in a later request
	BothSubscribed                  // a name is subscribed and unsubscribed in one request
	SecondCDS                       // an empty wildcard subscription again
)

// Reconnect describes how streams are ended and opened again.
type Reconnect struct {
	// Cold forgets all resources, as after a restart of Envoy. Otherwise the proxy claims its resources in
	// initial_resource_versions.
	Cold bool
	// Forge claims invented versions.
	Forge bool
	// Vanish leaves the old connection open and silent until the proxy ends: no FIN, no RST, no answer to pings. This is
	// as close as user space gets to a host that has disappeared.
	Vanish bool
	// Reset closes with RST instead of FIN.
	Reset bool
	// Spread is the span over which the reconnects are evenly distributed; 0: all at once.
	Spread time.Duration
	// Now reconnects without Envoy's back-off.
	Now bool
}
