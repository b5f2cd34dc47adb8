package plan

import (
	"slices"
	"time"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// intake decides which of the source's edits are planned by now: not those that there is no memory for (room), and those of large hosts in turns (pace).
// While it keeps some back, the snapshots that are planned are its own.
type intake struct {
	room   *room
	pace   pace
	source *mirror.Snapshot // the newest
	last   *mirror.Snapshot // as planned
}

func newIntake(limit int) *intake {
	return &intake{room: newRoom(limit), source: mirror.Empty(), last: mirror.Empty()}
}

// step returns what is planned of a change by now.
func (i *intake) step(c mirror.Change, now time.Time) mirror.Change {
	own := i.last != i.source
	i.source = c.New
	edits := i.room.admit(i.pace.admit(c.Edits, i.last, c.New, now), i.last, c.New)
	if !own && !i.keeps() {
		i.last = c.New
		return c
	}
	return i.advance(edits, c.Committed)
}

// keeps reports whether some edits are kept back.
func (i *intake) keeps() bool { return len(i.room.out)+len(i.pace.held) > 0 }

// advance makes edits on what is planned; where none are kept back any more, that comes to the source's own snapshot.
func (i *intake) advance(edits []mirror.Edit, committed time.Time) mirror.Change {
	c := mirror.Change{Old: i.last, Committed: committed}
	for _, e := range edits {
		e.Old, _ = i.last.Get(e.Key())
		if hashOf(e.Old) != hashOf(e.New) {
			c.Edits = append(c.Edits, e)
		}
	}
	slices.SortFunc(c.Edits, func(a, b mirror.Edit) int { return a.Key().Compare(b.Key()) })
	if c.New = i.source; i.keeps() {
		c.New = i.last.With(c.Edits, i.source)
	}
	i.last = c.New
	return c
}

// release has the edits of a large host planned whose turn has come, and says how long to wait for the next turn.
func (l *Loop) release(now time.Time) time.Duration {
	i := l.intake
	if edits := i.pace.next(now); len(edits) > 0 {
		l.follow(l.accept(i.advance(i.room.admit(edits, i.last, i.source), time.Time{})))
	}
	return i.pace.due(now)
}

// A host of very many endpoints takes as long to plan as hundreds of others, whichever of them changes, and proxies are sent all of it. So
// hosts from largeHost on have their edits planned at most once in pacePerHost, one of them at a time with pacePause in between: namespaces in turns,
// and the hosts of one in turns. They are sent as configuration.
const (
	largeHost   = 2000 // endpoints
	pacePerHost = time.Second
	pacePause   = 250 * time.Millisecond
)

// pace has edits of large hosts wait for their turns. It has no clock.
type pace struct {
	held   map[model.Key]mirror.Edit // the newest of each record
	spaces []*turns                  // whose turn is next first; none is empty
	passed map[string]time.Time      // hosts, when each had its turn
	at     time.Time                 // of the last turn
}

// turns is the large hosts of one namespace that wait.
type turns struct {
	namespace string
	hosts     []string // whose turn is next first
}

// large reports whether an edit is of endpoints of a host that has very many in a snapshot. Those that other namespaces state for it do not count: nobody makes
// another's host large.
func large(e mirror.Edit, s *mirror.Snapshot) bool {
	if e.Key().Kind != model.KindEndpoints || s == nil {
		return false
	}
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			sum := 0
			for slice := range s.ByHost(model.KindEndpoints, h) {
				if slice.Meta().Key.Namespace != e.Key().Namespace {
					continue
				}
				if sum += len(slice.(*model.Endpoints).Spec.GetEndpoints()); sum >= largeHost {
					return true
				}
			}
		}
	}
	return false
}

// first names the hosts of an edit that waits.
func first(e mirror.Edit) string {
	for _, r := range records(e) {
		if hosts := input.HostsOf(r); len(hosts) > 0 {
			return hosts[0]
		}
	}
	return ""
}

// admit returns the edits that need not wait, and those whose turn it is.
func (p *pace) admit(edits []mirror.Edit, last, now *mirror.Snapshot, at time.Time) []mirror.Edit {
	waits := func(e mirror.Edit) bool {
		return e.Key().Kind == model.KindEndpoints && (p.waiting(e.Key()) || large(e, last) && large(e, now))
	}
	if !slices.ContainsFunc(edits, waits) {
		return edits
	}
	var through []mirror.Edit
	for _, e := range edits {
		if !waits(e) {
			through = append(through, e)
			continue
		}
		p.hold(e)
	}
	return append(through, p.next(at)...)
}

func (p *pace) waiting(key model.Key) bool { _, is := p.held[key]; return is }

func (p *pace) hold(e mirror.Edit) {
	if p.held == nil {
		p.held, p.passed = map[model.Key]mirror.Edit{}, map[string]time.Time{}
	}
	key := e.Key()
	if was, is := p.held[key]; is {
		e.Old = was.Old
	}
	if e.Old == nil && e.New == nil { // it came and went while it waited
		delete(p.held, key)
		return
	}
	p.held[key] = e
	namespace, host := key.Namespace, first(e)
	i := slices.IndexFunc(p.spaces, func(t *turns) bool { return t.namespace == namespace })
	if i < 0 {
		i = len(p.spaces)
		p.spaces = append(p.spaces, &turns{namespace: namespace})
	}
	if t := p.spaces[i]; !slices.Contains(t.hosts, host) {
		t.hosts = append(t.hosts, host)
	}
}

// next returns the edits of the host whose turn it is; none: it is nobody's yet.
func (p *pace) next(now time.Time) (edits []mirror.Edit) {
	if len(p.spaces) == 0 || now.Sub(p.at) < pacePause {
		return nil
	}
	for i, t := range p.spaces {
		k := slices.IndexFunc(t.hosts, func(h string) bool { return now.Sub(p.passed[h]) >= pacePerHost })
		if k < 0 {
			continue
		}
		host := t.hosts[k]
		t.hosts = slices.Delete(t.hosts, k, k+1)
		if p.spaces = slices.Delete(p.spaces, i, i+1); len(t.hosts) > 0 {
			p.spaces = append(p.spaces, t)
		}
		for key, e := range p.held {
			if key.Namespace == t.namespace && first(e) == host {
				edits = append(edits, e)
				delete(p.held, key)
			}
		}
		p.forget(now)
		p.at, p.passed[host] = now, now
		return edits
	}
	return nil
}

// due returns the time until the next turn.
func (p *pace) due(now time.Time) time.Duration {
	wait := time.Hour
	for _, t := range p.spaces {
		for _, h := range t.hosts {
			wait = min(wait, max(pacePause-now.Sub(p.at), pacePerHost-now.Sub(p.passed[h])))
		}
	}
	return max(wait, 0)
}

// forget drops hosts that may have a turn at once.
func (p *pace) forget(now time.Time) {
	for h, at := range p.passed {
		if now.Sub(at) >= pacePerHost {
			delete(p.passed, h)
		}
	}
}
