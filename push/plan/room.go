package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/weight"
)

// room leaves records out of the planned snapshots if this process has no memory for them. The weight of a record is
// its estimated memory (store/weight). The leader limits tenants by the same weights, but an older version or a leader
// with other limits may have stored heavier records. Planned records that do not grow are kept. Growing records are
// left out, the largest record of the heaviest namespace first. At a start all records count as growing.
//
// Only heavy records are left out. A record is heavy if its weight is at least the limit divided by heavyPart. An
// honest mesh of any size has no heavy records, so an overestimate of memory does not affect it. Policies and records
// in the root namespace are never left out.
type room struct {
	limit   int // KiB; 0 means no limit
	sum     int // KiB, of all planned records
	index   *weight.Index
	weights map[model.Key]int // KiB, of the planned records with a weight
	spaces  map[string]int    // KiB, sums by namespace
	out     map[model.Key]model.Record
}

// heavyPart is the divisor that defines heavy records. A record with a weight of at least limit/heavyPart may be left
// out.
const heavyPart = 16

// newRoom returns a room without records. The limit is in KiB, and 0 means no limit.
func newRoom(limit int) *room {
	return &room{limit: limit, index: weight.NewTogether(), weights: map[model.Key]int{}, spaces: map[string]int{},
		out: map[model.Key]model.Record{}}
}

// admit returns the edits of the records for which there is room. It adds edits of records that were left out earlier
// and for which there is room again. The parameter last is the planned snapshot, and now is the snapshot of the source.
func (r *room) admit(edits []mirror.Edit, last, now *mirror.Snapshot) []mirror.Edit {
	if r.limit == 0 {
		return edits
	}
	for _, e := range edits {
		delete(r.out, e.Key())
	}
	before := r.sum
	growing := r.apply(edits, last)
	if r.sum < before && len(r.out) > 0 {
		again := r.retry()
		growing = append(growing, r.apply(again, last)...)
		edits = slices.Concat(edits, again)
	}
	return r.leaveOut(edits, growing, now)
}

// resize sets the limit, and returns the edits of the records that were left out and for which there is room now. A
// room without a limit counts no weights, so resize does nothing if the old or the new limit is 0.
func (r *room) resize(limit int, last, now *mirror.Snapshot) []mirror.Edit {
	if limit == 0 || r.limit == 0 {
		return nil
	}
	r.limit = limit
	again := r.retry()
	return r.leaveOut(again, r.apply(again, last), now)
}

// retry returns edits with the records that are left out, and clears the list of these records.
func (r *room) retry() (again []mirror.Edit) {
	for _, key := range slices.SortedFunc(maps.Keys(r.out), model.Key.Compare) {
		again = append(again, mirror.Edit{New: r.out[key]})
	}
	clear(r.out)
	return again
}

// leaveOut leaves out heavy records among the growing ones until the rest fits the limit. It returns the other edits.
func (r *room) leaveOut(edits, growing []mirror.Edit, now *mirror.Snapshot) []mirror.Edit {
	root := now.Mesh().Spec.GetRootNamespace()
	growing = slices.DeleteFunc(growing, func(e mirror.Edit) bool {
		return r.weights[e.Key()] < r.limit/heavyPart || exempt(e.New, root)
	})
	for r.sum > r.limit && len(growing) > 0 {
		i := r.heaviest(growing)
		e := growing[i]
		growing = slices.Delete(growing, i, i+1)
		r.out[e.Key()] = e.New
		r.put(e.New, e.Old)
	}
	if len(r.out) == 0 {
		return edits
	}
	return slices.DeleteFunc(slices.Clone(edits), func(e mirror.Edit) bool { _, out := r.out[e.Key()]; return out })
}

// apply counts the weights of edited records. A record is counted before the records that multiply its weight
// (weight.Order). The result lists the edits whose records grow, with the planned versions as Old.
func (r *room) apply(edits []mirror.Edit, last *mirror.Snapshot) (growing []mirror.Edit) {
	for order := range weight.Ignored + 1 {
		for _, e := range edits {
			if weight.Order(cmp.Or(e.New, e.Old)) != order {
				continue
			}
			old, _ := last.Get(e.Key())
			if was := r.weights[e.Key()]; r.put(old, e.New) > was {
				growing = append(growing, mirror.Edit{Old: old, New: e.New})
			}
		}
	}
	return growing
}

