// Package changes follows each change of configuration through one process, from its event to the last acknowledgement.
// It logs a line for each change, and stores the times of the newest commits for tools that measure from outside.
//
// Owns: changes in progress, and a bounded list of the newest commits.
// Reads: the numbers of built resources.
// Never: decides anything.
package changes

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// Log writes one line for each change of configuration: its objects, the numbers of built resources and affected
// proxies, and the time from the event to the last acknowledgement. Changes that arrive while another change is in
// progress are added to the same line. There are at most two such lines per second. All methods except Serves and Run
// are safe for concurrent use.
type Log struct {
	log   *slog.Logger
	built func() buildCounts // numbers of built resources; nil: this process serves no proxies
	busy  func() bool        // reports whether proxies wait for their turn to be served; nil if built is nil
	wake  chan struct{}

	mu     sync.Mutex // guards the fields below
	open   *change    // nil: no change is in progress
	spoke  time.Time  // time of the last line
	events struct {   // commits of this process that the mirror (its copy of the store) does not have yet
		revision int64     // the newest of these commits
		oldest   time.Time // time of the oldest event in these commits; zero: no events
	}
	mirrored int64 // revision of the newest snapshot
	seed     maphash.Seed
}

// change is one or several changes in progress.
type change struct {
	began, opened  time.Time // times of the event, and of its arrival in this process
	last           time.Time // time of the last progress
	first, newest  int64     // the oldest and the newest revision
	config         int64     // the newest revision that changed more than endpoints
	changes        int
	objects        map[model.Key]struct{} // at most maxObjects
	names          []string               // names of the first objects, at most namedObjects
	before         buildCounts
	planned, whole int64 // newest revisions that were planned: on any path, and on the slow path (plan.Slow)
	proxies        int
	acknowledged   map[uint64]struct{} // hashes of node IDs, at most maxProxies
	responses      [xds.NumTypes]int
	acked          time.Time // time of the last acknowledgement, or of the write; zero: neither has happened
}

type buildCounts struct {
	types     [xds.NumTypes]int64
	fragments int64
}

// Limits of the content of one log line, and of the rate of lines.
const (
	maxObjects    = 1000
	namedObjects  = 4
	maxProxies    = 1 << 16
	settledAfter  = 200 * time.Millisecond // a change without progress for this time is done
	changeAtMost  = 5 * time.Second        // a line is written after this time in any case
	changesEvery  = time.Second / 2        // the shortest time between two lines
	changesLookAt = 50 * time.Millisecond  // interval of calls of step
)

// NewLog returns a Log whose lines go to log. Until Serves is called, it is the Log of a process that serves no
// proxies.
func NewLog(log *slog.Logger) *Log {
	return &Log{log: log, wake: make(chan struct{}, 1), seed: maphash.MakeSeed()}
}

// Serves configures the Log of a process that serves proxies. In such a process, a change ends once all affected
// proxies are planned, no proxy waits for its turn to be served, and nothing has happened for 200 ms. It ends after 5 s
// in any case. The argument pool counts the built resources. The function busy reports whether any proxy waits for its
// turn. Run calls busy under the Log's lock. Serves must be called before all other methods.
func (c *Log) Serves(pool *pool.Pool, busy func() bool) {
	c.busy = busy
	c.built = func() (n buildCounts) {
		for t := range xds.NumTypes {
			n.types[t] = pool.Builds(t)
		}
		n.fragments = pool.Fragments()
		return n
	}
}

// Run writes the lines. It blocks until ctx ends, and returns the error of ctx. A change that is in progress when ctx
// ends is not written.
func (c *Log) Run(ctx context.Context) error {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		tick := time.NewTicker(changesLookAt)
		for open := true; open && ctx.Err() == nil; {
			select {
			case now := <-tick.C:
				open = c.step(now)
			case <-ctx.Done():
			}
		}
		tick.Stop()
	}
}

