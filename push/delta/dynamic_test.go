package delta

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// one returns a stack with one resource of a dynamic type.
func one(t testing.TB, name, content string) (s manifest.Stack) {
	t.Helper()
	r, err := xds.EncodeAny(name, xds.Any(structpb.NewStringValue(content)))
	if err != nil {
		t.Fatal(err)
	}
	s[manifest.Scope] = manifest.Of(r)
	return s
}

// only returns the resource of a stack; nil if the stack is empty.
func only(s manifest.Stack) *xds.Resource {
	for r := range s.All() {
		return r
	}
	return nil
}

// dynamicState returns a stream whose first dynamic type has no subscription yet.
func dynamicState(sotw bool) *State {
	s := New(Config{SotW: sotw, Dynamic: []string{"navarch.io/test", "navarch.io/other"}}, &manifest.Set{Revision: 1})
	s.Open(Dynamic(0))
	return s
}

// dynamicRequest is a request for the first dynamic type, in the form that agents send.
type dynamicRequest struct {
	subscribe, unsubscribe []string
	initial                map[string]string
	nonce                  string
	failed                 bool
}

func (r dynamicRequest) request() Request {
	out := Request{Type: Dynamic(0), Nonce: r.nonce, Failed: r.failed, Error: "no"}
	if r.subscribe != nil {
		out.Subscribe = slices.Values(r.subscribe)
	}
	if r.unsubscribe != nil {
		out.Unsubscribe = slices.Values(r.unsubscribe)
	}
	if r.initial != nil {
		out.Initial = maps.All(r.initial)
	}
	return out
}

// dynamicStep is a request or a change of the resource, with the expected response, which the client accepts.
type dynamicStep struct {
	ask  *dynamicRequest // either this
	put  manifest.Stack  // or the new stack
	take bool            // or the resource is removed
	nack bool            // the response is refused
	want string
}

// follow runs the steps; labels maps versions to the names that the steps use for them.
func follow(t *testing.T, steps []dynamicStep, labels map[string]string, other manifest.Stack) {
	s := dynamicState(false)
	var there manifest.Stack
	for i, do := range steps {
		switch {
		case do.ask != nil:
			s.Request(do.ask.request(), nil)
		case do.take:
			there = manifest.Stack{}
		default:
			there = do.put
		}
		s.Offer(Dynamic(0), there)
		var got []string
		n, ok := s.Next()
		for _, r := range n.Set {
			got = append(got, r.Name+labels[r.Version])
		}
		for _, removed := range n.Removed {
			got = append(got, "-"+removed)
		}
		if strings.Join(got, " ") != do.want || ok != (do.want != "") {
			t.Fatalf("step %d: sent %q, want %q", i, got, do.want)
		}
		if !ok {
			continue
		}
		s.Offer(Dynamic(0), other)
		if _, again := s.Next(); again {
			t.Fatalf("step %d: two in flight", i)
		}
		s.Offer(Dynamic(0), there)
		if got := s.Request(dynamicRequest{nonce: "999"}.request(), nil); s.Unacked() == 0 || len(got) != 1 || got[0].Kind != Expired {
			t.Fatalf("step %d: another nonce acknowledged it", i)
		}
		reports := s.Request(dynamicRequest{nonce: n.Nonce, failed: do.nack}.request(), nil)
		if s.Unacked() != 0 || len(reports) != 1 || (reports[0].Kind == Nacked) != do.nack {
			t.Fatalf("step %d: %+v, %d bytes in flight of %d", i, reports, s.Unacked(), n.Size)
		}
	}
}

