package files

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// guardFrom is how many objects of a kind there must be for the guard to look at the kind alone.
const guardFrom = 4

// sumFrom is how many objects of a kind there must have been for what vanished in several looks to be added up. Of fewer people remove
// most by hand, one after the other, and mean it.
const sumFrom = 20

// guardFor is for how long what vanished is added up (issue 12, item 17).
const guardFor = 10 * time.Minute

// guard is what the shrink guard remembers of what vanished lately and was let go.
type guard struct {
	vanished map[object.ID][]vanished // by kind and cluster (kindOf), oldest first; at most one for each second
	// parents are the Namespaces and Services that vanished, and when: that explains what vanishes with them. There are never more than
	// were let go within guardFor.
	parents map[object.ID]time.Time
}

// vanished is one look in which objects of a kind vanished.
type vanished struct {
	at     time.Time
	before int // objects of the kind that there were, less those whose end was explained since
}

// forget drops what is too long ago to count.
func (g *guard) forget(at time.Time) {
	for kind, all := range g.vanished {
		for len(all) > 0 && at.Sub(all[0].at) >= guardFor {
			all = all[1:]
		}
		if g.vanished[kind] = all; len(all) == 0 {
			delete(g.vanished, kind)
		}
	}
	for id, since := range g.parents {
		if at.Sub(since) >= guardFor {
			delete(g.parents, id)
		}
	}
}

// before is how many objects of a kind there were before the first of them vanished, where there are so many now.
func (g *guard) before(kind object.ID, now int) int {
	if all := g.vanished[kind]; len(all) > 0 && all[0].before >= sumFrom {
		return max(all[0].before, now)
	}
	return now
}

// note remembers that objects of a kind vanished and were let go, of so many.
func (g *guard) note(at time.Time, kind object.ID, before int) {
	all := g.vanished[kind]
	if n := len(all); n == 0 || at.Sub(all[n-1].at) >= time.Second {
		g.vanished[kind] = append(all, vanished{at, before})
	}
}

// explained takes objects out of what counts: nobody misses them.
func (g *guard) explained(kind object.ID, n int) {
	for i := range g.vanished[kind] {
		g.vanished[kind][i].before -= n
	}
}

// explains says whether an object went with its namespace, or an EndpointSlice with its Service.
func (g *guard) explains(o *object.Object) bool {
	if o.ID.Namespace == "" {
		return false
	}
	_, gone := g.parents[o.ID.SameOrigin(object.ID{Kind: "Namespace", Name: o.ID.Namespace})]
	if !gone && o.ID.Kind == "EndpointSlice" {
		_, gone = g.parents[o.ID.SameOrigin(object.ID{Kind: "Service", Namespace: o.ID.Namespace, Name: o.Labels["kubernetes.io/service-name"]})]
	}
	return gone
}

// turn is when a kind is judged: after those that explain its objects' end.
func turn(id object.ID) int {
	switch id.Kind {
	case "Namespace":
		return 0
	case "EndpointSlice":
		return 2
	case "Pod":
		return 3
	}
	return 1
}

const turns = 4

// kindOf is all objects of a kind in one cluster: the guard looks at each cluster for itself.
func kindOf(id object.ID) object.ID { return object.ID{Origin: id.Origin, Kind: id.Kind} }

// hold is the shrink guard: where everything of a cluster vanishes in one look, or more than half of a kind (of a larger one: within ten
// minutes), it is far more likely that the folder is not whole (a mount that is gone, a checkout under way, a tool that stopped in the
// middle) than that somebody meant it. What something explains is let go: the object's Namespace, or an EndpointSlice's Service, vanished
// too and is not held; no EndpointSlice says of a Pod that it is ready.
func (f *folder) hold(at time.Time, gone []object.ID, before map[object.ID]int) {
	if f.allowEmpty || len(gone) == 0 {
		return
	}
	f.guard.forget(at)
	total, lost, after, remains := map[origin.Origin]int{}, map[origin.Origin]int{}, map[object.ID]int{}, map[origin.Origin]int{}
	for kind, n := range before {
		total[kind.Origin] += n
	}
	for id, paths := range f.claims {
		if len(paths) > 0 {
			after[kindOf(id)]++
			remains[id.Origin]++
		}
	}
	for _, id := range gone {
		lost[id.Origin]++
	}
	all := func(id object.ID) bool { return lost[id.Origin] == total[id.Origin] && remains[id.Origin] == 0 }
	for _, id := range gone {
		if all(id) {
			f.held[id] = true
		}
	}
	for n := range turns {
		byKind := map[object.ID][]object.ID{}
		for _, id := range gone {
			if turn(id) == n && !all(id) {
				byKind[kindOf(id)] = append(byKind[kindOf(id)], id)
			}
		}
		for kind, ids := range byKind {
			f.judge(at, kind, ids, before[kind], after[kind])
		}
	}
}

