package removal

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// Hold describes one held removal for operators, and is the form in which it is stored. Objects of one Scope have
// vanished from their source, but their records stay.
type Hold struct {
	ID        string         `json:"id"`                  // operators accept the removal by this ID; it changes when objects are added
	Cluster   string         `json:"cluster,omitempty"`   // cluster of the objects; empty: the config cluster
	Source    string         `json:"source,omitempty"`    // kind of source of the objects (origin.Origin)
	Group     string         `json:"group,omitempty"`     // API group of Kind
	Kind      string         `json:"kind,omitempty"`      // empty: all kinds
	Namespace string         `json:"namespace,omitempty"` // empty: all namespaces
	Why       object.Why     `json:"why"`                 // reason of the hold
	Since     time.Time      `json:"since"`               // time at which the newest of the objects was added
	Count     int            `json:"count"`               // number of held objects
	Kinds     map[string]int `json:"kinds"`               // number of held objects by kind
	Names     []string       `json:"names,omitempty"`     // the first 200 objects, as object.ID.String, at most 256 bytes each
	Waits     bool           `json:"waits"`               // the objects are removed only if an operator accepts the removal
	Ends      time.Time      `json:"ends,omitzero"`       // time at which the objects are removed without an operator; zero: never
}

// Bounds of a Hold's texts.
const (
	mostNames = 200
	mostText  = 256 // bytes of a name
)

// Scope returns the Scope of the removal.
func (h Hold) Scope() Scope {
	return Scope{object.ID{Origin: origin.New(h.Cluster, h.Source), Group: h.Group, Kind: h.Kind, Namespace: h.Namespace}, h.Why}
}

// Message returns a text for operators: the held objects, the reason, and how the hold ends.
func (h Hold) Message() string {
	ends := "navarchctl removals accept " + h.ID
	if !h.Ends.IsZero() {
		ends += ". If you do neither, the objects are removed at " + h.Ends.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%d objects (%s) %s: they stay in effect unchanged. Put the objects back, or accept the removal: %s",
		h.Count, h.KindCounts(), h.Why, ends)
}

// KindCounts returns the number of objects of each kind as text, such as "Gateway 1, Service 3".
func (h Hold) KindCounts() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(h.Kinds)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, h.Kinds[kind]))
	}
	return strings.Join(parts, ", ")
}

// Book contains the held removals. Only the leading replica uses it. It is not safe for concurrent use.
type Book struct {
	after time.Duration // duration of holds that need not wait for an operator; 0: they do not end by themselves
	holds map[Scope]*hold
	of    map[object.ID]*hold // by held object
}

type hold struct {
	scope Scope
	id    string
	since time.Time
	waits bool
	ids   map[object.ID]bool
	was   map[object.ID]bool // value of ids before the comparison (Begin); nil: it is unknown, and all objects of the scope count as held
}

// NewBook returns a Book with the removals that the previous leader stored. The objects of these removals are unknown,
// and the removals' IDs are empty, until the first comparison (Begin, Keep, End). The parameter period is the duration
// of holds that need not wait for an operator. If period is 0, each removal is held until an operator accepts it. The
// caller must end a removal at the time Hold.Ends.
func NewBook(period time.Duration, stored []Hold) *Book {
	b := &Book{after: period, holds: map[Scope]*hold{}, of: map[object.ID]*hold{}}
	for _, s := range stored {
		b.holds[s.Scope()] = &hold{scope: s.Scope(), since: s.Since, waits: s.Waits, ids: map[object.ID]bool{}}
	}
	return b
}

// Has reports whether the removal of an object is held.
func (b *Book) Has(id object.ID) bool { return b.of[id] != nil }

// Objects returns all held objects, in the order of object.ID.Compare. The caller owns the list.
func (b *Book) Objects() []object.ID { return slices.SortedFunc(maps.Keys(b.of), object.ID.Compare) }

// Add adds objects whose removal is held, given by scope. The parameter now is the present time. The function allGone
// reports whether all objects of a kind (KindOf) have vanished. A removal waits for an operator if it includes a
// security policy, or if all objects of a kind have vanished. A removal with reason object.Unnamed never waits for an
// operator.
func (b *Book) Add(now time.Time, held map[Scope][]object.ID, allGone func(kind object.ID) bool) {
	for scope, ids := range held {
		h := b.holds[scope]
		if h == nil {
			h = &hold{scope: scope, ids: map[object.ID]bool{}}
			b.holds[scope] = h
		}
		for _, id := range ids {
			h.ids[id], b.of[id] = true, h
		}
		for id := range h.ids {
			h.waits = h.waits || scope.Why != object.Unnamed && (Policy(id) || allGone(KindOf(id)))
		}
		h.since = now
		h.rename()
	}
}

