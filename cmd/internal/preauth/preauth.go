// Package preauth limits the cost of gRPC connections on which no credential was accepted yet. It bounds the number of
// such connections, in total and from one source (an IPv4 address or an IPv6 /64). It also bounds their duration, bytes
// and calls, and limits the handshakes that are computed at once. On all connections, it bounds the size of messages,
// and refuses compressed messages. The interface Holder limits the further cost of an authenticated connection. The
// Holder of a connection receives the number of bytes of incomplete messages, and the cost of frames.
//
// A connection is unauthenticated until its client certificate is admitted in the handshake, or until a call on the
// connection is authenticated (Authenticated). Until then it occupies one of a limited number of places.
//
// Owns: the connections of its listener until they are authenticated.
// Reads: addresses of peers, numbers of bytes.
// Never: verifies a credential; decides which callers are admitted.
//
// Each gRPC address of navarchd has a Limiter, which wraps its listener, its TLS credentials and its calls. A call
// finds its connection by the peer's address. For an authenticated connection, only these limits apply: those of header
// lists, of concurrent streams (100), of messages, and of its Holder.
//
// gRPC reads the message of a unary method before a handler can authenticate the caller. Methods that need a credential
// are therefore registered as streams (ca/serve/call.go), which are identical on the wire.
package preauth

import (
	"cmp"
	"net/netip"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"navarch.io/navarch/cmd/internal/sources"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/turns"
)

// Limits are the limits of the unauthenticated connections of one address. Zero fields mean the defaults in the
// comments. A source is an IPv4 address or an IPv6 /64. Numbers without further explanation are maximum values.
type Limits struct {
	Total     int // connections; default: 512
	PerSource int // connections of one source; default: 128
	// Known is for sources that also have authenticated connections (known sources); default: 32. A known source with
	// at most Known unauthenticated connections is protected. It loses a connection to another source only if all
	// sources with unauthenticated connections are protected.
	Known int
	// Shared are address ranges of gateways and NAT. Each source in them may have Total connections. A new connection
	// of such a source that gets no place waits for a place. nil: no address is shared.
	Shared     []netip.Prefix
	Waiting    int           // connections that wait for a place; further connections are closed; default: 4096
	Credential time.Duration // time from getting a place until a credential is accepted; default: 10 s
	// Progress is the time for which a connection is busy after each of the two steps of a handshake; default: 250 ms.
	// A busy connection is not closed in favour of another connection of its source. A connection of a shared source is
	// also busy for the first fifth of Credential.
	Progress time.Duration
	Bytes    int // bytes that the client sends, including the handshake; default: 32 KiB. Certificate and token need 20 KiB
	// Frames is the number of HTTP/2 frames on one connection; default: 64. Each frame costs work, however small it is.
	// The call with the credential is among the first ten frames.
	Frames  int
	List    int // encoded bytes of one header list; default: 12 KiB. A token needs 8 KiB (attest's MaxBytes)
	Calls   int // calls on one connection; default: 16
	Headers int // bytes of header names and values in all calls, plus 64 for each value; default: 32 KiB
	Steps   int // steps of TLS handshakes that are computed at once; default: one for each processor (GOMAXPROCS)
	// Message returns the maximum size, in bytes, of a message to this method, with or without a credential. The first
	// message of a call with such a limit must be complete within First. If Message is nil or returns 0, only the
	// limits of the gRPC server apply, and First does not apply.
	Message func(method string) int
	First   time.Duration // time from the headers of a call to its first complete message; default: 10 s
}

// Limits of each connection of an address, with or without a credential.
const (
	maxHeaderList = 32 << 10 // bytes, as HTTP/2 counts them (SETTINGS_MAX_HEADER_LIST_SIZE)
	maxStreams    = 100      // at once on one connection: proxies and tools have a few
)

func (l *Limits) fill() {
	l.Total = cmp.Or(l.Total, 512)
	l.Waiting = cmp.Or(l.Waiting, 4096)
	l.PerSource = cmp.Or(l.PerSource, 128)
	l.Known = cmp.Or(l.Known, 32)
	l.Credential = cmp.Or(l.Credential, 10*time.Second)
	l.Progress = cmp.Or(l.Progress, 250*time.Millisecond)
	l.Bytes = cmp.Or(l.Bytes, 32<<10)
	l.Frames = cmp.Or(l.Frames, 64)
	l.List = cmp.Or(l.List, 12<<10)
	l.Calls = cmp.Or(l.Calls, 16)
	l.Headers = cmp.Or(l.Headers, 32<<10)
	l.First = cmp.Or(l.First, 10*time.Second)
}

// reason states why a connection or call was refused. It is a label of the metric
// navarch_unauthenticated_refused_total.
type reason string

const (
	displaced reason = "displaced"     // closed in favour of another connection
	noRoom    reason = "no_room"       // all places are occupied
	tooLate   reason = "no_credential" // no credential within Limits.Credential
	tooMuch   reason = "too_many_bytes"
	tooFine   reason = "too_many_frames"
	tooLong   reason = "too_long_headers"
	tooMany   reason = "too_many_calls"   // the call was refused
	headers   reason = "too_many_headers" // the call was refused
)

// Limiter enforces the limits of one address. Make it with New. Use its Listen, Credentials and Options together for
// one grpc.Server.
type Limiter struct {
	limits  Limits
	ledger  *sources.Ledger
	line    *turns.Line // orders the steps of TLS handshakes; a step is the computation after a message of the client
	clients *obs.Sampled
	left    chan struct{} // signals that a place became free; capacity 1
	waiting atomic.Int64  // connections of shared sources that wait for a place
}

// New returns a Limiter. The argument clients receives log lines about refusals and failed handshakes. It must not be
// nil.
func New(l Limits, clients *obs.Sampled) *Limiter {
	l.fill()
	return &Limiter{
		limits: l, line: turns.New(l.Steps, 0), clients: clients, left: make(chan struct{}, 1),
		ledger: sources.NewLedger(sources.Limits{Total: l.Total, PerSource: l.PerSource, Shared: l.Shared, Known: l.Known}),
	}
}

// Options returns the options of the grpc.Server that serves the address, except its credentials (Credentials).
func (l *Limiter) Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxHeaderListSize(maxHeaderList), grpc.MaxConcurrentStreams(maxStreams), grpc.InTapHandle(l.tap),
		grpc.ReadBufferSize(0), // partial.Messages requires it
		grpc.ChainStreamInterceptor(uncompressed)}
}

// place returns the time for which a connection of a shared source cannot lose its place.
func (l *Limiter) place() time.Duration { return l.limits.Credential / 5 }

// await returns the longest wait for the verification of a credential.
func (l *Limiter) await() time.Duration { return l.limits.Credential / 4 }

// Open returns the number of occupied places. A connection that ended unauthenticated may occupy its place for a short
// time after its end.
func (l *Limiter) Open() int { return l.ledger.Taken() }

// Waiting returns the number of connections of shared sources that wait for a place.
func (l *Limiter) Waiting() int { return int(l.waiting.Load()) }

// refuse counts a refusal and logs it at a limited rate.
func (l *Limiter) refuse(why reason, c *conn) {
	obs.UnauthenticatedRefused.WithLabelValues(string(why)).Inc()
	l.clients.Warn("refused before a credential was shown", string(why), obs.KeyPeer, c.Conn.RemoteAddr().String())
}
