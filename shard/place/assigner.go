package place

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
)

// The pace of the ring. Who is gone is replaced at once; everything else waits until it has lasted.
const (
	writeEvery   = 2 * time.Second  // between two rings
	joinAfter    = 3 * time.Second  // a replica is ready for so long before it joins; doubled each time it was lost
	joinAtMost   = 5 * time.Minute  // but no longer than this
	forgiveAfter = 10 * time.Minute // a replica that stays for so long has not been lost before
	forgetAfter  = time.Hour        // of those that are away
	massHold     = 15 * time.Second // where more than half seem gone at once, etcd is the likelier culprit: wait so long
	unevenFor    = time.Minute      // a load is uneven for so long before shards move because of it
	departedFor  = time.Minute      // the load of a replica that went is remembered until its proxies are back
)

// assigner decides what the ring should be. It has no clock and no etcd; its methods are called by one goroutine.
type assigner struct {
	replicas      map[string]*replica
	wrote         time.Time // when the last ring was
	uneven        time.Time // since when; zero: it is even
	massive       time.Time // since when more than half are away; zero: they are not
	total         ring.Load // as of the last step
	departed      ring.Load // what it was when a replica went ...
	departedUntil time.Time // ... and until when that counts
	damper        damper
	alone         bool // whom the first ring names and who is not there has ended (LeaderConfig.Alone)
}

// replica is what the assigner remembers of one.
type replica struct {
	record  member.Record
	present bool
	ready   time.Time // since when; zero: it is not
	was     time.Time // ready, before it went
	left    time.Time
	lost    int       // how often it crashed while it was in the ring
	out     bool      // of the ring
	joined  time.Time // it, as this leader saw; zero: it did not
	flapped bool      // its going counted in the damper
	level   int       // of the damper when it became ready
}

// hold is how long a replica is ready before it joins.
func (r *replica) hold() time.Duration {
	return min(joinAfter<<min(r.lost, 10), joinAtMost)
}

// step sees the fleet beside the present ring (nil: none), and answers with the ring that should be: another one is to be
// written, the same is not. wake is when to step again at the latest, where nothing happens before.
func (a *assigner) step(now time.Time, fleet []member.Record, current *ring.Ring) (next *ring.Ring, wake time.Time) {
	a.see(now, fleet, current)
	wake = now.Add(unevenFor / 4)
	members, soon := a.members(now, current)
	if !soon.IsZero() {
		wake = earliest(wake, soon)
	}
	if len(members) == 0 {
		if a.vacated(current) {
			return ring.Vacate(current), wake
		}
		return current, wake // nobody to give anything to: what is there stands
	}
	load := a.load(now)
	if !slices.Equal(members, current.Members()) {
		if due := a.wrote.Add(writeEvery); now.Before(due) {
			return current, due
		}
		return ring.Assign(current, members, load), wake
	}
	if current.Imbalance(load) <= ring.Bound && !current.Resplit(load) {
		a.uneven = time.Time{}
		return current, wake
	}
	if a.uneven.IsZero() {
		a.uneven = now
	}
	if due := latest(a.uneven.Add(unevenFor), a.wrote.Add(unevenFor)); now.Before(due) {
		return current, earliest(wake, due)
	}
	a.uneven = now // where nothing can be done about it, it is not tried all the time
	return ring.Assign(current, members, load), wake
}

// vacated says whether all members of a ring have left in order: a ring that still named them would look, to the next leader,
// like one whose members have all crashed at once.
func (a *assigner) vacated(current *ring.Ring) bool {
	for _, m := range current.Members() {
		if r := a.replicas[m.Name]; r == nil || r.record.State != member.Leaving {
			return false
		}
	}
	return len(current.Members()) > 0
}

// written says that a ring was written.
func (a *assigner) written(now time.Time) { a.wrote, a.uneven, a.alone = now, time.Time{}, false }

// see remembers who came and went.
func (a *assigner) see(now time.Time, fleet []member.Record, current *ring.Ring) {
	if a.replicas == nil {
		a.replicas = map[string]*replica{}
	}
	before, went := a.total, false
	a.total = ring.Load{}
	present := map[string]bool{}
	for _, record := range fleet {
		present[record.Name] = true
		a.total.Add(record.Load)
		r := a.replicas[record.Name]
		if r == nil {
			r = &replica{}
			a.replicas[record.Name] = r
		}
		_, in := current.Member(record.Name)
		went = a.comes(now, r, record, in) || went
		r.record, r.present = record, true
	}
	for name, r := range a.replicas {
		_, in := current.Member(name)
		switch {
		case present[name]:
		case r.present:
			r.left = now
			a.flap(now, r, in)
			went = r.lose(in) || went
			r.present = false
		case now.Sub(r.left) > forgetAfter:
			delete(a.replicas, name)
		}
	}
	if went {
		if now.After(a.departedUntil) {
			a.departed = ring.Load{}
		}
		a.departed, a.departedUntil = greater(before, a.departed), now.Add(departedFor)
	}
}

