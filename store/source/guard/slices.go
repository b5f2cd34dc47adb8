package guard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"time"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// endpoint is what the guard reads of one endpoint of an EndpointSlice.
type endpoint struct {
	Addresses  []string
	Conditions struct{ Ready, Terminating *bool }
	TargetRef  *struct{ Kind, Namespace, Name string }
}

func (e endpoint) ready() bool {
	c := e.Conditions
	return !(c.Ready != nil && !*c.Ready || c.Terminating != nil && *c.Terminating)
}

// pod is the Pod that the endpoint of a slice names; false: it names none.
func (e endpoint) pod(slice object.ID) (object.ID, bool) {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return object.ID{}, false
	}
	return slice.SameOrigin(object.ID{Kind: "Pod", Namespace: cmp.Or(e.TargetRef.Namespace, slice.Namespace), Name: e.TargetRef.Name}), true
}

// key names an endpoint among those of one Service.
func (e endpoint) key(slice object.ID) string {
	if id, is := e.pod(slice); is {
		return id.String()
	}
	if len(e.Addresses) > 0 {
		return e.Addresses[0]
	}
	return ""
}

// endpointsOf reads an EndpointSlice. One that cannot be read has none.
func endpointsOf(o *object.Object) []endpoint {
	var slice struct{ Endpoints []endpoint }
	if o == nil || json.Unmarshal(o.JSON, &slice) != nil {
		return nil
	}
	return slice.Endpoints
}

func serviceOf(slice *object.Object) object.ID {
	return slice.ID.SameOrigin(object.ID{Kind: "Service", Namespace: slice.ID.Namespace, Name: slice.Labels["kubernetes.io/service-name"]})
}

// shrunk is a slice as it was before it lost endpoints that nothing explains.
type shrunk struct {
	at     time.Time
	before *object.Object
}

// judgeSlices holds the newest version of a slice that has lost more than half of its endpoints, or all, while their Pods are there,
// ready and not terminating. released are those that were held before and are not any more, and that nobody touched.
func (g *Guard) judgeSlices(l *look) (released []object.ID) {
	for _, id := range l.slices {
		emitted, now := l.Get(id)
		was := g.changed[id] != nil
		delete(g.changed, id)
		if g.missed(l, emitted, now) {
			g.changed[id] = now
		} else if was {
			released = append(released, id)
		}
	}
	return released
}

// missed says whether too many endpoints of a slice are gone. Losses are added up over ten minutes.
func (g *Guard) missed(l *look, emitted, now *object.Object) bool {
	if g.explains(l, emitted) {
		return false
	}
	few, some := g.fewer(l, emitted, now)
	if s, is := g.shrunk[emitted.ID]; is && !few {
		few, _ = g.fewer(l, s.before, now)
	} else if !is && some && !few {
		g.shrunk[emitted.ID] = shrunk{l.at, emitted}
	}
	return few
}

// fewer compares two versions of a slice: few: too few are left of those that should be there; some: endpoints are missed.
func (g *Guard) fewer(l *look, before, now *object.Object) (few, some bool) {
	const each = `"addresses"` // every endpoint has some: a version with no fewer is not read
	if bytes.Count(now.JSON, []byte(each)) >= bytes.Count(before.JSON, []byte(each)) {
		return false, false
	}
	next, keys := endpointsOf(now), map[string]bool{}
	for _, e := range next {
		keys[e.key(now.ID)] = true
	}
	was, missed := 0, 0
	var elsewhere map[string]bool
	for _, e := range endpointsOf(before) {
		switch key := e.key(before.ID); {
		case keys[key]:
			was++
			continue
		case !e.ready() || !g.wanted(l, before, e):
			continue
		default:
			if elsewhere == nil {
				elsewhere = g.elsewhere(l, before)
			}
			if !elsewhere[key] {
				was, missed = was+1, missed+1
			}
		}
	}
	return missed > 0 && (len(next) == 0 || was >= minimum && 2*len(next) < was), missed > 0
}

// wanted says whether an endpoint should still be in a slice: its Pod is there, ready, not terminating, and of the Service.
func (g *Guard) wanted(l *look, slice *object.Object, e endpoint) bool {
	id, named := e.pod(slice.ID)
	if named {
		_, now := l.Get(id)
		return alive(now) && g.selects(l, slice, now)
	}
	for _, address := range e.Addresses {
		if l.addresses(slice.ID)[address] {
			return true
		}
	}
	return false
}

// alive says whether a Pod is there and ready.
func alive(o *object.Object) bool {
	if o == nil {
		return false
	}
	pod, _ := normal.ParsePod(o) // nil: it cannot be read, and says of nothing that it is ready
	return pod != nil && !pod.NotReady && !pod.Terminating && !pod.Ended
}

// addresses are those of the Pods of a slice's cluster that are there and ready.
func (l *look) addresses(slice object.ID) map[string]bool {
	of := object.ID{Origin: slice.Origin}
	if have, is := l.pods[of]; is {
		return have
	}
	all := map[string]bool{}
	for id := range l.Now() {
		if id.Kind == "Pod" && id.Group == "" && id.Origin == slice.Origin {
			if _, now := l.Get(id); alive(now) {
				pod, _ := normal.ParsePod(now) // it can be read
				all[pod.Address] = true
			}
		}
	}
	delete(all, "")
	if l.pods == nil {
		l.pods = map[object.ID]map[string]bool{}
	}
	l.pods[of] = all
	return all
}

// selects says whether a slice's Service still selects a Pod. One that has no selector, or that was not emitted, selects what it did.
func (g *Guard) selects(l *look, slice, pod *object.Object) bool {
	_, service := l.Get(serviceOf(slice))
	if service == nil {
		return true
	}
	var parsed struct {
		Spec struct{ Selector map[string]string }
	}
	if json.Unmarshal(service.JSON, &parsed) != nil {
		return true
	}
	for k, v := range parsed.Spec.Selector {
		if has, is := pod.Labels[k]; !is || has != v {
			return false
		}
	}
	return true
}

// elsewhere are the endpoints of the other slices of a slice's Service: the controller moves some from one to another.
func (g *Guard) elsewhere(l *look, slice *object.Object) map[string]bool {
	all := map[string]bool{}
	for o := range g.effective(l) {
		if o.ID != slice.ID && serviceOf(o) == serviceOf(slice) {
			for _, e := range endpointsOf(o) {
				all[e.key(o.ID)] = true
			}
		}
	}
	return all
}

// effective are the EndpointSlices as they will be emitted.
func (g *Guard) effective(l *look) iter.Seq[*object.Object] {
	return func(yield func(*object.Object) bool) {
		for id := range l.Now() {
			if id.Kind != "EndpointSlice" {
				continue
			}
			emitted, now := l.Get(id)
			if g.changed[id] != nil {
				now = emitted
			}
			if !yield(now) {
				return
			}
		}
		for id := range g.deleted {
			if emitted, _ := l.Get(id); id.Kind == "EndpointSlice" && !yield(emitted) {
				return
			}
		}
	}
}

// ready is the Pods of which an EndpointSlice says that they are ready, and not terminating.
func (g *Guard) ready(l *look) map[object.ID]bool { return ReadyPods(g.effective(l)) }

// ReadyPods is the Pods of which one of these EndpointSlices says that they are ready, and not terminating.
func ReadyPods(slices iter.Seq[*object.Object]) map[object.ID]bool {
	all := map[object.ID]bool{}
	for o := range slices {
		for _, e := range endpointsOf(o) {
			if pod, named := e.pod(o.ID); named && e.ready() {
				all[pod] = true
			}
		}
	}
	return all
}
