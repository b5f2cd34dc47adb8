package proxy

import (
	"time"

	"navarch.io/navarch/push/xds"
)

// Behaviour is what a proxy does other than a healthy Envoy. The zero Behaviour is a healthy one.
type Behaviour struct {
	// ReadRate limits how fast it reads from its socket, bytes per second; 0: no limit.
	ReadRate int
	// StopReading makes it stop reading once it has joined: its socket stays open.
	StopReading bool
	// HoldWindow makes it give no flow-control window back once it has joined: it reads its socket and answers pings, as
	// an agent does whose Envoy is stuck.
	HoldWindow bool
	// AckDelay is how much later than a healthy proxy it acknowledges; hours: never.
	AckDelay time.Duration
	// Refuse says which resources it refuses; a response with one of them is NACKed as Envoy would (the others of the
	// response are applied and not recorded).
	Refuse []Ref
	// DuplicateSubscriptions sends every subscription twice, the second time without claims.
	DuplicateSubscriptions bool
	// ForgeVersions claims versions on every reconnect that nobody ever sent.
	ForgeVersions bool
	// HalfOpen stops after a stage of connecting, and never speaks again.
	HalfOpen Stage
	// Malformed is sent as a message of its own once the proxy has joined.
	Malformed Malformed
}

// Ref names a resource.
type Ref struct {
	Type xds.Type
	Name string
}

// Stage is how far a half-open connection gets.
type Stage uint8

const (
	Whole          Stage = iota // all the way: not half-open
	AfterConnect                // TCP only
	AfterHandshake              // TLS and the HTTP/2 preface
	AfterHeaders                // a stream without a request
)

// Malformed is a kind of request that no Envoy would send.
type Malformed uint8

const (
	WellFormed     Malformed = iota
	NotProtobuf              // bytes that are no message
	NotUTF8                  // a name that is not UTF-8
	UnknownType              // a type URL that nobody serves
	StaleNonce               // the ACK of a nonce that was never sent
	HugeName                 // a subscription to a name of 64 KiB
	HugeMessage              // a length prefix of 4 GiB
	NodeAgain                // another node in a later request
	BothSubscribed           // one name subscribed and unsubscribed at once
	SecondCDS                // an empty wildcard subscription again
)

// Reconnect says how streams are ended and opened again.
type Reconnect struct {
	// Cold forgets everything, as an Envoy that starts again; otherwise what is held is claimed in
	// initial_resource_versions.
	Cold bool
	// Forge claims versions that nobody ever sent.
	Forge bool
	// Vanish leaves the old connection open and silent (neither FIN nor RST, pings unanswered) until the proxy ends: what
	// userland can do of a host that is gone.
	Vanish bool
	// Reset closes with RST instead of FIN.
	Reset bool
	// Spread draws the time of each drop evenly from this span; 0: all at once.
	Spread time.Duration
	// Now reconnects without Envoy's jittered back-off.
	Now bool
}
