// Package budget bounds what callers with a valid credential make a replica keep and compute (issue 12, item 9), so that whoever
// takes much takes it from themselves.
//
// An identity is a service account, which thousands of Pods may have. Its *credentials* tell these apart, and nobody can forge
// one: a token and the certificates that follow from it are one. Node ids do so too where several proxies share a
// credential, but they are claims. A credential is *light* while it has no more streams than one proxy needs, and then nothing
// that others do ends them; the caps of an identity are for those that have more, and for those that no Pod has. They grow with
// the workloads that the source knows of the identity, and have a least, because Pods behind no Service are not known. A stream is
// *proven* to be of a known workload where its token is bound to a Pod, or its connection comes from a known workload's address; others
// do not displace or refuse it.
//
// Owns: the counts.  Reads: nothing.  Never: closes anything while its lock is held; believes what a node says of itself.
package budget

import (
	"container/list"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Limits are the numbers of the rules; 0 is the default.
type Limits struct {
	Workload int // streams of one workload, and of a light credential; 8: Envoy and agents overlap where they reconnect
	Least    int // streams of an identity whose credentials are not light, or not bound to a Pod; 1,024
	PerKnown int // and so many for each workload that is known; 4

	Names         int // bytes that an identity's streams may keep of names of which there is nothing; 32 MiB
	NamesPerKnown int // and so many for each workload that is known; 4 KiB
	NamesFree     int // of each stream, which are not counted; 16 KiB

	Messages              int // bytes of messages that are kept for an identity, see Entry.Hold; 128 MiB
	MessagesPerKnown      int // and so many for each workload that is known; 512 KiB
	MessagesPerCredential int // of one credential; 16 MiB
	MessagesInAll         int // of all identities; 512 MiB

	Work         int // units that frames of one credential's connections may cost each second, see Entry.Work; 20,000
	WorkInAll    int // and those of an identity that are not proven; 100,000
	WorkPerKnown int // and so many for each workload that is known; 20

	Asks int // questions of an identity that are answered or wait at once (istioctl); 4
}

// Config is what a Ledger is made of. The zero Config is ready for use.
type Config struct {
	Limits
	// Workloads are the addresses of the workloads that the source knows of an identity. It is asked where an identity takes
	// much, once in ten seconds at most, and never with the lock held. nil: none is known.
	Workloads func(identity string) map[netip.Addr]struct{}
	Now       func() time.Time // nil: time.Now
}

// Holder is who has shown a credential.
type Holder struct {
	Identity string // not empty
	// Credential tells those of one identity apart, for example by the certificate's serial number; empty: nothing does.
	Credential string
	Pod        bool       // the credential is bound to a Pod
	From       netip.Addr // where its connection comes from; zero: not known
}

// ErrExhausted is what errors of this package match: the identity has as much as it may.
var ErrExhausted = errors.New("as much as this identity may have")

// errNewer is why the oldest stream of a workload ends.
var errNewer = fmt.Errorf("%w: newer ones of the same proxy took its place", ErrExhausted)

// errDisplaced is why a stream of a credential that has many ends.
var errDisplaced = fmt.Errorf("%w: its credential has most of what the identity has open, and others need a place", ErrExhausted)

// Paces.
const (
	joinsBurst, joinsEvery = 16, 2 * time.Second // of one credential
	joinsPeriod            = 30 * time.Second    // in which an identity may join as often as it may have streams
	blamesBurst            = 64                  // refusals of an identity whose objects are looked for
	blamesEvery            = time.Second / 4
	blamesShare            = 4                // what one credential may have of that is a quarter; what is not proven, three quarters together
	knownFor               = 10 * time.Second // that the answer of Config.Workloads stands
	forgetAfter            = time.Minute      // without streams; every pace is as at the beginning by then
)

// Ledger counts. Safe for concurrent use.
type Ledger struct {
	cfg Config

	mu       sync.Mutex // a leaf
	accounts map[string]*account
	idle     list.List // of *credential: without streams, those that are so for longest first
	held     int       // bytes of messages, see Entry.Hold
}

// account is what an identity has.
type account struct {
	identity       string
	streams        int
	unbound        int // of these, of credentials that are bound to no Pod
	credentials    map[string]*credential
	heavy          map[*credential]struct{} // those that are not light
	spent          int                      // bytes of names, beside what is free
	unproven       int                      // of these
	held           int                      // bytes of messages, see Entry.Hold
	asks           int
	joins          pace
	blames         pace
	unprovenBlames pace                    // of these
	work           pace                    // of connections that are not proven
	known          map[netip.Addr]struct{} // never changed
	knownAt        time.Time
}

// credential is one of an account.
type credential struct {
	name      string
	account   *account
	streams   list.List             // of *Entry, the oldest first
	workloads map[string]*list.List // by node id; of *Entry, in the same way
	spent     int
	held      int // bytes of messages, see Entry.Hold
	joins     pace
	blames    pace
	work      pace
	place     *list.Element // in Ledger.idle
	idleAt    time.Time
}

// Entry is one stream's. The methods of a nil Entry allow everything: it is of nobody.
type Entry struct {
	ledger     *Ledger
	credential *credential
	holder     Holder
	end        func(error)
	place      *list.Element // in credential.streams; nil: it has left, or lost its place
	workload   string        // node id
	among      *list.Element // in credential.workloads
	spent      int           // bytes of names
	held       int           // bytes of messages, see Entry.Hold
	dropped    bool          // these count no more
}

// New makes an empty ledger.
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

// Enter gives a stream a place; end is called, from any goroutine, when another one takes it. The error matches ErrExhausted, and
// says what the identity has.
func (l *Ledger) Enter(h Holder, end func(error)) (*Entry, error) {
	l.learn(h.Identity, func(a *account) bool { return a.streams >= l.cfg.Least/2 })
	e := &Entry{ledger: l, holder: h, end: end}
	l.mu.Lock()
	c := l.credential(h)
	loser, err := l.loser(c, e)
	if err != nil {
		if c.streams.Len() == 0 && c.place == nil {
			l.rests(c)
		}
		l.mu.Unlock()
		return nil, err
	}
	if loser != nil {
		loser.remove()
	}
	l.add(c, e)
	oldest := (*Entry)(nil)
	if h.Pod { // whatever its node ids are
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

// Node says which node the stream is of. Where its workload has too many streams then, the oldest of them ends: a client that
// reconnects is never kept out by what is left of its connections.
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

// Leave gives everything back. It may be called again.
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

// Spend asks for bytes of names of which there is nothing, and says how many are granted; negative: it gives bytes back.
func (e *Entry) Spend(bytes int) (granted int) {
	if e == nil {
		return bytes
	}
	l := e.ledger
	l.learn(e.holder.Identity, func(a *account) bool { return a.spent >= l.cfg.Names/4 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.place == nil {
		return min(bytes, 0) // its stream ends, and what it has was given back
	}
	return e.spend(bytes)
}

// Join says whether the stream may have a view planned for it now; else the error, which matches ErrExhausted, says why it may
// not. Each credential has a pace of its own, and what is beyond it is of the identity's.
func (e *Entry) Join() error {
	if e == nil {
		return nil
	}
	l := e.ledger
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	c, a := e.credential, e.credential.account
	if c.joins.take(now, joinsBurst, joinsEvery) {
		return nil
	}
	if most := l.most(a); a.joins.take(now, most, joinsPeriod/time.Duration(most)) {
		return nil
	}
	return fmt.Errorf("%w: its streams join too often", ErrExhausted)
}

// Ask says whether a question may be answered now; done ends it. Else an error, ErrExhausted.
func (e *Entry) Ask() (done func(), err error) {
	if e == nil {
		return func() {}, nil
	}
	l, a := e.ledger, e.credential.account
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.asks >= l.cfg.Asks {
		return nil, fmt.Errorf("%w: %d of its questions are being answered", ErrExhausted, a.asks)
	}
	a.asks++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.asks--
	}), nil
}

// Blame says whether the objects may be looked for that made something which the client refuses: an identity has a pace, of which one
// credential has a quarter at most, so that one Pod does not take what the others of its account have.
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
	if !a.proven(e.holder) && !a.unprovenBlames.take(now, blamesBurst*(blamesShare-1)/blamesShare, blamesEvery*blamesShare/(blamesShare-1)) {
		return false
	}
	return c.blames.take(now, blamesBurst/blamesShare, blamesEvery*blamesShare) && a.blames.take(now, blamesBurst, blamesEvery)
}

// Tick forgets credentials that have had no streams for long. Call it every second or so; the work is that of what is forgotten.
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

// Held is how many bytes of messages are kept, of all identities (Entry.Hold).
func (l *Ledger) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// Count is what an identity has: streams, credentials (also those that had streams a moment ago), and bytes of names.
func (l *Ledger) Count(identity string) (streams, credentials, names int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[identity]
	if a == nil {
		return 0, 0, 0
	}
	return a.streams, len(a.credentials), a.spent
}
