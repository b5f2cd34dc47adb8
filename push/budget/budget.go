// Package budget limits the memory and the work that callers with a valid credential cause in a replica. A caller that
// causes too much exhausts only its own share.
//
// An identity is a service account, which thousands of Pods may have. Credentials distinguish these Pods and cannot be
// forged. A token and the certificates that are issued for it count as one credential. If several proxies share a
// credential, node IDs distinguish the proxies, but node IDs are unverified.
//
// A credential is called light while it has no more streams than one proxy needs (Limits.Workload). A new stream of
// another credential never ends the streams of a light credential. Other credentials can end these streams only by too
// many bytes of messages (Entry.Hold). Most limits of an identity grow with the number of its known workloads
// (Config.Workloads). These limits have a minimum, because Pods without a Service are not known.
//
// A stream is called proven if its credential is bound to a Pod, or if its connection comes from the address of a known
// workload. To make room for a new stream, the ledger ends a stream of the credential with the most streams. It prefers
// the newest stream of this credential that is not proven.
//
// Owns: the counts of streams, bytes and work.
// Reads: Config.Workloads.
// Never: calls the end function of a stream while the lock is held.
package budget

import (
	"container/list"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Limits are the limits of all counts. In each field a value of 0 or less means the default.
type Limits struct {
	Workload int // most streams of a workload, and of a light credential; 0: 8, because reconnecting streams overlap
	Least    int // most streams of an identity without known workloads (see Ledger.Enter for exceptions); 0: 1,024
	PerKnown int // added to Least for each known workload; 0: 4

	Names         int // bytes for subscribed names without a resource (Entry.Spend) of an identity's streams; 0: 32 MiB
	NamesPerKnown int // added to Names for each known workload; 0: 4 KiB
	NamesFree     int // bytes of names of each stream that are not counted; 0: 16 KiB

	Messages              int // bytes of messages that are kept for an identity (Entry.Hold); 0: 128 MiB
	MessagesPerKnown      int // added to Messages for each known workload; 0: 512 KiB
	MessagesPerCredential int // bytes of messages of one credential; 0: 16 MiB
	MessagesInAll         int // bytes of messages of all identities; 0: 512 MiB

	Work         int // cost per second of frames of one credential's connections, in units (Entry.Work); 0: 20,000
	WorkInAll    int // cost per second of an identity's connections that are not proven, together; 0: 100,000
	WorkPerKnown int // added to WorkInAll for each known workload; 0: 20

	Asks int // concurrent requests of tools (istioctl) of an identity; 0: 4
}

// Config holds the settings of a Ledger. The zero Config is valid.
type Config struct {
	Limits
	// Workloads returns the addresses of an identity's known workloads. Each address counts as one workload. The result
	// must not change afterwards. While an identity has streams, Workloads is called for it at most once in ten
	// seconds. It is called only if the identity uses a good part of a limit, or has connections that are not proven.
	// It may be called from any goroutine, and the ledger's lock is not held. If Workloads is nil, no workload is
	// known.
	Workloads func(identity string) map[netip.Addr]struct{}
	Now       func() time.Time // nil: time.Now
}

// Holder is a caller with its credential.
type Holder struct {
	Identity string // not empty
	// Credential distinguishes callers of one identity, for example by the certificate's serial number; empty: they are
	// not distinguished.
	Credential string
	Pod        bool       // the credential is bound to a Pod
	From       netip.Addr // address of the connection's peer; zero: unknown
}

// ErrExhausted means that a limit is reached, or that the stream has ended. All errors of this package match it
// (errors.Is).
var ErrExhausted = errors.New("the limit of this identity is reached")

// exhausted is an error that matches ErrExhausted and has its own text.
type exhausted string

// Error implements error.
func (e exhausted) Error() string { return string(e) }

// Is reports whether target is ErrExhausted.
func (e exhausted) Is(target error) bool { return target == ErrExhausted }

// errNewer is the error with which a workload's oldest stream ends when the workload has too many streams.
var errNewer error = exhausted("too many streams of one proxy: newer streams replaced this stream")

// errDisplaced is the error with which a stream ends because its credential has the most streams of the identity.
var errDisplaced = fmt.Errorf("%w: this stream made room, because its credential has the most streams", ErrExhausted)

// These are the paces of joins (Entry.Join) and look-ups (Entry.Blame), and the lives of cached values.
const (
	joinsBurst, joinsEvery = 16, 2 * time.Second // pace of a credential's joins
	joinsPeriod            = 30 * time.Second    // period in which an identity may join as often as it may have streams
	blamesBurst            = 64                  // an identity may have this burst of look-ups, then one in blamesEvery
	blamesEvery            = time.Second / 4
	// blamesShare divides an identity's pace of look-ups. One credential may use 1/4 of this pace. All streams that are
	// not proven may use 3/4 together.
	blamesShare = 4
	knownFor    = 10 * time.Second // life of a result of Config.Workloads
	forgetAfter = time.Minute      // life of a credential without streams; by then its bursts are available again
)

// Ledger holds the counts of all identities. It is safe for concurrent use.
type Ledger struct {
	cfg Config

	mu       sync.Mutex // guards the fields below; no other lock is acquired while it is held
	accounts map[string]*account
	idle     list.List // of *credential without streams, the longest idle first
	held     int       // bytes of messages (Entry.Hold)
}

// account holds the counts of one identity.
type account struct {
	identity       string
	streams        int
	unbound        int // number of streams of credentials without a Pod
	credentials    map[string]*credential
	heavy          map[*credential]struct{} // credentials that are not light
	spent          int                      // bytes of names, without the free ones
	unproven       int                      // bytes of names of credentials without a Pod
	held           int                      // bytes of messages (Entry.Hold)
	asks           int
	joins          pace
	blames         pace
	unprovenBlames pace                    // pace of Blame for streams that are not proven
	work           pace                    // pace of Work for connections that are not proven
	known          map[netip.Addr]struct{} // addresses of known workloads; immutable
	knownAt        time.Time
}

// credential holds the counts of one credential of an account.
type credential struct {
	name      string
	account   *account
	streams   list.List             // of *Entry, oldest first
	workloads map[string]*list.List // maps a node ID to a list of *Entry, oldest first
	spent     int
	held      int // bytes of messages (Entry.Hold)
	joins     pace
	blames    pace
	work      pace
	place     *list.Element // in Ledger.idle
	idleAt    time.Time
}

// Entry is one stream or connection that a Ledger counts. Both are called streams in this package. The methods of an
// Entry may be called from any goroutine. The methods of a nil Entry permit everything and count nothing.
type Entry struct {
	ledger     *Ledger
	credential *credential
	holder     Holder
	end        func(error)
	place      *list.Element // element of credential.streams; nil: the stream has left or was displaced
	workload   string        // node ID
	among      *list.Element // element of credential.workloads[workload]
	spent      int           // bytes of names
	held       int           // bytes of messages (Entry.Hold)
	dropped    bool          // messages are no longer counted
}

// New returns an empty Ledger. Limits of 0 or less and nil functions in c mean the defaults.
func New(c Config) *Ledger {
	for _, n := range []struct {
		value *int
		or    int
	}{{&c.Workload, 8}, {&c.Least, 1024}, {&c.PerKnown, 4}, {&c.Names, 32 << 20}, {&c.NamesPerKnown, 4 << 10},
		{&c.NamesFree, 16 << 10}, {&c.Messages, 128 << 20}, {&c.MessagesPerKnown, 512 << 10}, {&c.MessagesPerCredential, 16 << 20},
		{&c.MessagesInAll, 512 << 20}, {&c.Work, 20_000}, {&c.WorkInAll, 100_000}, {&c.WorkPerKnown, 20}, {&c.Asks, 4}} {
		if *n.value <= 0 {
			*n.value = n.or
		}
	}
	if c.Workloads == nil {
		c.Workloads = func(string) map[netip.Addr]struct{} { return nil }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Ledger{cfg: c, accounts: map[string]*account{}}
}

// Enter counts a stream of a holder until Entry.Leave. It fails if the identity may have no more streams. The error
// then matches ErrExhausted and states the identity's number of streams, and the Entry is nil. Enter may instead end
// another stream of the identity to make room. While all credentials of the identity are light, a proven stream may
// enter above the limit. A stream that is not proven may do so only if fewer streams than the limit belong to
// credentials without a Pod. If h.Pod is set and the credential now has more than Limits.Workload streams, the oldest
// stream of the credential ends.
//
// If the new stream must end later, the ledger calls the function end once with the reason, which matches ErrExhausted.
// The call may come from any goroutine, even before Enter returns or after Leave. The ledger's lock is not held. The
// caller of Enter must then close the stream and still call Leave. The function must not be nil.
func (l *Ledger) Enter(h Holder, end func(error)) (*Entry, error) {
	l.refreshKnown(h.Identity, func(a *account) bool { return a.streams >= l.cfg.Least/2 })
	e := &Entry{ledger: l, holder: h, end: end}
	l.mu.Lock()
	c := l.credential(h)
	loser, err := l.loser(c, e)
	if err != nil {
		if c.streams.Len() == 0 && c.place == nil {
			l.becomesIdle(c)
		}
		l.mu.Unlock()
		return nil, err
	}
	if loser != nil {
		loser.remove()
	}
	l.add(c, e)
	oldest := (*Entry)(nil)
	if h.Pod { // the credential belongs to one workload, whatever the node IDs are
		oldest = e.join("")
	}
	l.mu.Unlock()
	if loser != nil {
		loser.end(errDisplaced)
	}
	if oldest != nil {
		oldest.end(errNewer)
	}
	return e, nil
}

// Node sets the node ID of the stream, which identifies the workload within the credential. If the workload then has
// more than Limits.Workload streams, the oldest stream of the workload ends. So old streams of a client that reconnects
// do not accumulate. Node has no effect for a credential of a Pod, after a previous call, or after the stream ended.
func (e *Entry) Node(id string) {
	if e == nil || e.holder.Pod {
		return
	}
	e.ledger.mu.Lock()
	oldest := e.join(id)
	e.ledger.mu.Unlock()
	if oldest != nil {
		oldest.end(errNewer)
	}
}

// Leave ends the counts of the stream, of its bytes of names (Spend) and of its bytes of messages (Hold). A request of
// Ask counts until its function done is called. Further calls of Leave have no effect.
func (e *Entry) Leave() {
	if e == nil {
		return
	}
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	e.remove()
	e.spend(-e.spent)
	e.drop()
}

// Spend requests bytes for subscribed names without a resource, and returns the number of granted bytes, from 0 to
// bytes. Bytes up to Limits.NamesFree per stream are always granted. One credential may use a quarter of its identity's
// further bytes, and the streams that are not proven may use three quarters together. A negative number releases bytes
// that were granted, and the result is the negative number of released bytes. If the stream has ended, no bytes are
// granted, and a negative number is returned as it is.
func (e *Entry) Spend(bytes int) (granted int) {
	if e == nil {
		return bytes
	}
	l := e.ledger
	l.refreshKnown(e.holder.Identity, func(a *account) bool { return a.spent >= l.cfg.Names/4 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.place == nil {
		return min(bytes, 0) // the stream is ending, and Leave releases its bytes
	}
	return e.spend(bytes)
}

// Join requests the permission to plan the configuration of the stream's proxy (a join). If Join returns nil, the join
// is permitted and counted. Otherwise the error matches ErrExhausted: the stream has ended, or there were too many
// joins. A credential may join 16 times at once, then once in 2 s. Further joins count for the identity. In 30 s the
// identity may have as many of these joins as it may have streams. A refused join is not counted.
func (e *Entry) Join() error {
	if e == nil {
		return nil
	}
	l := e.ledger
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.place == nil {
		return exhausted("the stream has ended")
	}
	c, a := e.credential, e.credential.account
	if c.joins.allow(now, joinsBurst, joinsEvery) {
		return nil
	}
	if most := l.most(a); a.joins.allow(now, most, joinsPeriod/time.Duration(most)) {
		return nil
	}
	return fmt.Errorf("%w: its proxies join too often", ErrExhausted)
}

// Ask counts one request of a tool (istioctl) until the function done is called. It fails if Limits.Asks requests of
// the identity are in progress. The error then matches ErrExhausted, and done is nil. Further calls of done have no
// effect.
func (e *Entry) Ask() (done func(), err error) {
	if e == nil {
		return func() {}, nil
	}
	l, a := e.ledger, e.credential.account
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.asks >= l.cfg.Asks {
		return nil, fmt.Errorf("%w: %d of its requests are in progress", ErrExhausted, a.asks)
	}
	a.asks++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.asks--
	}), nil
}

// Blame reports whether the objects that caused a resource may be looked up, after the proxy refused the resource. If
// so, it counts the look-up. An identity may have 64 look-ups at once, then 4 per second. One credential may use a
// quarter of these look-ups, so that one Pod does not use up the look-ups of its service account. Streams that are not
// proven may use three quarters of the identity's look-ups together.
func (e *Entry) Blame() bool {
	if e == nil {
		return true
	}
	now := e.ledger.cfg.Now()
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	c, a := e.credential, e.credential.account
	if !a.blames.room(now, blamesBurst, blamesEvery) || !c.blames.room(now, blamesBurst/blamesShare, blamesEvery*blamesShare) {
		return false
	}
	if !a.proven(e.holder) && !a.unprovenBlames.allow(now, blamesBurst*(blamesShare-1)/blamesShare, blamesEvery*blamesShare/(blamesShare-1)) {
		return false
	}
	return c.blames.allow(now, blamesBurst/blamesShare, blamesEvery*blamesShare) && a.blames.allow(now, blamesBurst, blamesEvery)
}

// Tick removes credentials that have had no streams for a minute. The owner of the Ledger must call it regularly, for
// example every second. The cost grows only with the number of removed credentials.
func (l *Ledger) Tick() {
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		first := l.idle.Front()
		if first == nil || now.Sub(first.Value.(*credential).idleAt) < forgetAfter {
			return
		}
		c := first.Value.(*credential)
		l.idle.Remove(first)
		delete(c.account.credentials, c.name)
		if len(c.account.credentials) == 0 {
			delete(l.accounts, c.account.identity)
		}
	}
}

// Held returns the bytes of messages that all identities hold now (Entry.Hold).
func (l *Ledger) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// Count returns an identity's number of streams, its number of credentials, and its bytes of names beyond
// Limits.NamesFree. Credentials without streams are included until Tick removes them. For an unknown identity all
// results are 0.
func (l *Ledger) Count(identity string) (streams, credentials, names int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[identity]
	if a == nil {
		return 0, 0, 0
	}
	return a.streams, len(a.credentials), a.spent
}
