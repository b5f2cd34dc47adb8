package plan

import (
	"slices"
	"time"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A record with which the plan panics is found by bisection: the edits since a snapshot that could be planned, in the order of
// their keys, are applied one more at a time, and the first with which one proxy's view cannot be planned from scratch is the
// culprit. Its last good version stands, and the search goes on with the rest.
//
// Who is to blame, the record or the proxy, matters: a proxy with strange metadata must not take a record away from others. A
// record is blamed where it is of the proxy's own namespace, or where a proxy of that namespace panics of which nothing is known
// but the labels that the record itself selects.

// blame is the search's result: one edit that is not planned, and the version of the record that is planned in its place.
type blame struct {
	key    model.Key
	bad    model.Hash   // of the version that is not planned; zero: the record is to be deleted, and is not
	stands model.Record // planned in its place; nil: the record is left out
}

// bisection finds culprits.
type bisection struct {
	pool    *pool.Pool
	cluster string                         // see Settings
	fault   func(*input.Input, view.Scope) // tests only, see input.Input.Fault
}

// maxOfOneKind is how many records of one kind and namespace one search finds one by one; then all edits of these are left out, so
// that a tenant with thousands of such records costs no more.
const maxOfOneKind = 8

// fails says whether the view of a node cannot be planned from scratch.
func (f bisection) fails(n view.Node, s *mirror.Snapshot) (failed bool) {
	defer func() { failed = recover() != nil }()
	in := input.New(s, f.pool, f.cluster)
	in.Fault = f.fault
	fresh(in, viewFrom(in, n), secret.Copy{}, true)
	return false
}

// culprits finds what must be left out of a snapshot for the view of a node to be planned, going out from a good one. False: the
// records are not to blame, at least not all of them.
func (f bisection) culprits(n view.Node, good, bad *mirror.Snapshot) (found []blame, all bool) {
	type place struct {
		kind      model.Kind
		namespace string
	}
	count, seen := map[place]int{}, map[model.Key]bool{}
	for f.fails(n, bad) {
		if f.fails(n, good) {
			return found, false
		}
		edit, blamed := f.first(n, good, bad)
		if !blamed || seen[edit.Key()] { // the version in its place fails too
			return found, false
		}
		edits := []mirror.Edit{edit}
		at := place{edit.Key().Kind, edit.Key().Namespace}
		if count[at]++; count[at] > maxOfOneKind {
			edits = slices.DeleteFunc(mirror.Diff(good, bad).Edits, func(e mirror.Edit) bool { return e.Key().Kind != at.kind || e.Key().Namespace != at.namespace })
		}
		var more []blame
		for _, e := range edits {
			seen[e.Key()] = true
			more = append(more, leftOut(e))
		}
		bad = without(bad, more)
		found = append(found, more...)
	}
	return found, true
}

// first is the edit with which the view fails, and before which it does not, and whether it is to be blamed.
func (f bisection) first(n view.Node, good, bad *mirror.Snapshot) (mirror.Edit, bool) {
	edits := mirror.Diff(good, bad).Edits
	if len(edits) == 0 {
		return mirror.Edit{}, false
	}
	at := func(k int) *mirror.Snapshot { return with(good, bad.Revision(), edits[:k]).New }
	ok, fails := 0, len(edits)
	for ok+1 < fails {
		if mid := (ok + fails) / 2; f.fails(n, at(mid)) {
			fails = mid
		} else {
			ok = mid
		}
	}
	edit := edits[fails-1]
	if edit.Key().Namespace == n.Namespace {
		return edit, true
	}
	plain := view.Node{Namespace: n.Namespace, Domain: view.DefaultDomain, Kind: n.Kind, Labels: selected(edit)}
	return edit, f.fails(plain, at(fails)) && !f.fails(plain, at(fails-1))
}

// with is the change that some edits make to a snapshot.
func with(s *mirror.Snapshot, revision int64, edits []mirror.Edit) mirror.Change {
	var puts []model.Record
	var deletes []model.Key
	for _, e := range edits {
		if e.New != nil {
			puts = append(puts, e.New)
		} else {
			deletes = append(deletes, e.Key())
		}
	}
	return s.Apply(revision, puts, deletes)
}

// leftOut says which version of the record is planned in place of an edit: the one before. Of a policy that has none it is a version that closes
// what the policy selects, as a policy does that cannot be understood.
func leftOut(e mirror.Edit) blame {
	b := blame{key: e.Key(), stands: e.Old}
	if e.New == nil {
		return b
	}
	b.bad = e.New.Meta().Hash
	if p, is := e.New.(*model.Policy); is && e.Old == nil {
		closed, err := model.New(p.Key, p.Created, &model.PolicySpec{Selector: p.Spec.GetSelector(), MeshWide: p.Spec.GetMeshWide(), Closed: true})
		if err == nil { // the key and the kind of body are those of a record
			b.stands = closed
		}
	}
	return b
}

// without is a snapshot in which the records that are to blame have the versions that are planned in their place.
func without(s *mirror.Snapshot, found []blame) *mirror.Snapshot {
	edits := make([]mirror.Edit, len(found))
	for i, b := range found {
		edits[i] = mirror.Edit{New: b.stands}
		if b.stands == nil {
			old, ok := s.Get(b.key)
			if !ok {
				continue
			}
			edits[i].Old = old
		}
	}
	edits = slices.DeleteFunc(edits, func(e mirror.Edit) bool { return e == mirror.Edit{} })
	return with(s, s.Revision(), edits).New
}

// selected are the labels that a record selects proxies by.
func selected(e mirror.Edit) map[string]string {
	r := e.New
	if r == nil {
		r = e.Old
	}
	switch t := r.(type) {
	case *model.Sidecar:
		return t.Spec.GetWorkloadSelector().GetLabels()
	case *model.EnvoyFilter:
		return t.Spec.GetWorkloadSelector().GetLabels()
	case *model.DestinationRule:
		return t.Spec.GetWorkloadSelector().GetMatchLabels()
	case *model.Policy:
		return t.Spec.GetSelector()
	}
	return nil
}

// searchEvery is the least time between two searches that a proxy which joins brings about: each plans its view some dozen times.
const searchEvery = 10 * time.Second