// Begin starts a comparison of the held objects with the stored records. A held object for which the function exists
// returns true stays held. Any other object stays held only if Keep is called for it before End.
func (b *Book) Begin(exists func(object.ID) bool) {
	for _, h := range b.holds {
		if len(h.ids) > 0 {
			h.was = maps.Clone(h.ids)
		}
	}
	for id, h := range b.of {
		if !exists(id) {
			delete(h.ids, id)
			delete(b.of, id)
		}
	}
}

// Keep holds an object again that was held before Begin, or that is in the scope of a removal that the previous leader
// stored. For other objects, and for kinds whose removal is never held (Never), it does nothing and returns false. It
// is called between Begin and End, for objects with a record.
func (b *Book) Keep(id object.ID) bool {
	for scope, h := range b.holds {
		if scope.Covers(id) && !Never(id) && (h.was == nil || h.was[id]) {
			h.ids[id], b.of[id] = true, h
			return true
		}
	}
	return false
}

// End finishes the comparison. It drops removals without objects, and gives an ID to each removal that has no ID.
func (b *Book) End() {
	for scope, h := range b.holds {
		if len(h.ids) == 0 {
			delete(b.holds, scope)
		} else if h.id == "" {
			h.rename()
		}
	}
}

// Back ends the hold of an object that exists again or is certainly gone. For an object that is not held, it does
// nothing.
func (b *Book) Back(id object.ID) {
	if h := b.of[id]; h != nil {
		delete(b.of, id)
		if delete(h.ids, id); len(h.ids) == 0 {
			delete(b.holds, h.scope)
		}
	}
}

// Take ends the hold with the given ID. It returns the hold and its objects, in the order of object.ID.Compare. The
// caller removes these objects. Take returns false if there is no such hold.
func (b *Book) Take(id string) (Hold, []object.ID, bool) {
	for _, h := range b.holds {
		if h.id == id && id != "" {
			shown, ids := b.shown(h), slices.SortedFunc(maps.Keys(h.ids), object.ID.Compare)
			for _, id := range ids {
				b.Back(id)
			}
			return shown, ids, true
		}
	}
	return Hold{}, nil, false
}

// Holds returns the held removals, the oldest first. The result is never nil. The caller owns the list.
func (b *Book) Holds() []Hold {
	all := make([]Hold, 0, len(b.holds))
	for _, h := range b.holds {
		all = append(all, b.shown(h))
	}
	slices.SortFunc(all, func(a, b Hold) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all
}

// rename sets the ID of a hold, a hash of the hold's reason, time and objects.
func (h *hold) rename() {
	sum := sha256.New()
	fmt.Fprintln(sum, h.scope.Why, h.since.UnixNano())
	for _, id := range slices.SortedFunc(maps.Keys(h.ids), object.ID.Compare) {
		fmt.Fprintf(sum, "%q %q %q %q\n", id.Group, id.String(), id.Origin.Source(), id.Name)
	}
	h.id = hex.EncodeToString(sum.Sum(nil)[:5])
}

// shown returns a hold as a Hold, the form for operators.
func (b *Book) shown(h *hold) Hold {
	of := h.scope.Of
	s := Hold{ID: h.id, Cluster: of.Origin.Cluster(), Source: of.Origin.Source(), Group: of.Group, Kind: of.Kind, Namespace: of.Namespace,
		Why:   h.scope.Why,
		Since: h.since, Count: len(h.ids), Kinds: map[string]int{}, Waits: h.waits}
	for _, id := range slices.SortedFunc(maps.Keys(h.ids), object.ID.Compare) {
		if s.Kinds[clip(id.Kind)]++; len(s.Names) < mostNames {
			s.Names = append(s.Names, clip(id.String()))
		}
	}
	if !h.waits && b.after > 0 {
		s.Ends = h.since.Add(b.after)
	}
	return s
}

// clip cuts a text of an object to mostText bytes, between two characters.
func clip(s string) string {
	if len(s) > mostText {
		s = s[:mostText]
	}
	return strings.ToValidUTF8(s, "")
}
