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

// holder is a client of an agent resource, as simple as it can be said.
type holder struct {
	all     bool
	names   map[string]bool
	holds   map[string]string // name -> version
	refused string            // the newest version that it refused, unless it took another one or asked again
	due     map[string]bool   // asked for by name, and not answered
	flight  *notice
}

func (h *holder) wants(name string) bool { return h.all || h.names[name] }

// match is an agent resource and its client, with the resource as it is now.
type match struct {
	*testing.T
	*rand.Rand
	seed         uint64
	subscription *agentSubscription
	h            *holder
	pool         []*AgentResource
	res          *AgentResource
}

func (m *match) check(ok bool, format string, args ...any) {
	if !ok {
		m.Fatalf("seed %d: %s; the client: %+v", m.seed, fmt.Sprintf(format, args...), m.h)
	}
}

func (m *match) ask(q *discoveryv3.DeltaDiscoveryRequest) {
	m.subscription.request(agentRequest(m.T, q), m.res)
}

// send is the agent resource's turn.
func (m *match) send() {
	n, ok := m.subscription.next(agentURL, 1, m.res, time.Now())
	if !ok {
		return
	}
	h := m.h
	m.check(h.flight == nil, "two in flight")
	m.check(n.resource != nil || len(n.removed) > 0, "an empty response")
	if n.resource != nil {
		m.check(h.wants(n.resource.Name), "not asked for: %s", n.resource.Name)
		m.check(h.holds[n.resource.Name] != n.resource.Version || h.due[n.resource.Name], "sent again: %s", n.resource.Name)
		m.check(n.resource.Version != h.refused, "sent again although refused")
		m.check(!slices.Contains(n.removed, n.resource.Name), "set and removed")
		delete(h.due, n.resource.Name)
	}
	for _, name := range n.removed {
		m.check(h.due[name] || h.holds[name] != "", "removed, neither held nor asked for: %s", name)
		delete(h.due, name)
	}
	h.flight = &n
}

// answer has the client take what is in flight, or refuse it.
func (m *match) answer(refuse bool) {
	h, n := m.h, m.h.flight
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
	if !refuse && n.resource != nil {
		h.refused = ""
		if h.wants(n.resource.Name) {
			h.holds[n.resource.Name] = n.resource.Version
		}
	}
	h.flight = nil
	m.ask(q)
}

// begin asks for everything, or for one name.
func (m *match) begin() {
	if m.IntN(2) == 0 {
		m.h.all = true
		m.ask(&discoveryv3.DeltaDiscoveryRequest{})
		return
	}
	m.h.names["A"], m.h.due["A"] = true, true
	m.ask(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"A"}})
}

// step has something happen.
func (m *match) step(name string) {
	h := m.h
	switch m.IntN(6) {
	case 0:
		m.res = m.pool[m.IntN(len(m.pool))]
	case 1, 2:
		m.answer(m.IntN(3) == 0)
	case 3:
		if h.flight != nil { // as agents do: one thing at a time
			break
		}
		if h.refused = ""; name == wildcard {
			h.all = true
		} else {
			h.names[name], h.due[name] = true, true
		}
		m.ask(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{name}})
	case 4:
		if h.flight != nil || m.IntN(2) == 0 {
			break
		}
		if delete(h.names, name); name == wildcard {
			h.all = false
		}
		delete(h.due, name)
		maps.DeleteFunc(h.holds, func(n string, _ string) bool { return !h.wants(n) })
		m.ask(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{name}})
	}
}

// end checks what the client holds once all is answered.
func (m *match) end() {
	h, res := m.h, m.res
	m.check(h.flight == nil, "it never ends")
	want := map[string]string{}
	if res != nil && h.wants(res.Name) && res.Version != h.refused {
		want[res.Name] = res.Version
	}
	if res != nil && res.Version == h.refused && h.wants(res.Name) {
		return // it holds what it had
	}
	m.check(maps.Equal(h.holds, want), "there is %v", want)
	m.check(len(h.due) == 0, "not answered")
}

// Whatever a client asks for, takes and refuses, and however the resource changes: once all is answered, it holds exactly
// what there is of what it asked for (or, where it refused that, what it had), every name that it asked for was answered,
// and nothing is sent that it has.
func TestAgentSubscriptionModel(t *testing.T) {
	pool := []*AgentResource{nil, agentResource(t, "A", "1"), agentResource(t, "A", "2"), agentResource(t, "A", "3"), agentResource(t, "B", "1"), agentResource(t, "B", "2")}
	names := []string{"A", "B", "C", wildcard}
	for seed := range uint64(3000) {
		m := &match{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), seed: seed, subscription: &agentSubscription{}, pool: pool,
			h: &holder{names: map[string]bool{}, holds: map[string]string{}, due: map[string]bool{}}}
		m.res = pool[m.IntN(len(pool))]
		m.begin()
		for range 40 {
			m.step(names[m.IntN(len(names))])
			m.send()
		}
		for range 5 {
			m.answer(false)
			m.send()
		}
		m.end()
	}
}
