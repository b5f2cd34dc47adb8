package kube

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/object"
)

// maxSecrets is the maximum number of referenced Secrets and ConfigMaps that are watched. Each of these objects has a
// watch of its own, because a role can grant access to single objects by name. The right to list Secrets would grant
// access to all Secrets of a namespace.
const maxSecrets = 1000

// Refer replaces the list of Secrets and ConfigMaps that objects refer to. Run reads the referenced Secrets and
// ConfigMaps of this cluster (at most 1,000), once everything else was listed. Run emits the deletion of each object
// that the new list lacks. References to other clusters are ignored. If Config.Namespace is set, references to other
// namespaces are ignored too. The slice is not retained. Refer is safe for concurrent use, also while Run is not
// running.
func (s *Source) Refer(references []object.Reference) {
	own := slices.DeleteFunc(slices.Clone(references), func(r object.Reference) bool { return r.To.Origin.Cluster() != s.Cluster })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.references != nil && slices.Equal(own, s.references) {
		return
	}
	s.references = own
	select {
	case s.referred <- struct{}{}:
	default:
	}
}

// listed reports whether everything except referenced objects was listed in full.
func (s *Source) listed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discover && s.selection.ready && s.allListed()
}

// allListed reports whether every kind that must be listed, or may be refused (see need), is complete. The caller has
// locked Source.mu.
func (s *Source) allListed() bool {
	for f := range s.followers() {
		if !f.complete && s.need(f.kind) != reported {
			return false
		}
	}
	return true
}

// followSecrets starts and stops followers (readers of one kind) so that each referenced object within the limit has a
// follower.
func (s *Source) followSecrets(start func(...kind)) {
	s.mu.Lock()
	chosen, beyond := chooseSecrets(s.references, s.Namespace, maxSecrets)
	s.beyond, s.settled = beyond, true
	var fresh []kind
	wanted := map[kindID]bool{}
	for _, r := range chosen {
		k := referred(r.To)
		if wanted[k.id()] = true; s.kinds[k.id()] == nil {
			fresh = append(fresh, k)
		}
	}
	for id, f := range s.kinds {
		if f.kind.referenced && !wanted[id] {
			s.unfollow(f)
		}
	}
	s.mu.Unlock()
	start(fresh...)
	s.mu.Lock()
	s.synced()
	s.mu.Unlock()
}

// unfollow stops the follower of an object to which no object refers any more, and emits the deletion of the followed
// object. The caller has locked Source.mu.
func (s *Source) unfollow(f *follower) {
	f.stop()
	id := f.kind.of()
	id.Origin = s.origin
	if emitted, _ := s.get(id); emitted != nil || f.broken {
		s.enqueue(object.Event{Op: object.Delete, ID: id, Location: location})
	}
	delete(s.touched, id)
	delete(s.kinds, f.kind.id())
}

// referred returns the kind that consists of one Secret or ConfigMap.
func referred(id object.ID) kind {
	k := kind{version: "v1", kind: "Secret", resource: "secrets", namespaced: true, expected: &corev1.Secret{},
		namespace: id.Namespace, name: id.Name, referenced: true}
	if id.Kind == "ConfigMap" {
		k.kind, k.resource, k.expected = "ConfigMap", "configmaps", &corev1.ConfigMap{}
	}
	return k
}

// chooseSecrets divides the references into chosen ones and ones beyond the limit. The parameter limit is the maximum
// number of chosen references. Unless the parameter namespace is empty, references to other namespaces are dropped. If
// there are too many references, the namespaces of the referring objects alternate, so that a namespace with many
// references leaves room for others.
func chooseSecrets(references []object.Reference, namespace string, limit int) (chosen, beyond []object.Reference) {
	turns, turn := map[string]int{}, map[object.Reference]int{}
	for _, r := range references {
		if namespace == "" || r.To.Namespace == namespace {
			turn[r] = turns[r.By.Namespace]
			turns[r.By.Namespace]++
			chosen = append(chosen, r)
		}
	}
	if len(chosen) <= limit {
		return chosen, nil
	}
	slices.SortStableFunc(chosen, func(a, b object.Reference) int { return cmp.Compare(turn[a], turn[b]) })
	return chosen[:limit], chosen[limit:]
}

// tooMany calls report for each object that refers to an object beyond the limit, up to 100. If there are more, it
// calls report once with the number of further references.
func tooMany(beyond []object.Reference, report func(id object.ID, message string)) {
	const shown = 100
	for _, r := range beyond[:min(len(beyond), shown)] {
		report(r.By, fmt.Sprintf("%v, which it refers to, is not read: at most %d Secrets and ConfigMaps are watched", r.To, maxSecrets))
	}
	if more := len(beyond) - shown; more > 0 {
		report(object.ID{Kind: "Secret"}, fmt.Sprintf("%d more referenced Secrets and ConfigMaps are not read: at most %d are watched",
			more, maxSecrets))
	}
}
