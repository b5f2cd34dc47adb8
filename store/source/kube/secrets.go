package kube

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/object"
)

// maxSecrets bounds how many Secrets are watched: each takes a watch of its own, since the right to read one Secret can be given by its name,
// and the right to list them is the right to read all of a namespace.
const maxSecrets = 1000

// Refer says which Secrets objects refer to, in whatever cluster: those of this one are read, others are not (any more). Safe for concurrent use, also
// while nothing runs.
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

// listed says whether everything but the Secrets was listed in full.
func (s *Source) listed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discover && s.selection.ready && s.allListed()
}

// allListed says whether all was listed in full that holds a cluster up (need). With the lock.
func (s *Source) allListed() bool {
	for f := range s.followers() {
		if !f.complete && s.need(f.kind) != reported {
			return false
		}
	}
	return true
}

// followSecrets starts and ends watches, so that each Secret that is referred to has one, as far as there may be so many.
func (s *Source) followSecrets(start func(...kind)) {
	s.mu.Lock()
	chosen, beyond := choose(s.references, s.Namespace, maxSecrets)
	s.beyond, s.settled = beyond, true
	var fresh []kind
	wanted := map[kindID]bool{}
	for _, r := range chosen {
		k := secret(r.To)
		if wanted[k.id()] = true; s.kinds[k.id()] == nil {
			fresh = append(fresh, k)
		}
	}
	for id, f := range s.kinds {
		if id.kind == "Secret" && !wanted[id] {
			s.unfollow(f)
		}
	}
	s.mu.Unlock()
	start(fresh...)
	s.mu.Lock()
	s.synced()
	s.mu.Unlock()
}

// unfollow ends the reading of a Secret that nothing refers to any more: that is no loss. With the lock.
func (s *Source) unfollow(f *follower) {
	f.stop()
	id := f.kind.of()
	id.Origin = s.origin
	if emitted, _ := s.get(id); emitted != nil || f.broken {
		s.decide(object.Event{Op: object.Delete, ID: id, Location: location})
	}
	delete(s.touched, id)
	delete(s.kinds, f.kind.id())
}

// secret is the kind that has one Secret alone.
func secret(id object.ID) kind {
	return kind{version: "v1", kind: "Secret", resource: "secrets", namespaced: true, expected: &corev1.Secret{}, namespace: id.Namespace, name: id.Name}
}

// choose takes as many Secrets as may be watched, of one namespace alone where only that is read. Where there are more, each namespace of
// objects that refer to them has its turn: one that refers to many leaves room for the others.
func choose(references []object.Reference, only string, most int) (chosen, beyond []object.Reference) {
	turns, turn := map[string]int{}, map[object.Reference]int{}
	for _, r := range references {
		if only == "" || r.To.Namespace == only {
			turn[r] = turns[r.By.Namespace]
			turns[r.By.Namespace]++
			chosen = append(chosen, r)
		}
	}
	if len(chosen) <= most {
		return chosen, nil
	}
	slices.SortStableFunc(chosen, func(a, b object.Reference) int { return cmp.Compare(turn[a], turn[b]) })
	return chosen[:most], chosen[most:]
}

// tooMany names the Secrets that are not read, and what refers to them; those after the first hundred are counted.
func tooMany(beyond []object.Reference, say func(id object.ID, message string)) {
	const shown = 100
	for _, r := range beyond[:min(len(beyond), shown)] {
		say(r.By, fmt.Sprintf("%v, which it refers to, is not read: at most %d Secrets are watched", r.To, maxSecrets))
	}
	if more := len(beyond) - shown; more > 0 {
		say(object.ID{Kind: "Secret"}, fmt.Sprintf("%d more that are referred to are not read: at most %d are watched", more, maxSecrets))
	}
}
