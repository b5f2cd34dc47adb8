package ingest

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/guard"
)

// guardFrom is how many records of a kind there must be for the guard to look at the kind alone.
const guardFrom = 4

// population is the records of a kind in a cluster: each cluster is looked at for itself. The zero kind is all of a cluster.
type population struct {
	kind    model.Kind
	cluster string
}

// census counts records.
type census map[population]int

func (c census) add(key model.Key) {
	c[population{key.Kind, key.Origin.Cluster()}]++
	c[population{cluster: key.Origin.Cluster()}]++
}

// guard withholds deletes where a new leader would delete everything of a cluster, or more than half of a kind there: it is far more likely that
// a folder is not mounted than that somebody wants that. Deletes that something explains are not withheld, and do not count: the record's Namespace is
// gone too, or it is of a Pod of which no EndpointSlice says that it is ready (issue 12, item 17).
func (s *State) guard(now time.Time, gone []model.Key) {
	if s.allowEmpty || len(gone) == 0 {
		return
	}
	stored, lost, wanted := census{}, census{}, census{}
	for key := range s.have {
		stored.add(key)
	}
	for key := range s.want {
		wanted.add(key)
	}
	for key := range s.awaitingSeal {
		wanted.add(key)
	}
	explained := s.explained(gone)
	left := gone[:0:0]
	for _, key := range gone {
		if explained[key] {
			stored[population{key.Kind, key.Origin.Cluster()}]--
		} else {
			left = append(left, key)
		}
	}
	all := census{}
	for _, key := range gone {
		all.add(key)
	}
	for _, key := range left {
		lost.add(key)
	}
	sums := s.sumsOf(left)
	for _, key := range gone {
		k, whole := population{key.Kind, key.Origin.Cluster()}, population{cluster: key.Origin.Cluster()}
		few := !explained[key] && stored[k] >= guardFrom && 2*lost[k] > stored[k] && 2*wanted[k] < stored[k]
		if all[whole] == stored[whole] && wanted[whole] == 0 || few || !explained[key] && sums[guard.KindOf(s.sourceOf(key))].tooMany(s.memory, now) {
			s.withheld[key], s.held[key] = true, true
		}
	}
	for key := range s.held {
		delete(sums, guard.KindOf(s.sourceOf(key)))
	}
	for kind, sum := range sums {
		s.memory.Note(now, kind, sum.before)
	}
	if len(s.held) > 0 {
		s.guarded = fmt.Sprintf("%d of %d stored records have no object any more%s: they are kept; if that is meant, accept the removal (navarchctl store held; --allow-empty)", len(gone), len(s.have), s.heldOf())
	}
}

// heldOf names the other clusters that some of what is held is of; empty: there are none.
func (s *State) heldOf() string {
	clusters := map[string]bool{}
	for key := range s.held {
		if cluster := key.Origin.Cluster(); cluster != "" {
			clusters[cluster] = true
		}
	}
	if len(clusters) == 0 {
		return ""
	}
	return ", those of cluster " + strings.Join(slices.Sorted(maps.Keys(clusters)), ", ") + " among them"
}

// sum is how many objects of a kind are stored, and are there.
type sum struct {
	kind          object.ID
	before, after int
}

// tooMany says whether more than half of the kind are missed, with those that vanished within ten minutes before, under whichever leader. What
// vanished at once is judged by records.
func (s sum) tooMany(memory *guard.Memory, now time.Time) bool {
	was := memory.Before(now, s.kind, s.before)
	return was > s.before && 2*s.after < was
}

// sumsOf counts the objects of each kind of which some are missed, those of these records that are not there.
func (s *State) sumsOf(missed []model.Key) map[object.ID]sum {
	all, stored := map[object.ID]sum{}, map[object.ID]bool{}
	for _, key := range missed {
		if source := s.sourceOf(key); s.objects[source] == nil {
			kind := guard.KindOf(source)
			all[kind] = sum{kind: kind}
		}
	}
	if len(all) == 0 {
		return nil
	}
	count := func(id object.ID, before, after int) {
		if of, is := all[guard.KindOf(id)]; is {
			of.before, of.after = of.before+before, of.after+after
			all[of.kind] = of
		}
	}
	for key := range s.have {
		if source := s.sourceOf(key); !stored[source] {
			stored[source] = true
			count(source, 1, 0)
		}
	}
	for id := range s.objects {
		count(id, 0, 1)
	}
	return all
}

// explained are those of the missing records whose deletion something explains. Where EndpointSlices are missing without an explanation, nothing
// follows from slices about Pods.
func (s *State) explained(gone []model.Key) map[model.Key]bool {
	all, deleted := map[model.Key]bool{}, s.deletedNamespaces()
	slices := map[string]bool{} // clusters that have lost EndpointSlices for no reason
	for _, key := range gone {
		if all[key] = deleted[key.Origin.Cluster()][key.Namespace]; !all[key] && key.Kind == model.KindEndpoints {
			slices[key.Origin.Cluster()] = true
		}
	}
	var ready map[object.ID]bool
	for _, key := range gone {
		if key.Kind != model.KindWorkload || strings.HasPrefix(key.Name, model.WorkloadEntryPrefix) || slices[key.Origin.Cluster()] {
			continue
		}
		if ready == nil {
			ready = guard.ReadyPods(func(yield func(*object.Object) bool) {
				for id, e := range s.objects {
					if id.Kind == "EndpointSlice" && e.object != nil && !yield(e.object) {
						return
					}
				}
			})
		}
		all[key] = all[key] || !ready[s.sourceOf(key)]
	}
	return all
}

// deletedNamespaces are, by cluster, the namespaces that have stored records and no Namespace object. That says something only where each
// namespace that has objects has its own too (as in every cluster of Kubernetes), and where no more than half of the namespaces went.
func (s *State) deletedNamespaces() map[string]map[string]bool {
	there := func(key model.Key) bool {
		return s.namespaces[s.sourceOf(key).SameOrigin(object.ID{Kind: "Namespace", Name: key.Namespace})] != nil
	}
	wanted, deleted := namespacesOf(maps.Keys(s.want)), map[string]map[string]bool{}
	for cluster, stored := range namespacesOf(maps.Keys(s.have)) {
		gone := map[string]bool{}
		for name, key := range stored {
			if !there(key) {
				gone[name] = true
			}
		}
		complete := len(wanted[cluster]) > 0
		for _, key := range wanted[cluster] {
			complete = complete && there(key)
		}
		if complete && (len(stored) < guardFrom || 2*len(gone) <= len(stored)) {
			deleted[cluster] = gone
		}
	}
	return deleted
}

// namespacesOf is a key of each namespace, by cluster.
func namespacesOf(keys iter.Seq[model.Key]) map[string]map[string]model.Key {
	of := map[string]map[string]model.Key{}
	for key := range keys {
		cluster := key.Origin.Cluster()
		if of[cluster] == nil {
			of[cluster] = map[string]model.Key{}
		}
		if key.Namespace != "" {
			of[cluster][key.Namespace] = key
		}
	}
	return of
}
