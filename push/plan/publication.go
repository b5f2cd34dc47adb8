package plan

import (
	"time"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Publication describes a finished plan, before the streams of the changed proxies are notified. It is valid only
// during the call of Config.Publishing, and must not be modified.
type Publication struct {
	Path Path // Fast for a plan of endpoints, Slow for a plan of configuration
	// First and Last are the store's revisions of the first and the last change whose edits were planned. They are 0
	// for a plan that only publishes a newer revision.
	First, Last int64
	// Since is the time when the leader wrote the earliest of these changes, by the leader's clock. It is zero if this
	// time is unknown.
	Since time.Time
	// Edits are the planned edits of records. If both paths plan an edit, it is in a Publication of each path.
	Edits []mirror.Edit
	// Moved lists the proxies whose sets of resources changed, or that got another view. A view groups the proxies with
	// equal configuration. Proxies of one view are adjacent, except for proxies that got another view. After a panic of
	// the plan, Moved lists all proxies, in no order.
	Moved []Moved
}

// Objects returns the keys of the edited records, in the order of the edits. The caller owns the slice.
func (p Publication) Objects() []model.Key {
	keys := make([]model.Key, len(p.Edits))
	for i, e := range p.Edits {
		keys[i] = e.Key()
	}
	return keys
}

// Views returns the number of views (groups of proxies with equal configuration) in Moved, by namespace. The map is
// never nil, and the caller owns it. Views must be called during Config.Publishing.
func (p Publication) Views() map[string]int {
	counts := map[string]int{}
	var last *planned
	seen := map[*planned]bool{}
	for _, m := range p.Moved {
		of := m.Handle.planned.Load()
		if of != last && !seen[of] { // most proxies follow a proxy of the same view
			counts[m.Handle.Node.Namespace]++
			seen[of] = true
		}
		last = of
	}
	return counts
}

// publishing calls Config.Publishing.
func (l *Loop) publishing(path Path, of span, edits []mirror.Edit, moved []Moved) {
	if l.cfg.Publishing != nil {
		l.watchPlanned.Call(func() {
			l.cfg.Publishing(Publication{Path: path, First: of.first, Last: of.last, Since: of.since, Edits: edits, Moved: moved})
		})
	}
}

// span is the range of the store's revisions to which waiting edits belong. The zero span means that no edits wait. The
// field since is the time when the leader wrote the earliest change, or zero if it is unknown.
type span struct {
	first, last int64
	since       time.Time
}

// spanOf returns the span of a change.
func spanOf(c mirror.Change) span {
	return span{c.New.Revision(), c.New.Revision(), c.Committed}
}

// add extends a span by another span.
func (s *span) add(o span) {
	switch {
	case o.last == 0:
	case s.last == 0:
		*s = o
	default:
		s.first, s.last = min(s.first, o.first), max(s.last, o.last)
		if s.since.IsZero() || !o.since.IsZero() && o.since.Before(s.since) {
			s.since = o.since
		}
	}
}

// take returns a span and empties it.
func (s *span) take() (taken span) {
	taken, *s = *s, span{}
	return taken
}
