package removal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

var (
	at   = time.Unix(1e6, 0)
	kube = origin.New("", origin.Kube)
	west = origin.New("west", origin.Kube)
)

// some are objects "Kind namespace/n" with numbers from a first one on; a kind of the namespace "" is the cluster's.
func some(o origin.Origin, kind, namespace string, from, n int) (all []object.ID) {
	for i := range n {
		all = append(all, object.ID{Origin: o, Kind: kind, Namespace: namespace, Name: fmt.Sprint("o", from+i)})
	}
	return all
}

// without returns the sizes before a loss, and those without the lost and with the added objects.
func without(was, lost []object.ID, added ...object.ID) func() Sizes {
	s := Sizes{Before: map[object.ID]int{}, After: map[object.ID]int{}}
	for _, id := range was {
		s.Before[Population(id)]++
		s.After[Population(id)]++
	}
	for _, id := range lost {
		s.After[Population(id)]--
	}
	for _, id := range added {
		s.After[Population(id)]++
	}
	return func() Sizes { return s }
}

// text returns the held losses, sorted: "scope: number".
func text(held map[Scope][]object.ID) string {
	var all []string
	for scope, ids := range held {
		all = append(all, fmt.Sprintf("%s: %d", strings.TrimSpace(scope.Of.String()), len(ids)))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// Each reason holds losses by its own scope. A deletion by an API server is never held, however large.
// Promise: security-tenants.md#remove-many-objects
func TestJudgeByReason(t *testing.T) {
	services, policies := some(kube, "Service", "shop", 0, 10), some(kube, "AuthorizationPolicy", "shop", 0, 1)
	secrets := slices.Concat(some(kube, "Secret", "shop", 0, 9), some(kube, "ReferenceGrant", "shop", 0, 9), some(kube, "Role", "shop", 0, 9),
		some(kube, "RoleBinding", "shop", 0, 9), some(kube, "ClusterRole", "", 0, 9), some(kube, "ClusterRoleBinding", "", 0, 9))
	for _, c := range []struct {
		why  object.Why
		lost []object.ID
		want string
	}{
		{object.Deleted, services, ""},
		{object.Deleted, policies, ""},
		{object.Undefined, services[:1], "Service: 1"},
		{object.Undefined, slices.Concat(services, policies), "AuthorizationPolicy: 1; Service: 10"},
		{object.Rewound, services[:1], "Service: 1"},
		{object.Unread, services, "Service: 10"},
		{object.Unnamed, slices.Concat(some(west, "Service", "shop", 0, 3), some(west, "Pod", "shop", 0, 3)), "in cluster west: 6"},
		{object.Undefined, secrets, ""},
		{object.Rewound, secrets, ""},
		{object.Unread, secrets, ""},
		{object.Missing, secrets, ""},
	} {
		var losses []Loss
		for _, id := range c.lost {
			losses = append(losses, Loss{id, c.why})
		}
		var m Memory
		had := without(slices.Concat(services, policies, secrets), c.lost)
		if got := text(m.SelectHeld(at, losses, had)); got != c.want {
			t.Errorf("%v, %d objects: held %q, want %q", c.why, len(losses), got, c.want)
		}
	}
}

// Losses in a folder are held if everything vanishes, more than half of a kind in a namespace, or a kind in most of its
// namespaces. Objects of a vanished Namespace go at once, and one namespace's removals hold no other's.
// Promise: security-tenants.md#remove-many-objects
func TestJudgeFolders(t *testing.T) {
	f := origin.New("", origin.Files)
	of := func(kind, namespace string, from, n int) []object.ID { return some(f, kind, namespace, from, n) }
	namespace := func(names ...string) (all []object.ID) {
		for _, name := range names {
			all = append(all, object.ID{Origin: f, Kind: "Namespace", Name: name})
		}
		return all
	}
	spread := func(kind string, namespaces, each int) (all []object.ID) {
		for i := range namespaces {
			all = append(all, of(kind, fmt.Sprint("n", i), 0, each)...)
		}
		return all
	}
	rest := of("Node", "", 0, 1)
	for name, c := range map[string]struct {
		had, lost []object.ID
		want      string
		added     []object.ID
	}{
		"replaced by others":            {had: of("Service", "shop", 0, 10), lost: of("Service", "shop", 0, 10), added: of("Service", "shop", 10, 5)},
		"one of many":                   {of("Service", "shop", 0, 10), of("Service", "shop", 0, 1), "", nil},
		"half":                          {of("Service", "shop", 0, 10), of("Service", "shop", 0, 5), "", nil},
		"more than half":                {of("Service", "shop", 0, 10), of("Service", "shop", 0, 6), "Service in namespace shop: 6", nil},
		"all of a few":                  {of("Service", "shop", 0, 3), of("Service", "shop", 0, 3), "", nil},
		"everything":                    {nil, slices.Concat(of("Service", "shop", 0, 2), rest), ": 3", nil},
		"another tenant's policy":       {slices.Concat(of("Policy", "big", 0, 60), of("Policy", "small", 0, 1), of("Policy", "x", 0, 1)), slices.Concat(of("Policy", "big", 0, 60), of("Policy", "small", 0, 1)), "Policy in namespace big: 60", nil},
		"one of another tenant's":       {slices.Concat(spread("Policy", 9, 2), of("Policy", "big", 0, 60)), slices.Concat(of("Policy", "big", 0, 60), of("Policy", "n3", 0, 1)), "Policy in namespace big: 60", nil},
		"most namespaces":               {spread("Policy", 9, 2), spread("Policy", 5, 2), "Policy: 10", nil},
		"some namespaces":               {spread("Policy", 9, 2), spread("Policy", 4, 2), "", nil},
		"a little of most namespaces":   {spread("Policy", 9, 4), slices.Concat(of("Policy", "n1", 0, 2), of("Policy", "n2", 0, 2), of("Policy", "n3", 0, 2), of("Policy", "n4", 0, 2), of("Policy", "n5", 0, 2)), "", nil},
		"few namespaces":                {spread("Policy", 3, 2), spread("Policy", 2, 2), "", nil},
		"with its Namespace":            {slices.Concat(of("Service", "shop", 0, 10), namespace("shop", "x")), slices.Concat(of("Service", "shop", 0, 10), namespace("shop")), "", nil},
		"with another Namespace":        {slices.Concat(of("Service", "shop", 0, 10), namespace("shop", "x")), slices.Concat(of("Service", "shop", 0, 10), namespace("x")), "Service in namespace shop: 10", nil},
		"with most Namespaces":          {slices.Concat(of("Service", "shop", 0, 10), namespace("shop", "x", "y", "z")), slices.Concat(of("Service", "shop", 0, 10), namespace("shop", "x", "y")), "Namespace: 3; Service in namespace shop: 10", nil},
		"a cluster's kind, in its turn": {of("Node", "", 1, 10), of("Node", "", 1, 8), "Node: 8", nil},
	} {
		var losses []Loss
		for _, id := range c.lost {
			losses = append(losses, Loss{id, object.Missing})
		}
		had := slices.Concat(c.had, rest)
		if name == "everything" {
			had = c.lost
		}
		var m Memory
		if got := text(m.SelectHeld(at, losses, without(had, c.lost, c.added...))); got != c.want {
			t.Errorf("%s: held %q, want %q", name, got, c.want)
		}
	}
}

// Gradual losses in a folder of 20 objects or more are added up for ten minutes. The memory for that is bounded by
// time.
func TestLossesAreAddedUp(t *testing.T) {
	f := origin.New("", origin.Files)
	for name, c := range map[string]struct {
		were  int
		steps []int // how many are left
		pause time.Duration
		held  int
	}{
		"40 %, 40 %, 40 %":  {100, []int{60, 36}, time.Minute, 24},
		"one after another": {100, []int{90, 80, 70, 60, 50, 40}, time.Minute, 10},
		"slowly":            {100, []int{60, 36}, 10 * time.Minute, 0},
		"a few, by hand":    {19, []int{12, 8, 5}, time.Second, 0},
	} {
		var m Memory
		now, left, held := at, c.were, 0
		for _, n := range c.steps {
			var losses []Loss
			lost := some(f, "Service", "shop", n, left-n)
			for _, id := range lost {
				losses = append(losses, Loss{id, object.Missing})
			}
			held = 0
			for _, ids := range m.SelectHeld(now, losses, without(append(some(f, "Service", "shop", 0, left), some(f, "Node", "", 0, 1)...), lost)) {
				held += len(ids)
			}
			now, left = now.Add(c.pause), n
		}
		if held != c.held {
			t.Errorf("%s: %d are held at last, want %d", name, held, c.held)
		}
	}
	var m Memory
	for i := range 1000 {
		m.note(at.Add(time.Duration(i)*time.Second), object.ID{Kind: fmt.Sprint(i)}, sumFrom)
	}
	if n := len(m.peaks); n > int(sumFor/time.Second) {
		t.Errorf("%d populations are remembered", n)
	}
}

// A removal is accepted once, by an ID that identifies exactly its objects. A returned object is held no longer.
// Policies and whole kinds wait for acceptance.
// Promise: security-tenants.md#remove-many-objects
func TestBook(t *testing.T) {
	b := NewBook(time.Minute, nil)
	scope := func(kind string) Scope { return Scope{object.ID{Origin: kube, Kind: kind}, object.Rewound} }
	all := func(kind object.ID) bool { return kind.Kind == "Gateway" }
	add := func(ids ...object.ID) {
		held := map[Scope][]object.ID{}
		for _, id := range ids {
			held[scope(id.Kind)] = append(held[scope(id.Kind)], id)
		}
		b.Add(at, held, all)
	}
	services := some(kube, "Service", "shop", 0, 3)
	add(services[:2]...)
	first := b.Holds()
	if len(first) != 1 || first[0].Waits || !first[0].Ends.Equal(at.Add(time.Minute)) || first[0].Count != 2 || !strings.Contains(first[0].Message(), first[0].ID) {
		t.Fatalf("held %+v", first)
	}
	add(services[2], some(kube, "AuthorizationPolicy", "shop", 0, 1)[0], some(kube, "Gateway", "shop", 0, 1)[0])
	if _, _, ok := b.Take(first[0].ID); ok {
		t.Error("an ID of fewer objects is accepted")
	}
	for _, h := range b.Holds() {
		if h.Waits != (h.Kind != "Service") || h.Waits != h.Ends.IsZero() {
			t.Errorf("%+v", h)
		}
	}
	if b.Back(services[0]); b.Has(services[0]) || !b.Has(services[1]) {
		t.Error("what is back is held, or what is not is not")
	}
	for _, h := range b.Holds() {
		shown, ids, ok := b.Take(h.ID)
		if _, _, again := b.Take(h.ID); !ok || again || shown.Count != len(ids) || h.Kind == "Service" && !slices.Equal(ids, services[1:]) {
			t.Errorf("%s: %v, again %v, %v", h.Kind, ok, again, ids)
		}
	}
	if _, _, ok := b.Take(""); ok || len(b.Holds()) != 0 || len(b.Objects()) != 0 {
		t.Errorf("left: %v", b.Objects())
	}
	evil := object.ID{Origin: kube, Kind: strings.Repeat("ü", 400), Name: strings.Repeat("x", 400)}
	if add(evil); len(b.Holds()[0].Names[0]) > mostText {
		t.Error("names have no bound")
	}
}
