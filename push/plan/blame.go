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

// If planning panics because of a record, bisection finds the record. The search begins at a snapshot that could be
// planned. It sorts the later edits by key, and finds the first edit after which the configuration (view) of one proxy
// cannot be planned from scratch. The record of that edit is the culprit. The last good version of the record stays in
// effect, and the search continues with the remaining edits.
//
// If strange metadata of one proxy cause the panic, the record must not be blamed, because other proxies would lose the
// record. A record of the proxy's own namespace is always blamed. A record of another namespace is blamed only if it
// also causes a panic for a plain proxy in the proxy's namespace. The plain proxy has only the labels that the record
// selects.

// blame is one result of the search: an edit that is not planned, with the version of the record that is planned in its
// place.
type blame struct {
	key    model.Key
	bad    model.Hash   // of the version that is not planned; zero if the edit deletes the record
	stands model.Record // the version that is planned in its place; nil if the record is left out
}

// bisection finds the records to blame.
type bisection struct {
	pool    *pool.Pool
	cluster string                         // see Settings
	fault   func(*input.Input, view.Scope) // for tests, see input.Input.Fault
}

// maxOfOneKind is the number of culprits of one kind and namespace that one search finds one by one. Above this number,
// all edits of the kind and namespace are left out. So a tenant with thousands of such records causes bounded work.
const maxOfOneKind = 8

// fails reports whether planning the view of a node from scratch panics.
func (f bisection) fails(n view.Node, s *mirror.Snapshot) (failed bool) {
	defer func() { failed = recover() != nil }()
	in := input.New(s, f.pool, f.cluster)
	in.Fault = f.fault
	fresh(in, viewFrom(in, n), secret.Copy{}, true)
	return false
}

// culprits compares a good snapshot with a bad one, with which the view of a node cannot be planned. It returns the
// edits to leave out. The second result is false if the view cannot be planned even without these edits.
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
		if !blamed || seen[edit.Key()] { // if seen, the replacement of the blamed version fails too
			return found, false
		}
		edits := []mirror.Edit{edit}
		at := place{edit.Key().Kind, edit.Key().Namespace}
		if count[at]++; count[at] > maxOfOneKind {
			edits = slices.DeleteFunc(mirror.Diff(good, bad).Edits, func(e mirror.Edit) bool {
				return e.Key().Kind != at.kind || e.Key().Namespace != at.namespace
			})
		}
		var more []blame
		for _, e := range edits {
			seen[e.Key()] = true
			more = append(more, fallbackFor(e))
		}
		bad = without(bad, more)
		found = append(found, more...)
	}
	return found, true
}

// first returns the first edit with which the view fails, and reports whether it is to blame.
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

// with returns the change that the edits make to a snapshot.
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

// fallbackFor returns the blame for an edit, with the previous version as replacement. A policy without a previous
// version is replaced by a policy that refuses all traffic of the selected workloads, like a policy that does not
// parse.
func fallbackFor(e mirror.Edit) blame {
	b := blame{key: e.Key(), stands: e.Old}
	if e.New == nil {
		return b
	}
	b.bad = e.New.Meta().Hash
	if p, is := e.New.(*model.Policy); is && e.Old == nil {
		closed, err := model.New(p.Key, p.Created,
			&model.PolicySpec{Selector: p.Spec.GetSelector(), Gateways: p.Spec.GetGateways(), MeshWide: p.Spec.GetMeshWide(), Closed: true})
		if err == nil { // always nil, because the key and the kind of body are those of a record
			b.stands = closed
		}
	}
	return b
}

// without returns the snapshot with the blamed records replaced by the versions that are planned in their place.
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

// selected returns the labels by which a record selects proxies, or nil for kinds without a selector.
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

// searchEvery is the minimum time between two searches that joining proxies cause. Each search plans the proxy's view
// some dozen times.
const searchEvery = 10 * time.Second
