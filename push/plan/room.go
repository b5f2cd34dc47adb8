package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/weight"
)

// room leaves out of the snapshots what this process has no memory for, by the same weights that bound tenants at the leader (store/weight): the store
// may have records that an older version, or a leader with other limits, has taken. What is planned stays; of what grows, the largest of the heaviest
// namespace is left out first. At a start everything grows. Left out are records alone that weigh much by themselves: of an honest mesh, however large,
// none does, and memory that is estimated too high takes nothing from it. Policies, and what is the operators', are never left out.
type room struct {
	limit   int // KiB; 0: there is no bound
	sum     int
	index   *weight.Index
	weights map[model.Key]int // of records that are planned and weigh something
	spaces  map[string]int    // sums by namespace
	out     map[model.Key]model.Record
}

// heavyPart is the part of the limit from which on a record may be left out: with 1 GiB, 2,400 clusters.
const heavyPart = 16

func newRoom(limit int) *room {
	return &room{limit: limit, index: weight.NewTogether(), weights: map[model.Key]int{}, spaces: map[string]int{},
		out: map[model.Key]model.Record{}}
}

// admit returns the edits without those that there is no room for, and with those that there is room for again. last is what is planned, now what the
// source has.
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
		var again []mirror.Edit
		for _, key := range slices.SortedFunc(maps.Keys(r.out), model.Key.Compare) {
			again = append(again, mirror.Edit{New: r.out[key]})
		}
		clear(r.out)
		growing = append(growing, r.apply(again, last)...)
		edits = slices.Concat(edits, again)
	}
	root := now.Mesh().Spec.GetRootNamespace()
	growing = slices.DeleteFunc(growing, func(e mirror.Edit) bool { return r.weights[e.Key()] < r.limit/heavyPart || neverOut(e.New, root) })
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

// apply counts edits, what is multiplied before what multiplies it, and returns those that grow, with the records that
// they replace.
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

// put counts one record in place of another, and returns what it weighs; nil: none.
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
	grown := kib - r.weights[key]
	if r.weights[key] = kib; kib == 0 {
		delete(r.weights, key)
	}
	r.sum += grown
	if r.spaces[key.Namespace] += grown; r.spaces[key.Namespace] == 0 {
		delete(r.spaces, key.Namespace)
	}
	return kib
}

// heaviest is the place of the largest record of the heaviest namespace.
func (r *room) heaviest(growing []mirror.Edit) int {
	best := 0
	for i := range growing {
		a, b := growing[i].Key(), growing[best].Key()
		if cmp.Or(cmp.Compare(r.spaces[a.Namespace], r.spaces[b.Namespace]), cmp.Compare(b.Namespace, a.Namespace), cmp.Compare(r.weights[a], r.weights[b]), b.Compare(a)) > 0 {
			best = i
		}
	}
	return best
}

// neverOut says whether a record is planned whatever it weighs.
func neverOut(r model.Record, root string) bool {
	_, policy := r.(*model.Policy)
	return policy || r.Meta().Key.Namespace == root
}

// problems names what is left out.
func (r *room) problems() (all []Problem) {
	for key, record := range r.out {
		w := weight.Of(record, r.index)
		all = append(all, Problem{Key: key, Code: problem.NotAllowed, Severity: problem.Error, Message: fmt.Sprintf(
			"left out by this replica: it would take %d MiB, configuration takes %d MiB, and %d MiB are a third of what the process may have (GOMEMLIMIT); an older version that fits stands",
			(w.Exported+w.Own)/1024, r.sum/1024, r.limit/1024)})
	}
	return all
}
