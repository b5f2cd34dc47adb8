// Package ledger counts the proxies that each published plan changed, and the times after which these proxies
// acknowledged the change. The counts show when a change of the store was delivered, and whether acknowledgements are
// missing.
//
// Owns: the newest changes of this replica, in bounded number, and the counts of their acknowledgements.
// Reads: nothing; the plan loop calls Begin and Seal, and streams call the methods of Debts.
// Never: knows the name of a proxy (each stream has its own Debts); writes to etcd; blocks the plan loop or a stream.
//
// # One change
//
// A Change is one publication of the plan loop, which plans the resources of all proxies. A Change may contain the
// edits of several revisions of the store. The loop calls Begin before the streams are notified. Each notified stream
// adds a debt (a missing acknowledgement) to the Part of its namespace. Once the client is up to date, the stream pays
// all debts that it had before it read its newest set of resources. The loop calls Seal when all streams are notified.
// A publication of endpoints that changes no proxy is not recorded.
//
// The cost for a stream is one append and one payment for each change of its view. The streams share a lock only when
// the last client answers a change and a caller waits for this event. Each namespace has its own Part, because a tenant
// sees only the counts of its own namespaces.
package ledger

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/model"
)

// Lane distinguishes changes of configuration from changes of endpoints alone. Each lane has its own bounds, so changes
// of endpoints do not evict changes of configuration.
type Lane uint8

// The lanes.
const (
	Config Lane = iota
	Endpoints
	numLanes
)

// String returns the lane's name in the API: "endpoints" or "config".
func (l Lane) String() string {
	if l == Endpoints {
		return "endpoints"
	}
	return "config"
}

// Bounds of the changes of one lane.
const (
	maxChanges = 256
	maxBytes   = 4 << 20 // estimated
	maxObjects = 16      // listed objects of one namespace in a change
	maxSpaces  = 64      // namespaces with listed objects in a change
)

// Plan describes a publication of the plan loop. Begin does not change it.
type Plan struct {
	Lane Lane
	// Span contains the revisions of all edits. If its Since is zero (unknown) or in the future, the present time is
	// used.
	model.Span
	// Spans contains, by namespace, the revisions of the namespace's edits. No span is empty. Namespaces whose
	// revisions are unknown are missing.
	Spans map[string]model.Span
	// Objects contains the objects of the edits, sorted.
	Objects []model.Key
	// Views is the number of changed views (configurations that several proxies share) by the namespace of their
	// proxies.
	Views map[string]int
}

// Change is one recorded publication. Begin creates it.
type Change struct {
	lane    Lane
	span    model.Span            // of all edits; Since is never zero
	spans   map[string]model.Span // of the edits of a namespace, where they differ from span
	objects []objects             // at most maxSpaces
	others  map[string]int        // number of objects by namespace, for namespaces that are not listed
	parts   map[string]*Part
	shares  []*share // of tenants, if the ledger reports them
	bytes   int
	left    atomic.Int64 // number of unpaid debts, plus one until the change is sealed
	sealed  atomic.Bool  // all streams are notified
	evicted atomic.Bool
	of      *Ledger
}

// objects are the changed objects of one namespace.
type objects struct {
	Namespace string
	Keys      []model.Key // at most maxObjects
	More      int         // further objects of the namespace
}

// First returns the store's revision of the first edit.
func (c *Change) First() int64 { return c.span.First }

// Part contains the counts of one namespace in a change.
type Part struct {
	change    *Change
	share     *share // of the namespace's tenant; nil: not reported
	namespace string
	views     int
	affected  atomic.Int64
	refused   atomic.Int64
	gone      atomic.Int64
	took      histogram     // times since the change's first edit
	own       *histogram    // times since the tenant's first edit, which is later than the change's; nil: equal to took
	late      time.Duration // of the tenant's first edit, after the change's
}

// Ledger contains the newest changes. New creates it. It is safe for concurrent use, with two exceptions: only the plan
// loop calls Begin and Seal, and Report must be called before them. A nil Ledger ignores Begin, Seal and Debt. Other
// methods of a nil Ledger must not be called.
type Ledger struct {
	current  atomic.Pointer[Change] // being published; nil between publications
	notified atomic.Int64
	watched  atomic.Bool
	reports  *reports // nil: deliveries are not reported

	mu      sync.Mutex // guards the fields below; no other lock is acquired while it is held
	lanes   [numLanes]lane
	changed chan struct{}
}

// lane contains the changes of one lane, oldest first.
type lane struct {
	changes []*Change
	bytes   int
}

// New returns an empty ledger.
func New() *Ledger { return &Ledger{changed: make(chan struct{})} }