// comes sees the record of one; what it says is whether it went meanwhile.
func (a *assigner) comes(now time.Time, r *replica, record member.Record, in bool) (went bool) {
	r.places(now, in)
	if restarted := r.present && r.record.Incarnation != record.Incarnation; restarted {
		a.flap(now, r, in)
		went = r.lose(in)
	} else if !r.present && in && r.record.Incarnation == record.Incarnation && !r.was.IsZero() {
		r.ready, r.lost = r.was, max(r.lost-1, 0) // it lost its lease for a moment, and served all the time
		a.unflap(r)
	}
	switch {
	case record.State != member.Ready:
		r.ready = time.Time{}
		if record.State == member.Leaving {
			a.flap(now, r, in)
			went = went || in
		}
	case r.ready.IsZero():
		r.ready, r.level = now, a.damper.level(now)
	case now.Sub(r.ready) > forgiveAfter:
		r.lost = 0
	}
	return went
}

// lose notes that a replica went; what it says is whether that matters.
func (r *replica) lose(inRing bool) bool {
	r.ready, r.was = time.Time{}, r.ready
	if inRing && r.record.State == member.Ready {
		r.lost++
	}
	return inRing
}

// members is who should be in the ring, in order of names, and when that may be more.
func (a *assigner) members(now time.Time, current *ring.Ring) (members []ring.Member, soon time.Time) {
	var away []ring.Member
	waiting := map[string]time.Time{}
	for name, r := range a.replicas {
		_, in := current.Member(name)
		switch join := r.ready.Add(r.hold()); {
		case !r.present || r.ready.IsZero():
		case in && r.lost == 0, !now.Before(join):
			members = append(members, r.record.Member())
		default:
			waiting[name] = join
		}
	}
	for _, m := range current.Members() {
		if r := a.replicas[m.Name]; !a.alone && (r == nil || !r.present && r.record.State != member.Leaving) {
			away = append(away, m)
		}
	}
	if len(away)*2 > len(current.Members()) {
		if a.massive.IsZero() {
			a.massive = now
		}
		if end := a.massive.Add(massHold); now.Before(end) {
			members, soon = append(members, away...), end
		}
	} else {
		a.massive = time.Time{}
	}
	for name, join := range waiting {
		if len(members) == 0 {
			members = append(members, a.bootstrap(waiting)...)
			break
		}
		if _, done := find(members, name); !done && (soon.IsZero() || join.Before(soon)) {
			soon = join
		}
	}
	slices.SortFunc(members, func(x, y ring.Member) int { return cmp.Compare(x.Name, y.Name) })
	a.damp(now, members, current)
	return members, soon
}

// bootstrap takes all that are ready, where there is nobody else.
func (a *assigner) bootstrap(waiting map[string]time.Time) (members []ring.Member) {
	for name := range waiting {
		members = append(members, a.replicas[name].record.Member())
	}
	return members
}

func find(members []ring.Member, name string) (ring.Member, bool) {
	i := slices.IndexFunc(members, func(m ring.Member) bool { return m.Name == name })
	if i < 0 {
		return ring.Member{}, false
	}
	return members[i], true
}

// load is what the fleet serves, and what it did serve where a replica went just now: its proxies are not back yet.
func (a *assigner) load(now time.Time) ring.Load {
	if now.After(a.departedUntil) {
		return a.total
	}
	return greater(a.total, a.departed)
}

// greater has the greater number of each part of two loads.
func greater(x, y ring.Load) ring.Load {
	both := ring.Load{Namespaces: maps.Clone(x.Namespaces), Rest: max(x.Rest, y.Rest)}
	if both.Namespaces == nil {
		both.Namespaces = map[string]ring.NamespaceLoad{}
	}
	for name, other := range y.Namespaces {
		n := both.Namespaces[name]
		workloads := maps.Clone(other.Workloads)
		for workload, streams := range n.Workloads {
			if workloads == nil {
				workloads = map[string]int{}
			}
			workloads[workload] = max(workloads[workload], streams)
		}
		both.Namespaces[name] = ring.NamespaceLoad{Streams: max(n.Streams, other.Streams), Workloads: workloads}
	}
	return both
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