// The rules for one dynamic type on one stream. The steps are requests and changes, each with the response that must
// follow (names+versions, removals with a minus), which is acknowledged at once unless the step refuses it.
func TestDynamicTypeProtocol(t *testing.T) {
	a1, a2, b1 := one(t, "A", "1"), one(t, "A", "2"), one(t, "B", "1")
	first := func(names ...string) *dynamicRequest { return &dynamicRequest{subscribe: names} }
	resumes := func(v map[string]string, names ...string) *dynamicRequest {
		return &dynamicRequest{subscribe: names, initial: v}
	}
	v1 := only(a1).Version
	labels := map[string]string{v1: "1", only(a2).Version: "2"}
	for name, steps := range map[string][]dynamicStep{
		"wildcard":                {{put: a1}, {ask: first(), want: "A1"}, {put: a1}, {put: a2, want: "A2"}},
		"by name":                 {{put: a1}, {ask: first("A"), want: "A1"}, {put: a2, want: "A2"}},
		"another name":            {{put: a1}, {ask: first("B"), want: "-B"}, {put: a2}, {put: b1, want: "B1"}},
		"nothing, wildcard":       {{ask: first()}, {put: a1, want: "A1"}},
		"nothing, by name":        {{ask: first("A"), want: "-A"}, {put: a1, want: "A1"}, {take: true, want: "-A"}, {put: a1, want: "A1"}},
		"held":                    {{put: a1}, {ask: resumes(map[string]string{"A": v1}, "A")}, {put: a2, want: "A2"}},
		"held, wildcard":          {{put: a1}, {ask: resumes(map[string]string{"A": v1})}, {put: a2, want: "A2"}},
		"held another version":    {{put: a2}, {ask: resumes(map[string]string{"A": v1}, "A"), want: "A2"}},
		"held what is gone":       {{ask: resumes(map[string]string{"A": v1}), want: "-A"}, {put: a1, want: "A1"}},
		"held another name":       {{put: b1}, {ask: resumes(map[string]string{"A": v1}), want: "B1 -A"}},
		"renamed":                 {{put: a1}, {ask: first(), want: "A1"}, {put: b1, want: "B1 -A"}},
		"asked again":             {{put: a1}, {ask: first("A"), want: "A1"}, {ask: first("A"), want: "A1"}, {ask: &dynamicRequest{}}},
		"no longer wanted":        {{put: a1}, {ask: first("A"), want: "A1"}, {ask: &dynamicRequest{unsubscribe: []string{"A"}}}, {put: a2}},
		"refused":                 {{put: a1}, {ask: first("A"), want: "A1"}, {put: a2, nack: true, want: "A2"}, {put: a2}, {put: a1}, {put: a2}},
		"refused, asked again":    {{put: a1}, {ask: first("A"), nack: true, want: "A1"}, {ask: first("A"), want: "A1"}},
		"refused, another":        {{put: a1}, {ask: first("A"), nack: true, want: "A1"}, {put: a2, want: "A2"}, {put: a1, want: "A1"}},
		"refused removal":         {{put: a1}, {ask: first("A"), want: "A1"}, {take: true, nack: true, want: "-A"}, {take: true}, {put: a1, want: "A1"}},
		"refused, then gone":      {{put: a1}, {ask: first("A"), want: "A1"}, {put: a2, nack: true, want: "A2"}, {take: true, want: "-A"}},
		"first refused, gone":     {{put: a1}, {ask: first("A"), nack: true, want: "A1"}, {take: true}},
		"refused under a new one": {{put: a1}, {ask: first(), want: "A1"}, {put: b1, nack: true, want: "B1 -A"}, {put: b1}, {put: a2, want: "A2"}},
	} {
		t.Run(name, func(t *testing.T) { follow(t, steps, labels, a2) })
	}
}