// Begin records a publication before its streams are notified. Publications of endpoints without changed views are not
// recorded. The oldest changes above the bounds of the lane are evicted. If p.Last is lower than the last revision of
// the lane's newest change (etcd was restored), all earlier changes of the lane are evicted.
func (l *Ledger) Begin(p Plan) {
	if l == nil || p.Lane == Endpoints && len(p.Views) == 0 {
		return
	}
	c := newChange(l, p)
	l.mu.Lock()
	own := &l.lanes[p.Lane]
	if n := len(own.changes); n > 0 && own.changes[n-1].span.Last > c.span.Last { // etcd was restored: revisions begin again
		own.clear()
	}
	own.add(c)
	l.mu.Unlock()
	l.current.Store(c)
}

// newChange returns the change of a publication.
func newChange(l *Ledger, p Plan) *Change {
	c, now := &Change{lane: p.Lane, span: p.Span, of: l}, time.Now()
	c.parts = make(map[string]*Part, len(p.Views))
	if c.span.Since.IsZero() || c.span.Since.After(now) {
		c.span.Since = now
	}
	c.narrow(p, now)
	c.left.Store(1)
	for namespace, views := range p.Views {
		c.parts[namespace] = &Part{change: c, namespace: namespace, views: views}
	}
	if l.reports != nil {
		c.measure(l.reports.tenant)
	}
	if p.Lane == Config {
		c.divide(l.reports)
	}
	c.list(p.Objects)
	c.bytes += 256 + 384*len(c.parts) + 128*len(c.spans) + 64*len(c.others)
	for _, o := range c.objects {
		c.bytes += 128 + 160*len(o.Keys)
	}
	return c
}

// list groups sorted objects by namespace, within the bounds.
func (c *Change) list(all []model.Key) {
	at := map[string]int{}
	for _, key := range all {
		i, known := at[key.Namespace]
		if !known {
			if len(c.objects) == maxSpaces {
				if c.others == nil {
					c.others = map[string]int{}
				}
				c.others[key.Namespace]++
				continue
			}
			i = len(c.objects)
			at[key.Namespace] = i
			c.objects = append(c.objects, objects{Namespace: key.Namespace})
		}
		if o := &c.objects[i]; len(o.Keys) < maxObjects {
			o.Keys = append(o.Keys, key)
		} else {
			o.More++
		}
	}
}

// add appends a change, and evicts the oldest ones above the bounds.
func (l *lane) add(c *Change) {
	l.changes, l.bytes = append(l.changes, c), l.bytes+c.bytes
	n := 0
	for n < len(l.changes)-1 && (len(l.changes)-n > maxChanges || l.bytes > maxBytes) {
		l.changes[n].evict()
		l.bytes -= l.changes[n].bytes
		n++
	}
	l.changes = slices.Delete(l.changes, 0, n)
}

// clear evicts all changes.
func (l *lane) clear() {
	for _, c := range l.changes {
		c.evict()
	}
	*l = lane{}
}

// evict marks a change as evicted, and reports its deliveries to tenants in their present state.
func (c *Change) evict() {
	c.evicted.Store(true)
	for _, s := range c.shares {
		s.report()
	}
}

// Seal ends the publication that Begin began, if any. revision is the store's revision up to which every stream has
// been notified.
func (l *Ledger) Seal(revision int64) {
	if l == nil {
		return
	}
	c := l.current.Swap(nil)
	if c != nil {
		c.sealed.Store(true)
		c.left.Add(-1)
		for _, s := range c.shares {
			s.settled()
		}
	}
	if l.notified.Swap(revision) != revision || c != nil {
		l.announce()
	}
}

// Debt returns the Part for the call of Debts.Owe by a notified stream of a namespace. It returns nil if no recorded
// change is being published, or if the change affects no view of the namespace.
func (l *Ledger) Debt(namespace string) *Part {
	if l == nil {
		return nil
	}
	if c := l.current.Load(); c != nil {
		return c.parts[namespace]
	}
	return nil
}

// Notified returns the store's revision up to which all streams are notified; 0 before the first call of Seal.
func (l *Ledger) Notified() int64 { return l.notified.Load() }

// Changed returns a channel that is closed at the next event that may end a wait. Such an event is the last answer to a
// change, the end of a recorded publication, or a new result of Notified. Callers call Changed before they read the
// state, so that no event is missed.
func (l *Ledger) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched.Store(true)
	return l.changed
}

// announce closes the channel of Changed, if a caller waits for it.
func (l *Ledger) announce() {
	if !l.watched.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched.Store(false)
	close(l.changed)
	l.changed = make(chan struct{})
}

// settled ends one debt.
func (p *Part) settled() {
	p.share.settled()
	if p.change.left.Add(-1) == 0 {
		p.change.of.announce()
	}
}
