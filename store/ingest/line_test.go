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
// Promise: security-tenants.md#stop-or-slow-the-control-plane
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

// A call about several namespaces is applied as a whole while none of them has many calls before it. Otherwise it is
// divided, so a tenant's calls delay no others, wherever calls about several namespaces are.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestCallsAboutNamespacesOfALongLine(t *testing.T) {
	var l line
	l.add(Emits{callOf("evil"), callOf("shop", "evil")})
	if l.next(); len(l.next().Objects) != 2 || !l.empty() {
		t.Error("a call that waits for one other call is divided")
	}
	for range 1000 { // as of a folder that is read as a whole again and again, or of a duty of the leader
		l.add(Emits{callOf("evil"), callOf("evil", "back"), callOf("evil", "shop")})
	}
	l.add(Emits{callOf("shop"), callOf("quiet")})
	applied, quiet := 0, -1
	for shop := 0; shop < 1001; applied++ {
		for _, o := range l.next().Objects {
			switch o.ID.Namespace {
			case "shop":
				shop++
			case "quiet":
				quiet = applied
			}
		}
	}
	if quiet < 0 || quiet > 3 {
		t.Errorf("a call waits for %d others (-1: for all), want one of each other namespace", quiet)
	}
	// Of evil and of back as many are applied meanwhile, and those that calls of shop waited for.
	if most := 3*1001 + 10*maxBefore; applied > most {
		t.Errorf("1,001 calls about shop are applied among %d, want at most %d", applied, most)
	}
}

// Whatever comes when: every call is applied once, those of one namespace in their order, and none passes a call
// about its namespace and others, or about a source.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
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
			alone[fmt.Sprint(i)] = kind == 1 || kind == 2
			switch kind {
			case 0:
				e = callOf("ns0", "ns1")
			case 1:
				e.Objects[0].Op = object.Synced
			case 2:
				e.Objects[0].Op = object.Forget
			}
			for at := range e.Objects {
				e.Objects[at].ID.Name = fmt.Sprint(i)
			}
			came = append(came, e)
			if l.add(Emits{e}); r.IntN(1+2*int(seed%3)) == 0 {
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
					for _, o := range e.Objects { // a call may come in two parts
						of[o.ID.Namespace] = append(of[o.ID.Namespace], name)
					}
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
			if !slices.Equal(got[namespace], want[namespace]) {
				t.Fatalf("seed %d, %s: %v, want %v", seed, namespace, got[namespace], want[namespace])
			}
		}
	}
}
