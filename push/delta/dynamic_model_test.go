package delta

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"navarch.io/navarch/push/manifest"
)

// holder is a simple model of a client of a dynamic type.
type holder struct {
	all   bool
	names map[string]bool
	holds map[string]string // name -> version
	// refused is the newest version that the client refused, or empty if it has accepted one or subscribed again since
	// then.
	refused string
	due     map[string]bool // subscribed by name, and not answered yet
	flight  *Reply
}

func (h *holder) wants(name string) bool { return h.all || h.names[name] }

// match is a stream and its client, with the current resource.
type match struct {
	*testing.T
	*rand.Rand
	seed  uint64
	state *State
	h     *holder
	pool  []manifest.Stack
	there manifest.Stack
}

func (m *match) check(ok bool, format string, args ...any) {
	if !ok {
		m.Fatalf("seed %d: %s; the client: %+v", m.seed, fmt.Sprintf(format, args...), m.h)
	}
}

func (m *match) ask(q dynamicRequest) { m.state.Request(q.request(), nil) }

// send is a turn of the stream.
func (m *match) send() {
	m.state.Offer(Dynamic(0), m.there)
	n, ok := m.state.Next()
	if !ok {
		return
	}
	h := m.h
	m.check(h.flight == nil, "two in flight")
	m.check(len(n.Set) == 1 || len(n.Set) == 0 && len(n.Removed) > 0, "%d resources", len(n.Set))
	for _, r := range n.Set {
		m.check(h.wants(r.Name), "not asked for: %s", r.Name)
		m.check(h.holds[r.Name] != r.Version || h.due[r.Name], "sent again: %s", r.Name)
		m.check(r.Version != h.refused, "sent again although refused")
		m.check(!slices.Contains(n.Removed, r.Name), "set and removed")
		delete(h.due, r.Name)
	}
	for _, name := range n.Removed {
		m.check(h.due[name] || h.holds[name] != "", "removed, neither held nor asked for: %s", name)
		delete(h.due, name)
	}
	h.flight = &n
}

// answer makes the client accept or refuse the response in flight.
func (m *match) answer(refuse bool) {
	h, n := m.h, m.h.flight
	if n == nil {
		return
	}
	if !refuse || len(n.Set) == 0 { // a removal cannot be refused
		for _, name := range n.Removed {
			delete(h.holds, name)
		}
	}
	for _, r := range n.Set {
		if refuse {
			h.refused = r.Version
			continue
		}
		h.refused = ""
		if h.wants(r.Name) {
			h.holds[r.Name] = r.Version
		}
	}
	h.flight = nil
	m.ask(dynamicRequest{nonce: n.Nonce, failed: refuse})
}

// begin subscribes to all names, or to one.
func (m *match) begin() {
	if m.IntN(2) == 0 {
		m.h.all = true
		m.ask(dynamicRequest{})
		return
	}
	m.h.names["A"], m.h.due["A"] = true, true
	m.ask(dynamicRequest{subscribe: []string{"A"}})
}

// step makes a random event.
func (m *match) step(name string) {
	h := m.h
	switch m.IntN(6) {
	case 0:
		m.there = m.pool[m.IntN(len(m.pool))]
	case 1, 2:
		m.answer(m.IntN(3) == 0)
	case 3:
		if h.flight != nil { // like agents: one response at a time
			break
		}
		if h.refused = ""; name == wildcard {
			h.all = true
		} else {
			h.names[name], h.due[name] = true, true
		}
		m.ask(dynamicRequest{subscribe: []string{name}})
	case 4:
		if h.flight != nil || m.IntN(2) == 0 {
			break
		}
		if delete(h.names, name); name == wildcard {
			h.all = false
		}
		delete(h.due, name)
		maps.DeleteFunc(h.holds, func(n string, _ string) bool { return !h.wants(n) })
		m.ask(dynamicRequest{unsubscribe: []string{name}})
	}
}

// end checks the client's resources after all responses are answered.
func (m *match) end() {
	h, res := m.h, only(m.there)
	m.check(h.flight == nil, "it never ends")
	want := map[string]string{}
	if res != nil && h.wants(res.Name) && res.Version != h.refused {
		want[res.Name] = res.Version
	}
	if res != nil && res.Version == h.refused && h.wants(res.Name) {
		return // it keeps its previous resources
	}
	m.check(maps.Equal(h.holds, want), "there is %v", want)
	m.check(len(h.due) == 0, "not answered")
}

// Whatever a client subscribes to, accepts and refuses, and however the resource changes: when all is answered, the
// client has exactly the existing resources that it subscribed to (or, after a refusal, its previous ones), each
// subscribed name was answered, and no resource is sent that it already has.
func TestDynamicTypeModel(t *testing.T) {
	pool := []manifest.Stack{{}, one(t, "A", "1"), one(t, "A", "2"), one(t, "A", "3"), one(t, "B", "1"), one(t, "B", "2")}
	names := []string{"A", "B", "C", wildcard}
	for seed := range uint64(3000) {
		m := &match{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), seed: seed, state: dynamicState(false), pool: pool,
			h: &holder{names: map[string]bool{}, holds: map[string]string{}, due: map[string]bool{}}}
		m.there = pool[m.IntN(len(pool))]
		m.state.Offer(Dynamic(0), m.there)
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
