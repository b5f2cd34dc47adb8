// Package preauth limits what a connection of a gRPC address may cost before it has shown a credential: how many such connections there may
// be, in all and from one source, for how long, what each may send and call, and whose handshake is computed next. It also limits how large a
// message of a call may be, with or without a credential, and that nothing is compressed (issue 12, item 8). What else a connection may cost afterwards is for its Holder to
// decide, which is told how many bytes of incomplete messages it has.
//
// A connection counts as unauthenticated from Accept until a client certificate was admitted in its handshake, or until a call on
// it was authenticated (Authenticated), whichever comes first.
//
// Owns: the connections of its listener until then.  Reads: addresses of peers, numbers of bytes.  Never: a credential; decides
// who is admitted.
//
// A Limiter wraps the listener, the TLS credentials and the calls of each gRPC address of navarchd
// (cmd/navarchd/addresses.go). A call finds its connection by the peer's address, which push/serve wraps.
// Callers.Authenticate and OfCalls (cmd/navarchd/callers) mark a connection as authenticated; from then on its only
// limits are the header list and 100 streams at once. gRPC reads the message of a unary method before a handler can
// authenticate the caller. So methods that need a credential are registered as streams (ca/serve/call.go), which are
// the same on the wire.
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

// Limits of the unauthenticated connections of one address. A field that is zero stands for its default.
type Limits struct {
	Total     int // connections: 512
	PerSource int // of one IPv4 address or one IPv6 /64: 128
	Known     int // that a source keeps which has authenticated connections, whatever others do: 32
	// Shared are ranges of gateways and NAT: each address in them may have Total. Where that is used up, new connections wait for
	// the others, instead of being refused.
	Shared     []netip.Prefix
	Waiting    int           // connections of shared sources that wait for a place, each a socket and nothing else: 4096
	Credential time.Duration // from when a connection is served until a credential was shown: 10 s
	// Progress is for how long one is not closed for another one of its source after each of the two steps of its handshake: 250 ms. One
	// of a shared source is not within the first fifth of Credential either.
	Progress time.Duration
	Bytes    int // that one may send, handshake and all: 32 KiB. A certificate and a token have some 20 KiB at most
	Frames   int // of HTTP/2 that one may send: 64. Each costs a turn of its reader, however little it has; the call with the credential comes in the first ten
	List     int // bytes of one list of headers, encoded: 12 KiB. A token has 8 KiB at most (attest.Config.MaxBytes)
	Calls    int // that one may make: 16
	Headers  int // bytes of headers of all these, 64 more for each header: 32 KiB
	Steps    int // steps of TLS handshakes that are computed at once: one for each processor
	// Message is how many bytes a message of a call of this method may have, with a credential too; the first must come in First then.
	// 0, and nil: what the server takes, at any time.
	Message func(method string) int
	First   time.Duration // 10 s
}

// Limits of all connections of an address, authenticated or not.
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

// reason is why a connection was closed, or not taken; a label of navarch_unauthenticated_refused_total.
type reason string

const (
	displaced reason = "displaced"     // there was no room for another one
	noRoom    reason = "no_room"       // there was none for it
	tooLate   reason = "no_credential" // in time
	tooMuch   reason = "too_many_bytes"
	tooFine   reason = "too_many_frames"
	tooLong   reason = "too_long_headers"
	tooMany   reason = "too_many_calls"   // the call was refused
	headers   reason = "too_many_headers" // the call was refused
)

// Limiter keeps the limits of one address.
type Limiter struct {
	limits  Limits
	ledger  *sources.Ledger
	line    *turns.Line // of steps of TLS handshakes: what is computed between one message of the client and the next
	clients *obs.Sampled
	left    chan struct{} // of one: somebody has
	waiting atomic.Int64  // connections of shared sources that have no place yet
}

// New makes a Limiter. clients gets lines about what is refused.
func New(l Limits, clients *obs.Sampled) *Limiter {
	l.fill()
	return &Limiter{
		limits: l, line: turns.New(l.Steps, 0), clients: clients, left: make(chan struct{}, 1),
		ledger: sources.NewLedger(sources.Limits{Total: l.Total, PerSource: l.PerSource, Shared: l.Shared, Known: l.Known}),
	}
}

// Options are those of the grpc.Server that serves the address, beside its credentials.
func (l *Limiter) Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxHeaderListSize(maxHeaderList), grpc.MaxConcurrentStreams(maxStreams), grpc.InTapHandle(l.tap),
		grpc.ReadBufferSize(0), // partial.Messages
		grpc.ChainStreamInterceptor(uncompressed)}
}

// place is for how long a connection of a shared source has its place for certain.
func (l *Limiter) place() time.Duration { return l.limits.Credential / 5 }

// await is for how long it is worth waiting for a client whose connection stands.
func (l *Limiter) await() time.Duration { return l.limits.Credential / 4 }

// Open is how many unauthenticated connections are served.
func (l *Limiter) Open() int { return l.ledger.Taken() }

// Waiting is how many connections of shared sources wait to be served.
func (l *Limiter) Waiting() int { return int(l.waiting.Load()) }

// refuse counts and logs, a sample.
func (l *Limiter) refuse(why reason, c *conn) {
	obs.UnauthenticatedRefused.WithLabelValues(string(why)).Inc()
	l.clients.Warn("refused before a credential was shown", string(why), obs.KeyPeer, c.Conn.RemoteAddr().String())
}