// put replaces a counted record by another record, and returns the weight of the new record in KiB. Either record may
// be nil.
func (r *room) put(old, now model.Record) (kib int) {
	var key model.Key
	var was, is []model.Record
	if old != nil {
		key, was = old.Meta().Key, append(was, old)
	}
	if now != nil {
		key, is = now.Meta().Key, append(is, now)
		w := weight.Of(now, r.index)
		kib = w.Exported + w.Own
	}
	r.index.Replace(was, is)
	r.count(key, kib)
	return kib
}

// count sets the weight of a record, in KiB.
func (r *room) count(key model.Key, kib int) {
	grown := kib - r.weights[key]
	if r.weights[key] = kib; kib == 0 {
		delete(r.weights, key)
	}
	r.sum += grown
	if r.spaces[key.Namespace] += grown; r.spaces[key.Namespace] == 0 {
		delete(r.spaces, key.Namespace)
	}
}

// ErrNoRoom is the error that Loop.Afford wraps (errors.Is) if this process has no memory for a change.
var ErrNoRoom = errors.New("this replica has no memory for the change")

// afford returns an error that wraps ErrNoRoom if two conditions hold. The total weight with the edits exceeds the
// limit, and the edits together add more than limit/heavyPart. The error names the record that grows most. Unlike
// admit, afford weighs the edits together, because the leader has not accepted them. It leaves the room unchanged.
func (r *room) afford(edits []mirror.Edit, last *mirror.Snapshot) error {
	if r.limit == 0 {
		return nil
	}
	before, was := r.sum, map[model.Key]int{}
	for _, e := range edits {
		was[e.Key()] = r.weights[e.Key()]
	}
	growing := r.apply(edits, last)
	sum, largest, most := r.sum, model.Key{}, 0
	for _, e := range growing {
		if grown := r.weights[e.Key()] - was[e.Key()]; grown > most {
			largest, most = e.Key(), grown
		}
	}
	for _, e := range edits {
		old, _ := last.Get(e.Key())
		r.put(e.New, old)
	}
	for key, kib := range was {
		r.count(key, kib)
	}
	if sum-before <= r.limit/heavyPart || sum <= r.limit {
		return nil
	}
	return fmt.Errorf("%w: it would take %d MiB more, the largest part by %s %s/%s (%d MiB)", ErrNoRoom, (sum-before)/1024,
		largest.Kind, largest.Namespace, largest.Name, most/1024)
}

// heaviest returns the index of the largest record of the heaviest namespace.
func (r *room) heaviest(growing []mirror.Edit) int {
	best := 0
	for i := range growing {
		a, b := growing[i].Key(), growing[best].Key()
		order := cmp.Or(cmp.Compare(r.spaces[a.Namespace], r.spaces[b.Namespace]), cmp.Compare(b.Namespace, a.Namespace),
			cmp.Compare(r.weights[a], r.weights[b]), b.Compare(a))
		if order > 0 {
			best = i
		}
	}
	return best
}

// exempt reports whether a record is planned whatever its weight is.
func exempt(r model.Record, root string) bool {
	_, policy := r.(*model.Policy)
	return policy || r.Meta().Key.Namespace == root
}

// problems returns a problem for each record that is left out.
func (r *room) problems() (all []Problem) {
	for key, record := range r.out {
		w := weight.Of(record, r.index)
		message := fmt.Sprintf("left out by this replica: it needs %d MiB, the configuration uses %d MiB, and the bound is %d MiB "+
			"(a third of GOMEMLIMIT, less after a kill for memory); an older version that fits stays in effect",
			(w.Exported+w.Own)/1024, r.sum/1024, r.limit/1024)
		all = append(all, Problem{Key: key, Code: problem.NotAllowed, Severity: problem.Error, Message: message})
	}
	return all
}