// begin returns the change in progress, or a new one. The caller holds the lock.
func (c *Log) begin(now, began time.Time, revision int64) *change {
	if c.open == nil {
		c.open = &change{began: began, opened: now, first: revision, objects: map[model.Key]struct{}{}, acknowledged: map[uint64]struct{}{}}
		if c.built != nil {
			c.open.before = c.built()
		}
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	ch := c.open
	ch.changes, ch.newest, ch.last = ch.changes+1, revision, now
	if began.Before(ch.began) {
		ch.began = began
	}
	return ch
}

func (ch *change) touches(key model.Key) {
	if _, known := ch.objects[key]; known || len(ch.objects) == maxObjects {
		return
	}
	if ch.objects[key] = struct{}{}; len(ch.names) < namedObjects {
		ch.names = append(ch.names, key.String())
	}
}

// Wrote records that this process committed a batch at a revision. The argument event is the time of the batch's oldest
// event. In a process that serves no proxies, a batch that is not empty begins a change, or joins the change in
// progress. In a process that serves proxies, Published begins changes, and Wrote only provides the times of events.
func (c *Log) Wrote(revision int64, event time.Time, batch kv.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch {
	case c.built == nil && batch.Len() > 0:
		ch := c.begin(now, event, revision)
		for _, r := range batch.Puts {
			ch.touches(r.Meta().Key)
		}
		for _, key := range batch.Deletes {
			ch.touches(key)
		}
		ch.acked = now
	case c.open != nil && revision >= c.open.first && revision <= c.open.newest: // the mirror had the revision before this call
		if event.Before(c.open.began) {
			c.open.began = event
		}
	case c.built != nil && revision > c.mirrored:
		if c.events.revision = revision; c.events.oldest.IsZero() || event.Before(c.events.oldest) {
			c.events.oldest = event
		}
	}
}

// Published records that the mirror (the copy of the store) has the newer snapshot m.New. The edits of the snapshot
// begin a change, or join the change in progress. Without edits there is no change. The first snapshot of a process is
// logged at once, as a summary.
func (c *Log) Published(m mirror.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mirrored = m.New.Revision()
	now, event := time.Now(), c.events.oldest
	if c.events.revision <= c.mirrored {
		c.events.revision, c.events.oldest = 0, time.Time{}
	} else {
		event = time.Time{}
	}
	if m.Old.Revision() == 0 {
		c.log.Info("configuration is complete", obs.KeyRevision, m.New.Revision(), obs.KeyObjects, snapshotCounts(m.New))
		return
	}
	if len(m.Edits) == 0 {
		return
	}
	began := m.Committed
	if began.IsZero() {
		began = now
	}
	if !event.IsZero() && event.Before(began) {
		began = event
	}
	ch := c.begin(now, began, m.New.Revision())
	for _, e := range m.Edits {
		key := e.Key()
		if ch.touches(key); !key.Kind.FollowsWorkloads() {
			ch.config = ch.newest
		}
	}
}

// Planned records that the planner has planned up to a revision on one path. The path is plan.Fast (for changes of
// endpoints only) or plan.Slow. The argument moved is the number of proxies whose configuration changed. Planned
// ignores revisions before the change in progress.
func (c *Log) Planned(revision int64, path plan.Path, moved int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.open
	if ch == nil || revision < ch.first {
		return
	}
	ch.last, ch.planned = time.Now(), max(ch.planned, revision)
	if path == plan.Slow {
		ch.whole = max(ch.whole, revision)
	}
	ch.proxies = max(ch.proxies, moved)
}

// Acknowledged records that the proxy with the id node has acknowledged a response of type t at a revision. It ignores
// revisions before the change in progress.
func (c *Log) Acknowledged(t xds.Type, node string, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.open
	if ch == nil || revision < ch.first {
		return
	}
	now := time.Now()
	ch.last, ch.acked = now, now
	ch.responses[t]++
	if len(ch.acknowledged) < maxProxies {
		ch.acknowledged[maphash.String(c.seed, node)] = struct{}{}
	}
}

// step writes the line of the change in progress if the change is finished or lasts too long. It returns false if no
// change is in progress afterwards.
func (c *Log) step(now time.Time) (open bool) {
	c.mu.Lock()
	ch := c.open
	if ch == nil {
		c.mu.Unlock()
		return false
	}
	done := c.built == nil || ch.planned >= ch.newest && ch.whole >= ch.config && !c.busy()
	if !(done && now.Sub(ch.last) >= settledAfter || now.Sub(ch.opened) >= changeAtMost) || now.Sub(c.spoke) < changesEvery {
		c.mu.Unlock()
		return true
	}
	c.open, c.spoke = nil, now
	c.mu.Unlock()
	c.write(ch, done)
	return false
}

func (c *Log) write(ch *change, done bool) {
	objects := strings.Join(ch.names, ", ")
	switch more := len(ch.objects) - len(ch.names); {
	case len(ch.objects) == maxObjects:
		objects += fmt.Sprintf(" and %d or more", more)
	case more > 0:
		objects += fmt.Sprintf(" and %d more", more)
	}
	last, message := ch.acked, "configuration written"
	if last.IsZero() {
		last = ch.last
	}
	line := []any{obs.KeyRevision, ch.newest, obs.KeyChanges, ch.changes, obs.KeyObjects, objects}
	if c.built != nil {
		message = "configuration applied"
		if !done {
			message = "configuration is being applied"
		}
		after := c.built()
		line = append(line, obs.KeyBuilt, after.since(ch.before), obs.KeyProxies, ch.proxies, obs.KeyAcknowledged, len(ch.acknowledged),
			obs.KeyResponses, amounts(ch.responses[:], func(t int) string { return xds.Type(t).String() }))
	}
	c.log.Info(message, append(line, obs.KeyTook, last.Sub(ch.began).Round(time.Millisecond/10))...)
}

// since describes the differences between the counts in b and the earlier counts in base, by type.
func (b buildCounts) since(base buildCounts) string {
	for t := range b.types {
		b.types[t] -= base.types[t]
	}
	all := amounts(b.types[:], func(t int) string { return xds.Type(t).Noun() })
	if n := b.fragments - base.fragments; n > 0 {
		all = strings.TrimPrefix(fmt.Sprintf("%s, virtual host %d", all, n), ", ")
	}
	return all
}

// snapshotCounts describes the number of records of each kind in a snapshot.
func snapshotCounts(s *mirror.Snapshot) string {
	kinds := model.Kinds()
	counts := make([]int, len(kinds))
	for i, kind := range kinds {
		counts[i] = s.Len(kind)
	}
	return amounts(counts, func(i int) string { return kinds[i].String() })
}

// amounts lists the positive counts: "Service 3, Sidecar 1".
func amounts[N int | int64](counts []N, name func(i int) string) string {
	var parts []string
	for i, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name(i), n))
		}
	}
	return strings.Join(parts, ", ")
}
