package place

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
)

// Pace of new rings. A ring assigns shards to replicas. If a replica is gone, the next ring reassigns its shards. Other
// changes must last for some time before they count.
const (
	writeEvery   = 2 * time.Second  // between two rings
	joinAfter    = 3 * time.Second  // from becoming ready to joining the ring; each crash of the replica doubles it
	joinAtMost   = 5 * time.Minute  // upper bound of the doubled joinAfter
	forgiveAfter = 10 * time.Minute // a replica's crashes are forgotten after it was ready this long
	forgetAfter  = time.Hour        // replicas that are away this long are forgotten
	massHold     = 15 * time.Second // pause if over half of the members seem gone; the cause may be etcd
	unevenFor    = time.Minute      // duration of uneven load before it makes shards move
	departedFor  = time.Minute      // for this time after a departure, the load before it counts: proxies are not back
)

// assigner decides the next ring. It reads no clock, and does not access etcd. One goroutine calls its methods.
type assigner struct {
	replicas      map[string]*replica
	wrote         time.Time // time at which the last ring was written
	uneven        time.Time // start of the present uneven load; zero: the load is even
	massive       time.Time // start of the time with over half of the members away; zero: fewer are away
	total         ring.Load // of all replicas at the last step
	departed      ring.Load // total load before the last departures of replicas
	departedUntil time.Time // end of the time in which departed counts
	damper        damper
	// alone is true if the ring members without a record have certainly ended (LeaderConfig.Alone), so that massHold
	// does not apply to them. It is false after the first write.
	alone bool
}

// replica is the assigner's memory of one replica.
type replica struct {
	record  member.Record
	present bool
	ready   time.Time // when the replica became ready; zero: it is not ready
	was     time.Time // value of ready before the replica left
	left    time.Time
	lost    int       // number of crashes in the ring; decreases when they are forgotten, or if only the lease was lost
	out     bool      // the replica is not in the ring
	joined  time.Time // when the replica joined the ring; zero: before this leader's time, or never
	flapped bool      // the damper has counted the present departure
	level   int       // result of damper.level when the replica became ready
}

// hold returns the time for which a replica must be ready before it joins the ring.
func (r *replica) hold() time.Duration {
	return min(joinAfter<<min(r.lost, 10), joinAtMost)
}

// step compares the records of all replicas with current, the present ring. current is nil if there is no ring. step
// returns the ring to write, or current if no ring is due. The next call of step must follow at the time wake or
// earlier.
func (a *assigner) step(now time.Time, fleet []member.Record, current *ring.Ring) (next *ring.Ring, wake time.Time) {
	a.observe(now, fleet, current)
	wake = now.Add(unevenFor / 4)
	members, soon := a.members(now, current)
	if !soon.IsZero() {
		wake = earliest(wake, soon)
	}
	if len(members) == 0 {
		if a.vacated(current) {
			return ring.Vacate(current), wake
		}
		return current, wake // if there are no members, the present ring stays
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
	a.uneven = now // if the new ring improves nothing, the next attempt waits again
	return ring.Assign(current, members, load), wake
}

// vacated reports whether a ring has members, and all of them were stopped in an orderly way. If the ring still named
// these members, the next leader would assume that all of them crashed at once.
func (a *assigner) vacated(current *ring.Ring) bool {
	for _, m := range current.Members() {
		if r := a.replicas[m.Name]; r == nil || r.record.State != member.Leaving {
			return false
		}
	}
	return len(current.Members()) > 0
}

// written notes the time at which a ring was written.
func (a *assigner) written(now time.Time) { a.wrote, a.uneven, a.alone = now, time.Time{}, false }

// observe updates the assigner's memory of all replicas from their records.
func (a *assigner) observe(now time.Time, fleet []member.Record, current *ring.Ring) {
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
		went = a.observeRecord(now, r, record, in) || went
		r.record, r.present = record, true
	}
	for name, r := range a.replicas {
		_, in := current.Member(name)
		switch {
		case present[name]:
		case r.present:
			r.left = now
			a.flap(now, r, in)
			went = r.depart(in) || went
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

// observeRecord updates the memory of one replica from its present record. The parameter in states whether the replica
// is a member of the ring. The result is true if a member of the ring leaves or has restarted.
func (a *assigner) observeRecord(now time.Time, r *replica, record member.Record, in bool) (went bool) {
	r.places(now, in)
	if restarted := r.present && r.record.Incarnation != record.Incarnation; restarted {
		a.flap(now, r, in)
		went = r.depart(in)
	} else if !r.present && in && r.record.Incarnation == record.Incarnation && !r.was.IsZero() {
		r.ready, r.lost = r.was, max(r.lost-1, 0) // its lease was lost briefly, and it served all the time
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

// depart notes that a replica has departed. If the replica was Ready and in the ring, this counts as a crash. depart
// returns inRing.
func (r *replica) depart(inRing bool) bool {
	r.ready, r.was = time.Time{}, r.ready
	if inRing && r.record.State == member.Ready {
		r.lost++
	}
	return inRing
}

// members returns the members of the next ring, sorted by name. soon is the next time at which the members may change;
// zero: unknown.
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

// bootstrap returns all replicas that wait to join, as members. It is used if the ring would have no other members.
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

// load returns the present load. Soon after a departure it returns at least the load before the departure, because the
// proxies of the departed replica are not back yet.
func (a *assigner) load(now time.Time) ring.Load {
	if now.After(a.departedUntil) {
		return a.total
	}
	return greater(a.total, a.departed)
}

// greater returns a load with the maximum of two loads for each namespace, for each workload, and for Rest.
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
