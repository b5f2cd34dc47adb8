package plan

import (
	"context"
	"slices"
	"time"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// intake decides which of the source's edits are planned now. It leaves out records for which there is no memory
// (room), and delays edits of large hosts (pace). While it keeps edits back, it makes the snapshots that are planned.
type intake struct {
	room   *room
	pace   pace
	source *mirror.Snapshot // the newest snapshot of the source
	last   *mirror.Snapshot // the newest snapshot that was returned to be planned
}

func newIntake(limit int) *intake {
	return &intake{room: newRoom(limit), source: mirror.Empty(), last: mirror.Empty()}
}

// step returns the part of a change that is planned now.
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

// advance applies edits to the last planned snapshot. If no edits are kept back, the result is the source's snapshot.
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

// Resize sets Config.Room of the running loop to the given number of KiB. Records that are left out are planned if
// there is room for them now. Planned records stay planned. If the old or the new value is 0, nothing changes. The
// error is the context's, an error after a panic, or an error because the loop has ended.
func (l *Loop) Resize(ctx context.Context, kib int) error {
	return l.call(ctx, func() {
		i := l.intake
		if edits := i.room.resize(kib, i.last, i.source); len(edits) > 0 {
			l.follow(l.accept(i.advance(edits, time.Time{})))
		}
	})
}

// release plans the edits of the next large host that is due. It returns the time until the next one is due.
func (l *Loop) release(now time.Time) time.Duration {
	i := l.intake
	if edits := i.pace.next(now); len(edits) > 0 {
		l.follow(l.accept(i.advance(i.room.admit(edits, i.last, i.source), time.Time{})))
	}
	return i.pace.due(now)
}

// Each change of a host with very many endpoints takes as long to plan as changes of hundreds of other hosts. All
// endpoints of the host are then sent to proxies. So the edits of a host with largeHost endpoints or more are planned
// at most once in pacePerHost. Large hosts are planned one at a time, with pacePause in between. Namespaces alternate,
// and so do the hosts of a namespace. The edits of large hosts are planned like edits of configuration.
const (
	largeHost   = 2000 // endpoints
	pacePerHost = time.Second
	pacePause   = 250 * time.Millisecond
)

// pace delays edits of large hosts. It has no clock, so callers pass the time.
type pace struct {
	held   map[model.Key]mirror.Edit // the merged edit of each waiting record
	spaces []*hostQueue              // in the order of turns; each has a host
	passed map[string]time.Time      // host -> time of its last turn
	at     time.Time                 // of the last turn of any host
}

// hostQueue lists the large hosts of one namespace that wait.
type hostQueue struct {
	namespace string
	hosts     []string // in the order of turns
}

// large reports whether an edit changes Endpoints of a host that has largeHost or more endpoints in a snapshot.
// Endpoints in other namespaces do not count, so no namespace can make a host of another namespace large.
func large(e mirror.Edit, s *mirror.Snapshot) bool {
	if e.Key().Kind != model.KindEndpoints || s == nil {
		return false
	}
	for _, r := range records(e) {
		for _, h := range model.HostsOf(r) {
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

// firstHost returns the first host of an edit, by which the edit is queued.
func firstHost(e mirror.Edit) string {
	for _, r := range records(e) {
		if hosts := model.HostsOf(r); len(hosts) > 0 {
			return hosts[0]
		}
	}
	return ""
}

// admit queues the edits that have to wait. It returns the other edits, and the queued edits of the host whose turn is
// next, if it is due.
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

// waiting reports whether an edit of the record waits.
func (p *pace) waiting(key model.Key) bool { _, is := p.held[key]; return is }

// hold queues an edit, merged with a waiting one of the same record.
func (p *pace) hold(e mirror.Edit) {
	if p.held == nil {
		p.held, p.passed = map[model.Key]mirror.Edit{}, map[string]time.Time{}
	}
	key := e.Key()
	if was, is := p.held[key]; is {
		e = was.Then(e)
	}
	if e.Old == nil && e.New == nil { // the record was created and deleted while it waited
		delete(p.held, key)
		return
	}
	p.held[key] = e
	namespace, host := key.Namespace, firstHost(e)
	i := slices.IndexFunc(p.spaces, func(t *hostQueue) bool { return t.namespace == namespace })
	if i < 0 {
		i = len(p.spaces)
		p.spaces = append(p.spaces, &hostQueue{namespace: namespace})
	}
	if t := p.spaces[i]; !slices.Contains(t.hosts, host) {
		t.hosts = append(t.hosts, host)
	}
}

// next removes and returns the edits of the host whose turn is next. The result is empty if no host is due.
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
			if key.Namespace == t.namespace && firstHost(e) == host {
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

// due returns the time until the next host is due, at most an hour.
func (p *pace) due(now time.Time) time.Duration {
	wait := time.Hour
	for _, t := range p.spaces {
		for _, h := range t.hosts {
			wait = min(wait, max(pacePause-now.Sub(p.at), pacePerHost-now.Sub(p.passed[h])))
		}
	}
	return max(wait, 0)
}

// forget drops the times of hosts that may have a turn at once.
func (p *pace) forget(now time.Time) {
	for h, at := range p.passed {
		if now.Sub(at) >= pacePerHost {
			delete(p.passed, h)
		}
	}
}
