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

// Hold is one held removal, in the form that is shown and stored.
type Hold struct {
	ID        string         `json:"id"` // an operator accepts the removal by it; it changes when more objects are held together
	Cluster   string         `json:"cluster,omitempty"`
	Source    string         `json:"source,omitempty"` // of the origin (origin.Origin)
	Group     string         `json:"group,omitempty"`
	Kind      string         `json:"kind,omitempty"`      // empty: all kinds
	Namespace string         `json:"namespace,omitempty"` // empty: all namespaces
	Why       object.Why     `json:"why"`
	Since     time.Time      `json:"since"` // when the last of the objects was held
	Count     int            `json:"count"`
	Kinds     map[string]int `json:"kinds"`           // objects by kind
	Names     []string       `json:"names,omitempty"` // the first objects, in the form of object.ID
	Waits     bool           `json:"waits"`           // only an operator ends the removal
	Ends      time.Time      `json:"ends,omitzero"`   // end without an operator; zero: it does not end by itself
}

// Bounds of a Hold's texts.
const (
	mostNames = 200
	mostText  = 256 // bytes of a name
)

// Scope returns the objects that the removal covers.
func (h Hold) Scope() Scope {
	return Scope{object.ID{Origin: origin.New(h.Cluster, h.Source), Group: h.Group, Kind: h.Kind, Namespace: h.Namespace}, h.Why}
}

// Message states the held objects, the reason, and how the removal ends.
func (h Hold) Message() string {
	ends := "navarchctl removals accept " + h.ID + " lets them go"
	if !h.Ends.IsZero() {
		ends += ", and they go by themselves at " + h.Ends.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%d objects (%s) %s: they are held as they were. Put them back; or %s", h.Count, h.KindCounts(), h.Why, ends)
}

// KindCounts lists the kinds of the objects and their numbers, as text.
func (h Hold) KindCounts() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(h.Kinds)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, h.Kinds[kind]))
	}
	return strings.Join(parts, ", ")
}

// Book contains the removals of one leader.
type Book struct {
	after time.Duration // how long a removal is held if it does not wait for an operator; 0: all wait
	holds map[Scope]*hold
	of    map[object.ID]*hold // by held object
}

type hold struct {
	scope Scope
	id    string
	since time.Time
	waits bool
	ids   map[object.ID]bool
	was   map[object.ID]bool // ids before the comparison; nil: unknown, so the whole scope counts as held
}

// NewBook returns a Book with the removals that the previous leader stored: objects in their scopes stay held (Keep).
// after bounds the time of removals that do not wait for an operator; 0: they are held until they are accepted.
func NewBook(after time.Duration, stored []Hold) *Book {
	b := &Book{after: after, holds: map[Scope]*hold{}, of: map[object.ID]*hold{}}
	for _, s := range stored {
		b.holds[s.Scope()] = &hold{scope: s.Scope(), since: s.Since, waits: s.Waits, ids: map[object.ID]bool{}}
	}
	return b
}

// Has reports whether the removal of an object is held.
func (b *Book) Has(id object.ID) bool { return b.of[id] != nil }

// Objects lists all held objects, in order.
func (b *Book) Objects() []object.ID { return slices.SortedFunc(maps.Keys(b.of), object.ID.Compare) }

// Add records objects whose removal is held. everything reports whether no other object of a kind is left.
func (b *Book) Add(at time.Time, held map[Scope][]object.ID, everything func(kind object.ID) bool) {
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
			h.waits = h.waits || scope.Why != object.Unnamed && (Policy(id) || everything(KindOf(id)))
		}
		h.since = at
		h.rename()
	}
}

// Begin starts a comparison with the stored records. Objects that exist in the sources (there) stay held, and the
// others must be confirmed by Keep. End finishes the comparison.
func (b *Book) Begin(there func(object.ID) bool) {
	for _, h := range b.holds {
		if len(h.ids) > 0 {
			h.was = maps.Clone(h.ids)
		}
	}
	for id, h := range b.of {
		if !there(id) {
			delete(h.ids, id)
			delete(b.of, id)
		}
	}
}

// Keep records an object again that this leader or its predecessor held, and reports whether it did.
func (b *Book) Keep(id object.ID) bool {
	for scope, h := range b.holds {
		if scope.Covers(id) && !Never(id) && (h.was == nil || h.was[id]) {
			h.ids[id], b.of[id] = true, h
			return true
		}
	}
	return false
}

// End drops removals without objects.
func (b *Book) End() {
	for scope, h := range b.holds {
		if len(h.ids) == 0 {
			delete(b.holds, scope)
		} else if h.id == "" {
			h.rename()
		}
	}
}

// Back ends the hold of an object that exists again or is certainly gone.
func (b *Book) Back(id object.ID) {
	if h := b.of[id]; h != nil {
		delete(b.of, id)
		if delete(h.ids, id); len(h.ids) == 0 {
			delete(b.holds, h.scope)
		}
	}
}

// Take ends the removal with an ID and returns it with its objects, in order; false if there is no such removal.
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

// Holds lists the removals, the oldest first.
func (b *Book) Holds() []Hold {
	all := make([]Hold, 0, len(b.holds))
	for _, h := range b.holds {
		all = append(all, b.shown(h))
	}
	slices.SortFunc(all, func(a, b Hold) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all
}

// rename derives the removal's ID from its reason, time and objects.
func (h *hold) rename() {
	sum := sha256.New()
	fmt.Fprintln(sum, h.scope.Why, h.since.UnixNano())
	for _, id := range slices.SortedFunc(maps.Keys(h.ids), object.ID.Compare) {
		fmt.Fprintf(sum, "%q %q %q %q\n", id.Group, id.String(), id.Origin.Source(), id.Name)
	}
	h.id = hex.EncodeToString(sum.Sum(nil)[:5])
}

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

// clip cuts a foreign text between two characters.
func clip(s string) string {
	if len(s) > mostText {
		s = s[:mostText]
	}
	return strings.ToValidUTF8(s, "")
}
