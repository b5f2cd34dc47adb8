package serve

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// holder is a client of an aside, as simple as it can be said.
type holder struct {
	all     bool
	names   map[string]bool
	holds   map[string]string // name -> version
	refused string            // the newest version that it refused, unless it took another one or asked again
	owed    map[string]bool   // asked for by name, and not answered
	flight  *note
}

func (h *holder) wants(name string) bool { return h.all || h.names[name] }

// Whatever a client asks for, takes and refuses, and however the resource changes: once all is answered, it holds exactly
// what there is of what it asked for (or, where it refused that, what it had), every name that it asked for was answered,
// and nothing is sent that it has.
func TestAsideModel(t *testing.T) {
	pool := []*AsideResource{nil, aside(t, "A", "1"), aside(t, "A", "2"), aside(t, "A", "3"), aside(t, "B", "1"), aside(t, "B", "2")}
	names := []string{"A", "B", "C", wildcard}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, h, res := &side{}, &holder{names: map[string]bool{}, holds: map[string]string{}, owed: map[string]bool{}}, pool[r.IntN(len(pool))]
		check := func(ok bool, format string, args ...any) {
			if !ok {
				t.Fatalf("seed %d: %s; the client: %+v", seed, fmt.Sprintf(format, args...), h)
			}
		}
		ask := func(q *discoveryv3.DeltaDiscoveryRequest) { s.request(asideRequest(t, q), res) }
		send := func() {
			n, ok := s.next(sideURL, 1, res, time.Now())
			if !ok {
				return
			}
			check(h.flight == nil, "two in flight")
			check(n.resource != nil || len(n.removed) > 0, "an empty response")
			if n.resource != nil {
				check(h.wants(n.resource.Name), "not asked for: %s", n.resource.Name)
				check(h.holds[n.resource.Name] != n.resource.Version || h.owed[n.resource.Name], "sent again: %s", n.resource.Name)
				check(n.resource.Version != h.refused, "sent again although refused")
				check(!slices.Contains(n.removed, n.resource.Name), "set and removed")
				delete(h.owed, n.resource.Name)
			}
			for _, name := range n.removed {
				check(h.owed[name] || h.holds[name] != "", "removed, neither held nor asked for: %s", name)
				delete(h.owed, name)
			}
			h.flight = &n
		}
		answer := func(refuse bool) {
			n := h.flight
			if n == nil {
				return
			}
			q := &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: n.nonce}
			if refuse {
				q.ErrorDetail = failure("no")
				if n.resource != nil {
					h.refused = n.resource.Version
				}
			}
			if !refuse || n.resource == nil { // there is nothing in a removal to refuse
				for _, name := range n.removed {
					delete(h.holds, name)
				}
			}
			if !refuse {
				if n.resource != nil {
					h.refused = ""
					if h.wants(n.resource.Name) {
						h.holds[n.resource.Name] = n.resource.Version
					}
				}
			}
			h.flight = nil
			ask(q)
		}
		first := r.IntN(2) == 0
		if h.all = first; first {
			ask(&discoveryv3.DeltaDiscoveryRequest{})
		} else {
			h.names["A"], h.owed["A"] = true, true
			ask(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"A"}})
		}
		for range 40 {
			switch name := names[r.IntN(len(names))]; r.IntN(6) {
			case 0:
				res = pool[r.IntN(len(pool))]
			case 1, 2:
				answer(r.IntN(3) == 0)
			case 3:
				if h.flight != nil { // as agents do: one thing at a time
					break
				}
				if h.refused = ""; name == wildcard {
					h.all = true
				} else {
					h.names[name], h.owed[name] = true, true
				}
				ask(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{name}})
			case 4:
				if h.flight != nil || r.IntN(2) == 0 {
					break
				}
				if delete(h.names, name); name == wildcard {
					h.all = false
				}
				delete(h.owed, name)
				maps.DeleteFunc(h.holds, func(n string, _ string) bool { return !h.wants(n) })
				ask(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{name}})
			}
			send()
		}
		for range 5 {
			answer(false)
			send()
		}
		check(h.flight == nil, "it never ends")
		want := map[string]string{}
		if res != nil && h.wants(res.Name) && res.Version != h.refused {
			want[res.Name] = res.Version
		}
		if res != nil && res.Version == h.refused && h.wants(res.Name) {
			continue // it holds what it had
		}
		check(maps.Equal(h.holds, want), "there is %v", want)
		check(len(h.owed) == 0, "not answered")
	}
}