// A refusal is reported with the refused version, the version that stays, and the client's message.
func TestDynamicRefusalIsReported(t *testing.T) {
	a1, a2 := one(t, "A", "1"), one(t, "A", "2")
	s := dynamicState(false)
	s.Offer(Dynamic(0), a1)
	s.Request(dynamicRequest{}.request(), nil)
	r, _ := s.Next()
	s.Request(dynamicRequest{nonce: r.Nonce}.request(), nil)
	s.Offer(Dynamic(0), a2)
	r, _ = s.Next()
	got := s.Request(dynamicRequest{nonce: r.Nonce, failed: true}.request(), nil)
	want := Report{Kind: Nacked, Type: Dynamic(0), Nonce: r.Nonce, Revision: 1, Name: "A", Version: only(a2).Version, Good: only(a1).Version, Text: "no"}
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A client cannot make a stream remember more than a few names.
// Promise: security-limits.md#streams-connections-and-messages
func TestDynamicNamesAreBounded(t *testing.T) {
	keeps := func(s *State) (names, overrides int) {
		return s.dynamic[0].names.Len(), len(s.dynamic[0].overrides)
	}
	for _, wild := range []bool{false, true} {
		s := dynamicState(false)
		if wild {
			s.Request(dynamicRequest{}.request(), nil)
		}
		for i := range 1000 {
			s.Request(dynamicRequest{subscribe: []string{fmt.Sprint("n", i)}}.request(), nil)
		}
		if names, awaited := keeps(s); names > maxDynamicNames || awaited > maxDynamicNames {
			t.Errorf("wildcard %t: %d names, %d to be answered", wild, names, awaited)
		}
		if s.LeftOut() == 0 || s.Again() {
			t.Errorf("wildcard %t: %d were left out, the client has to come again: %t", wild, s.LeftOut(), s.Again())
		}
	}
	many := map[string]string{}
	var names []string
	for i := range 1000 {
		many[fmt.Sprint("n", i)] = "v"
		names = append(names, fmt.Sprint("n", i))
	}
	for _, subscribe := range [][]string{names, nil} {
		s := dynamicState(false)
		s.Request(dynamicRequest{subscribe: subscribe, initial: many}.request(), nil)
		if names, awaited := keeps(s); names > maxDynamicNames || awaited > maxDynamicNames {
			t.Errorf("first request: %d names, %d to be answered", names, awaited)
		}
	}
}

// Names of any length may be subscribed to; a few short ones are remembered.
// Promise: security-limits.md#streams-connections-and-messages
func TestLongDynamicNames(t *testing.T) {
	long := strings.Repeat("n", maxDynamicName+1)
	for _, sotw := range []bool{false, true} {
		s := dynamicState(sotw)
		s.Request(dynamicRequest{subscribe: []string{long, "short"}, initial: map[string]string{long: long}}.request(), nil)
		s.Request(dynamicRequest{subscribe: []string{long + "2", "short"}}.request(), nil)
		d := s.dynamic[0]
		if !slices.Equal(d.names.All(), []string{"short"}) || slices.ContainsFunc(slices.Collect(maps.Keys(d.overrides)), func(n string) bool { return n != "short" }) {
			t.Errorf("state of the world %t: %d names, %d to be answered", sotw, d.names.Len(), len(d.overrides))
		}
	}
}

// On a state-of-the-world stream an existing resource is sent, and a missing one causes no response; a removal is an
// empty response if a resource was sent before.
func TestDynamicTypeOnSotWStream(t *testing.T) {
	a1, a2 := one(t, "A", "1"), one(t, "A", "2")
	for _, names := range [][]string{nil, {"A"}} {
		s := dynamicState(true)
		version := ""
		step := func(there manifest.Stack, want int, sent bool) {
			t.Helper()
			s.Offer(Dynamic(0), there)
			r, ok := s.Next()
			if ok != sent || len(r.Set) != want || ok && (r.Version == "") != (want == 0) || ok && r.Version == version {
				t.Fatalf("names %v: sent %t, %d resources, version %q", names, ok, len(r.Set), r.Version)
			}
			if version = r.Version; ok {
				s.Request(dynamicRequest{nonce: r.Nonce, subscribe: names}.request(), nil)
			}
		}
		s.Request(dynamicRequest{subscribe: names}.request(), nil)
		step(manifest.Stack{}, 0, false)
		step(a1, 1, true)
		step(a1, 0, false)
		step(a2, 1, true)
		step(manifest.Stack{}, 0, true)
		step(a1, 1, true)
	}
}