// judge holds those of the objects of one kind and cluster that vanished in one look which nothing explains, if they are too many.
func (f *folder) judge(at time.Time, kind object.ID, gone []object.ID, before, after int) {
	var lost []object.ID
	for _, id := range gone {
		if !f.guard.explains(f.told[id]) {
			lost = append(lost, id)
		}
	}
	explained := len(gone) - len(lost)
	f.guard.explained(kind, explained)
	before -= explained
	was := f.guard.before(kind, before)
	tooMany := was >= guardFrom && 2*after < was
	if tooMany && kind.Kind == "Pod" {
		ready := f.ready()
		lost = slices.DeleteFunc(lost, func(id object.ID) bool { return !ready[id] })
		delete(f.guard.vanished, kind) // from here on anew: which of them were ready is not known any more
	}
	switch {
	case tooMany:
		for _, id := range lost {
			f.held[id] = true
		}
	case len(lost) > 0:
		f.guard.note(at, kind, before)
	}
	for _, id := range gone {
		if !f.held[id] && id.Group == "" && (kind.Kind == "Namespace" || kind.Kind == "Service") {
			f.guard.parents[id] = at
		}
	}
}

// ready is the Pods of which an EndpointSlice says that they are ready, and not terminating.
func (f *folder) ready() map[object.ID]bool {
	all := map[object.ID]bool{}
	for id, o := range f.told {
		if id.Kind != "EndpointSlice" || len(f.claims[id]) == 0 && !f.held[id] {
			continue
		}
		var slice struct {
			Endpoints []struct {
				Conditions struct{ Ready, Terminating *bool }
				TargetRef  *struct{ Kind, Namespace, Name string }
			}
		}
		if json.Unmarshal(o.JSON, &slice) != nil {
			continue // it says of nothing that it is ready
		}
		for _, e := range slice.Endpoints {
			c, pod := e.Conditions, e.TargetRef
			if pod == nil || pod.Kind != "Pod" || c.Ready != nil && !*c.Ready || c.Terminating != nil && *c.Terminating {
				continue
			}
			all[id.SameOrigin(object.ID{Kind: "Pod", Namespace: cmp.Or(pod.Namespace, id.Namespace), Name: pod.Name})] = true
		}
	}
	return all
}

// excused takes the Pods out of what is held of which no EndpointSlice says any more that they are ready, after a change of these: the
// slices were written later. Where other kinds are held the folder is not whole, and slices say nothing.
func (f *folder) excused(touched touches) (gone []object.ID) {
	if len(f.held) == 0 || !slices.ContainsFunc(slices.Collect(maps.Keys(touched)), func(id object.ID) bool { return id.Kind == "EndpointSlice" }) {
		return nil
	}
	for id := range f.held {
		if id.Kind != "Pod" {
			return nil
		}
	}
	ready := f.ready()
	for id := range f.held {
		if !ready[id] {
			delete(f.held, id)
			gone = append(gone, id)
		}
	}
	slices.SortFunc(gone, object.ID.Compare)
	return gone
}

// liveByKind is how many objects of each kind and cluster are told and not held.
func (f *folder) liveByKind() map[object.ID]int {
	n := map[object.ID]int{}
	for id := range f.told {
		if !f.held[id] {
			n[kindOf(id)]++
		}
	}
	return n
}
