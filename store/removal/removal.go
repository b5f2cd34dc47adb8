// Package removal decides which objects that vanished from their source are removed at once, and which removals are
// held. The records of a held removal stay until the objects are back, an operator accepts the removal, or the hold's
// time is over.
//
// Deletions that the API server states are final. A deletion is a DELETE event, or absence from a complete list that is
// not older than the state seen before. The removal of an object is held if the object vanishes in another way. For
// example, the definition of its kind is removed, a list is older than the state seen before, its kind cannot be
// listed, or no Secret names its cluster any more. A folder of files is less reliable, so large losses in a folder are
// held. Losses are counted in each namespace separately, so that the losses of one tenant do not cause holds for
// another tenant. Removals of Secrets, ReferenceGrants and RBAC objects are never held, because the rights that these
// objects grant must end at once.
//
// Owns: recent losses of folders (Memory), and held removals (Book); both belong to one goroutine.
// Reads: store/object, store/origin.
// Never: uses a clock, a file or a socket.
package removal

import (
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// Thresholds for losses in folders.
const (
	minimum = 4 // a loss of more than half is held only if there were at least this many objects, or namespaces
	// sumFrom is the smallest number of objects of a kind in a namespace for which successive losses are added up. If
	// there are fewer objects, a user may remove one after the other by hand.
	sumFrom = 20
	sumFor  = 10 * time.Minute // time for which losses are added up
)

// Loss is one object that has vanished from its source, with the reason that the source states.
type Loss struct {
	ID  object.ID
	Why object.Why
}

// Scope selects objects that are held together for one reason. The objects have the origin (cluster and source), kind
// and namespace in Of. An empty Of.Kind or Of.Namespace selects all kinds or namespaces. Of.Name is empty.
type Scope struct {
	Of  object.ID
	Why object.Why
}

// Covers reports whether an object is in the scope. The reason, Why, is not compared.
func (s Scope) Covers(id object.ID) bool {
	return s.Of.Origin == id.Origin && (s.Of.Kind == "" || s.Of.Kind == id.Kind && s.Of.Group == id.Group) &&
		(s.Of.Namespace == "" || s.Of.Namespace == id.Namespace)
}

// Never reports whether an object is of a kind whose removal is never held. The API group is not compared.
func Never(id object.ID) bool {
	switch id.Kind {
	case "Secret", "ReferenceGrant", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		return true
	}
	return false
}

// Policy reports whether an object is a security policy. The API group is not compared. A held removal of a policy
// waits for an operator, unless its reason is object.Unnamed (Book.Add).
func Policy(id object.ID) bool {
	switch id.Kind {
	case "AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication":
		return true
	}
	return false
}

// Population returns the ID without its Name. It stands for all objects of one origin, group, kind and namespace.
func Population(id object.ID) object.ID { id.Name = ""; return id }

// KindOf returns the ID without Namespace and Name. It stands for all objects of one origin, group and kind.
func KindOf(id object.ID) object.ID {
	return object.ID{Origin: id.Origin, Group: id.Group, Kind: id.Kind}
}

// Memory remembers recent losses in folders, so that many small losses within 10 minutes count together. For each
// Population (the objects of a kind in a namespace) of 20 or more objects, it has the size before the first of these
// losses. The zero Memory is ready for use. It is not safe for concurrent use.
type Memory struct{ peaks map[object.ID]peak }

type peak struct {
	at   time.Time
	size int
}

// Sizes has the number of objects of each Population before and after the losses. A missing Population has no objects.
type Sizes struct{ Before, After map[object.ID]int }

// SelectHeld returns the objects whose removal is to be held, by scope. The result is never nil. All other losses are
// final. The parameter now is the present time. The function sizes is called at most once, and only for losses in
// folders (object.Missing).
func (m *Memory) SelectHeld(now time.Time, losses []Loss, sizes func() Sizes) map[Scope][]object.ID {
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
		m.folder(now, missing, sizes(), held)
	}
	return held
}

// folder selects the losses in folders that are to be held, and adds them to the map held. It holds the loss of all
// objects of an origin. It holds the loss of more than half of the objects of a kind in a namespace, if there were at
// least minimum objects. It also holds the losses of a kind that lost most objects in most namespaces (widely). Objects
// that vanished together with their Namespace object are removed at once, unless all objects of the origin or most
// Namespaces are lost.
func (m *Memory) folder(at time.Time, missing []object.ID, sizes Sizes, held map[Scope][]object.ID) {
	left := map[origin.Origin]int{}
	for of, n := range sizes.After {
		left[of.Origin] += n
	}
	most := func(of object.ID) bool {
		was := max(m.before(at, of), sizes.Before[of])
		return was >= minimum && 2*sizes.After[of] < was
	}
	gone := map[object.ID]bool{} // removed Namespaces, which explain the removal of their objects
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

// widely returns the kinds that are in at least minimum namespaces and lost most objects in most of these namespaces.
// Most means more than half. A Population for which explained returns true does not count.
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

// before returns the size of a population before its first recent loss, or 0 if there is no recent loss.
func (m *Memory) before(at time.Time, of object.ID) int {
	if p, is := m.peaks[of]; is && at.Sub(p.at) < sumFor {
		return p.size
	}
	return 0
}

// note stores the size of a population before a loss that is not held. It drops entries that are too old.
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
