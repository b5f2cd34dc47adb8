// Package removal decides which objects that are gone are removed at once, and which removals are held: the records stay until the objects are
// back, an operator accepts the removal, or its time is over.
//
// What an API server says is obeyed: a DELETE event, and a complete list that is no older than what was seen. Held is what nobody deleted: the
// definition of a kind goes, a list goes back in time, a kind cannot be listed, no Secret names a cluster any more. A folder of files says less,
// so there the amount counts, in each namespace for itself: one tenant's removals hold no other's. Secrets, ReferenceGrants and RBAC are never held,
// because what they grant has to end at once.
//
// Owns: what vanished from folders lately (Memory), and what is held (Book); both belong to one goroutine.  Reads: store/object, store/origin.
// Never: a clock, a file, a socket.
package removal

import (
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// The thresholds of folders.
const (
	minimum = 4 // objects of a kind in a namespace, or namespaces with a kind, from which on more than half are held
	// objects of a kind in a namespace from which on losses are added up: fewer are removed by hand, one after the other
	sumFrom = 20
	sumFor  = 10 * time.Minute // for how long losses are added up
)

// Loss is one object that is gone.
type Loss struct {
	ID  object.ID
	Why object.Why
}

// Scope names what is held together: the objects of an origin, of one kind, in one namespace. An empty Kind or Namespace stands for all, and Name is
// empty.
type Scope struct {
	Of  object.ID
	Why object.Why
}

// Covers reports whether an object is in the scope.
func (s Scope) Covers(id object.ID) bool {
	return s.Of.Origin == id.Origin && (s.Of.Kind == "" || s.Of.Kind == id.Kind && s.Of.Group == id.Group) &&
		(s.Of.Namespace == "" || s.Of.Namespace == id.Namespace)
}

// Never reports whether the removal of an object is never held.
func Never(id object.ID) bool {
	switch id.Kind {
	case "Secret", "ReferenceGrant", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		return true
	}
	return false
}

// Policy reports whether an object decides who may talk to whom: its removal waits for an operator's word.
func Policy(id object.ID) bool {
	switch id.Kind {
	case "AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication":
		return true
	}
	return false
}

// Population is the kind and namespace of an object, KindOf the kind alone.
func Population(id object.ID) object.ID { id.Name = ""; return id }

// KindOf is the kind of an object in its origin.
func KindOf(id object.ID) object.ID {
	return object.ID{Origin: id.Origin, Group: id.Group, Kind: id.Kind}
}

// Memory counts the objects that each population of a folder had before the first of them vanished within sumFor. The zero Memory is ready.
type Memory struct{ peaks map[object.ID]peak }

type peak struct {
	at   time.Time
	size int
}

// Sizes counts the objects of each Population.
type Sizes struct{ Before, After map[object.ID]int }

// SelectHeld returns the losses that are held, by scope. sizes is called only where the amount counts.
func (m *Memory) SelectHeld(at time.Time, losses []Loss, sizes func() Sizes) map[Scope][]object.ID {
	held := map[Scope][]object.ID{}
	var missing []object.ID
	for _, l := range losses {
		switch {
		case l.Why == object.Missing:
			missing = append(missing, l.ID)
		case l.Why == object.Deleted || Never(l.ID):
		case l.Why == object.Unnamed:
			held[Scope{object.ID{Origin: l.ID.Origin}, l.Why}] = append(held[Scope{object.ID{Origin: l.ID.Origin}, l.Why}], l.ID)
		default:
			held[Scope{KindOf(l.ID), l.Why}] = append(held[Scope{KindOf(l.ID), l.Why}], l.ID)
		}
	}
	if len(missing) > 0 {
		m.folder(at, missing, sizes(), held)
	}
	return held
}

// folder judges what is missing in folders: everything of an origin; more than half of a kind in a namespace; a kind in more than half of its
// namespaces. What went with its Namespace object is explained by it.
func (m *Memory) folder(at time.Time, missing []object.ID, sizes Sizes, held map[Scope][]object.ID) {
	left := map[origin.Origin]int{}
	for of, n := range sizes.After {
		left[of.Origin] += n
	}
	most := func(of object.ID) bool {
		was := max(m.before(at, of), sizes.Before[of])
		return was >= minimum && 2*sizes.After[of] < was
	}
	gone := map[object.ID]bool{} // Namespaces that explain the end of their objects
	for _, id := range missing {
		gone[id] = id.Kind == "Namespace" && id.Group == "" && !most(Population(id))
	}
	explained := func(id object.ID) bool {
		return gone[id.SameOrigin(object.ID{Kind: "Namespace", Name: id.Namespace})]
	}
	widely := widely(sizes, explained)
	for _, id := range missing {
		of, scope := Population(id), Scope{Why: object.Missing}
		switch {
		case Never(id):
			continue
		case left[id.Origin] == 0:
			scope.Of = object.ID{Origin: id.Origin}
		case explained(id):
			continue
		case widely[KindOf(id)]:
			scope.Of = KindOf(id)
		case most(of):
			scope.Of = of
		default:
			m.note(at, of, sizes.Before[of])
			continue
		}
		held[scope] = append(held[scope], id)
	}
}

// widely returns the kinds that lost more than half of their objects in more than half of their namespaces.
func widely(sizes Sizes, explained func(object.ID) bool) map[object.ID]bool {
	namespaces, losing, kinds := map[object.ID]int{}, map[object.ID]int{}, map[object.ID]bool{}
	for of, n := range sizes.Before {
		if n == 0 || explained(of) {
			continue
		}
		if namespaces[KindOf(of)]++; 2*sizes.After[of] < n {
			losing[KindOf(of)]++
		}
	}
	for kind, n := range losing {
		kinds[kind] = namespaces[kind] >= minimum && 2*n > namespaces[kind]
	}
	return kinds
}

// before is how many objects a population had before the first of them vanished lately.
func (m *Memory) before(at time.Time, of object.ID) int {
	if p, is := m.peaks[of]; is && at.Sub(p.at) < sumFor {
		return p.size
	}
	return 0
}

// note remembers a loss that was let go. What is too old to count is dropped.
func (m *Memory) note(at time.Time, of object.ID, had int) {
	if had < sumFrom || m.before(at, of) > 0 {
		return
	}
	for old, p := range m.peaks {
		if at.Sub(p.at) >= sumFor {
			delete(m.peaks, old)
		}
	}
	if m.peaks == nil {
		m.peaks = map[object.ID]peak{}
	}
	m.peaks[of] = peak{at, had}
}
