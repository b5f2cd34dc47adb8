package ingest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"navarch.io/navarch/store/object"
)

func callOf(namespaces ...string) Emit {
	var all Objects
	for i, n := range namespaces {
		all = append(all, object.Event{Op: object.Put, ID: object.ID{Kind: "Service", Namespace: n, Name: fmt.Sprint(i)}})
	}
	return Emit{Objects: all}
}

// A call waits for one call of each other namespace, and not for all that a tenant has emitted before it.
func TestNamespacesTakeTurnsInLine(t *testing.T) {
	var l line
	for range 1000 {
		l.add(Emits{callOf("evil", "evil")})
	}
	l.add(Emits{callOf("shop"), callOf("back"), callOf("shop")})
	var order []string
	for range 6 {
		order = append(order, l.next().Objects[0].ID.Namespace)
	}
	if want := []string{"evil", "shop", "back", "evil", "shop", "evil"}; !slices.Equal(order, want) {
		t.Errorf("applied are %v, want %v", order, want)
	}
}

// Whatever comes when: every call is applied once, those of one namespace in their order, and none passes a call about
// several namespaces or about a source.
func TestOrderOfLine(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var l line
		var came, went []Emit
		alone := map[string]bool{}
		take := func() {
			if !l.empty() {
				went = append(went, l.next())
			}
		}
		for i := range 300 {
			e := callOf(fmt.Sprint("ns", r.IntN(4)))
			kind := r.IntN(12)
			alone[fmt.Sprint(i)] = kind < 3
			switch kind {
			case 0:
				e = callOf("ns0", "ns1")
			case 1:
				e.Objects[0].Op = object.Synced
			case 2:
				e.Objects[0].Op = object.Forget
			}
			e.Objects[0].ID.Name = fmt.Sprint(i)
			came = append(came, e)
			if l.add(Emits{e}); r.IntN(3) == 0 {
				take()
			}
		}
		for !l.empty() {
			take()
		}
		lines := func(all []Emit) (of map[string][]string) {
			of = map[string][]string{}
			for _, e := range all {
				name := e.Objects[0].ID.Name
				if !alone[name] {
					namespace := e.Objects[0].ID.Namespace
					of[namespace] = append(of[namespace], name)
					continue
				}
				for i := range 4 { // it is in every line
					of[fmt.Sprint("ns", i)] = append(of[fmt.Sprint("ns", i)], name)
				}
			}
			return of
		}
		want, got := lines(came), lines(went)
		for namespace := range want {
			if len(went) != len(came) || !slices.Equal(got[namespace], want[namespace]) {
				t.Fatalf("seed %d, %s: %v, want %v", seed, namespace, got[namespace], want[namespace])
			}
		}
	}
}
