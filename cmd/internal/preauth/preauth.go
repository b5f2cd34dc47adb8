// Package preauth limits the cost of connections of a gRPC address that have not shown a credential. It bounds the
// number of such connections, in total and of one source, their duration, their bytes and their calls, and orders the
// computation of their handshakes. It also bounds the size of a message of a call, with or without a credential, and
// refuses compressed messages. The further cost of an authenticated connection is limited by its Holder, which receives
// the number of bytes of incomplete messages.
//
// A connection counts as unauthenticated from Accept until its handshake admits a client certificate, or until a call
// on it is authenticated (Authenticated), whichever comes first. Meanwhile it occupies one of a limited number of
// places.
//
// Owns: the connections of its listener until they are authenticated. Reads: addresses of peers, numbers of bytes.
// Never: verifies a credential; decides which callers are admitted.
//
// A Limiter wraps the listener, the TLS credentials and the calls of each gRPC address of navarchd
// (cmd/navarchd/addresses.go). A call finds its connection by the peer's address, which push/serve wraps.
// Callers.Authenticate and OfCalls (cmd/navarchd/callers) mark a connection as authenticated. From then on only the
// limits of header lists, of concurrent streams (100) and of messages apply to it, and those of its Holder. gRPC reads
// the message of a unary method before a handler can authenticate the caller. Methods that need a credential are
// therefore registered as streams (ca/serve/call.go), which are identical on the wire.
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

// Limits are the limits of the unauthenticated connections of one address. Each comment states the default, which a
// zero field means. A source is an IPv4 address or an IPv6 /64.
type Limits struct {
	Total     int // connections: 512
	PerSource int // connections of one source: 128
	Known     int // connections that a source with authenticated connections never loses to other sources: 32
	// Shared are address ranges of gateways and NAT: each source in them may have Total connections. When all places
	// are occupied, its new connections wait for a place and are not refused.
	Shared     []netip.Prefix
	Waiting    int           // connections of shared sources that wait for a place, each of which costs one socket: 4096
	Credential time.Duration // time from the first service of a connection until it shows a credential: 10 s
	// Progress protects a connection after each of the two steps of a handshake: 250 ms. Meanwhile it is not closed in
	// favour of another connection of its source. A connection of a shared source is also protected for the first fifth
	// of Credential.
	Progress time.Duration
	Bytes    int // bytes sent on one connection, handshake included: 32 KiB. A certificate and a token have 20 KiB at most
	// Frames bounds the HTTP/2 frames on one connection: 64. Each costs a step of its reader, however small it is. The
	// call with the credential is among the first ten.
	Frames  int
	List    int // encoded bytes of one header list: 12 KiB. A token has 8 KiB at most (attest.Config.MaxBytes)
	Calls   int // calls on one connection: 16
	Headers int // bytes of headers of all these calls, plus 64 for each header: 32 KiB
	Steps   int // steps of TLS handshakes that are computed at once: one for each processor
	// Message returns the limit, in bytes, of a message of a call of this method, with or without a credential. The
	// first message of a call with a limit must arrive within First. 0 or a nil function: the limits of the gRPC
	// server, and no time limit.
	Message func(method string) int
	First   time.Duration // 10 s
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

// reason is the reason why a connection or call was refused; a label of navarch_unauthenticated_refused_total.
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

// Limiter enforces the limits of one address. Make it with New.
type Limiter struct {
	limits  Limits
	ledger  *sources.Ledger
	line    *turns.Line // orders steps of TLS handshakes: each step is the computation between two messages of the client
	clients *obs.Sampled
	left    chan struct{} // capacity 1: a place became free
	waiting atomic.Int64  // connections of shared sources that wait for a place
}

// New returns a Limiter. clients logs refusals at a limited rate, and must not be nil.
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
		grpc.ReadBufferSize(0), // partial.Messages
		grpc.ChainStreamInterceptor(uncompressed)}
}

// place returns the time for which a connection of a shared source cannot lose its place.
func (l *Limiter) place() time.Duration { return l.limits.Credential / 5 }

// await returns the longest wait for the verification of a credential.
func (l *Limiter) await() time.Duration { return l.limits.Credential / 4 }

// Open returns the number of unauthenticated connections that occupy a place.
func (l *Limiter) Open() int { return l.ledger.Taken() }

// Waiting returns the number of connections of shared sources that wait for a place.
func (l *Limiter) Waiting() int { return int(l.waiting.Load()) }

// refuse counts a refusal and logs it at a limited rate.
func (l *Limiter) refuse(why reason, c *conn) {
	obs.UnauthenticatedRefused.WithLabelValues(string(why)).Inc()
	l.clients.Warn("refused before a credential was shown", string(why), obs.KeyPeer, c.Conn.RemoteAddr().String())
}
