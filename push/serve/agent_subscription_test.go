package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/delta"
)

const agentURL = "navarch.io/test"

// board is an agent resource that a test changes.
type board struct {
	res   atomic.Pointer[AgentResource]
	asked atomic.Int32
}

func (b *board) agentType() AgentType {
	return AgentType{TypeURL: agentURL, Resource: func(Client, View) *AgentResource { b.asked.Add(1); return b.res.Load() }}
}

func agentResource(t testing.TB, name, content string) *AgentResource {
	t.Helper()
	r, err := EncodeAgentResource(name, structpb.NewStringValue(content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// request is one as it comes from the wire.
func agentRequest(t *testing.T, r *discoveryv3.DeltaDiscoveryRequest) delta.Message {
	t.Helper()
	raw, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	m, err := delta.ParseDelta(raw)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// subscriptionStep is what happens to an agent resource, and what is sent then; the client takes it.
type subscriptionStep struct {
	ask  *discoveryv3.DeltaDiscoveryRequest // or
	put  *AgentResource                     // what there is from now on
	take bool                               // there is nothing from now on
	nack bool                               // the response is refused
	want string
}

// follow goes through steps; labels says by version what a resource is called in them.
func follow(t *testing.T, steps []subscriptionStep, labels map[string]string, other *AgentResource) {
	s := &agentSubscription{}
	var res *AgentResource
	for i, do := range steps {
		switch {
		case do.ask != nil:
			s.request(agentRequest(t, do.ask), res)
		case do.take:
			res = nil
		default:
			res = do.put
		}
		var got []string
		n, ok := s.next(agentURL, 1, res, time.Now())
		if n.resource != nil {
			got = append(got, n.resource.Name+labels[n.resource.Version])
		}
		for _, removed := range n.removed {
			got = append(got, "-"+removed)
		}
		if strings.Join(got, " ") != do.want || ok != (do.want != "") {
			t.Fatalf("step %d: sent %q, want %q", i, got, do.want)
		}
		if !ok {
			continue
		}
		if _, again := s.next(agentURL, 1, other, time.Now()); again {
			t.Fatalf("step %d: two in flight", i)
		}
		stale := agentRequest(t, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "a0"})
		if _, acked := s.request(stale, res); acked != 0 || s.nonce == 0 {
			t.Fatalf("step %d: another nonce acknowledged it", i)
		}
		answer := &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: n.nonce}
		if do.nack {
			answer.ErrorDetail = failure("no")
		}
		if refusal, acked := s.request(agentRequest(t, answer), res); acked != n.size || (refusal != "") != do.nack {
			t.Fatalf("step %d: %q, %d bytes of %d", i, refusal, acked, n.size)
		}
	}
}

// The rules of one agent resource on one stream: steps are requests and changes, each followed by what is sent (names+versions, and
// removals with a minus), acknowledged at once unless the step says otherwise.
func TestAgentSubscriptionProtocol(t *testing.T) {
	a1, a2, b1 := agentResource(t, "A", "1"), agentResource(t, "A", "2"), agentResource(t, "B", "1")
	type request = discoveryv3.DeltaDiscoveryRequest
	first := func(names ...string) *request { return &request{ResourceNamesSubscribe: names} }
	claims := func(v map[string]string, names ...string) *request {
		return &request{ResourceNamesSubscribe: names, InitialResourceVersions: v}
	}
	labels := map[string]string{a1.Version: "1", a2.Version: "2"}
	for name, steps := range map[string][]subscriptionStep{
		"wildcard":                {{put: a1}, {ask: first(), want: "A1"}, {put: a1}, {put: a2, want: "A2"}},
		"by name":                 {{put: a1}, {ask: first("A"), want: "A1"}, {put: a2, want: "A2"}},
		"another name":            {{put: a1}, {ask: first("B"), want: "-B"}, {put: a2}, {put: b1, want: "B1"}},
		"nothing, wildcard":       {{ask: first()}, {put: a1, want: "A1"}},
		"nothing, by name":        {{ask: first("A"), want: "-A"}, {put: a1, want: "A1"}, {take: true, want: "-A"}, {put: a1, want: "A1"}},
		"held":                    {{put: a1}, {ask: claims(map[string]string{"A": a1.Version}, "A")}, {put: a2, want: "A2"}},
		"held, wildcard":          {{put: a1}, {ask: claims(map[string]string{"A": a1.Version})}, {put: a2, want: "A2"}},
		"held another version":    {{put: a2}, {ask: claims(map[string]string{"A": a1.Version}, "A"), want: "A2"}},
		"held what is gone":       {{ask: claims(map[string]string{"A": a1.Version}), want: "-A"}, {put: a1, want: "A1"}},
		"held another name":       {{put: b1}, {ask: claims(map[string]string{"A": a1.Version}), want: "B1 -A"}},
		"renamed":                 {{put: a1}, {ask: first(), want: "A1"}, {put: b1, want: "B1 -A"}},
		"asked again":             {{put: a1}, {ask: first("A"), want: "A1"}, {ask: first("A"), want: "A1"}, {ask: &request{}}},
		"no longer wanted":        {{put: a1}, {ask: first("A"), want: "A1"}, {ask: &request{ResourceNamesUnsubscribe: []string{"A"}}}, {put: a2}},
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

// A client cannot make a stream remember more than a few names.
func TestAgentResourceNamesAreBounded(t *testing.T) {
	s := &agentSubscription{}
	for i := range 1000 {
		s.request(agentRequest(t, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{fmt.Sprint("n", i)}}), nil)
	}
	if len(s.names) > maxAgentNames || len(s.awaited) > maxAgentNames {
		t.Errorf("%d names, %d owed", len(s.names), len(s.awaited))
	}
	many := map[string]string{}
	var names []string
	for i := range 1000 {
		many[fmt.Sprint("n", i)] = "v"
		names = append(names, fmt.Sprint("n", i))
	}
	s = &agentSubscription{}
	s.request(agentRequest(t, &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: many, ResourceNamesSubscribe: names}), nil)
	if len(s.names) > maxAgentNames || len(s.awaited) > maxAgentNames {
		t.Errorf("first request: %d names, %d owed", len(s.names), len(s.awaited))
	}
}

// Names of any length are asked for; a few short ones are remembered.
func TestLongAgentResourceNames(t *testing.T) {
	long := strings.Repeat("n", maxAgentName+1)
	for _, world := range []bool{false, true} {
		s := &agentSubscription{sotw: world}
		m := delta.Message{}
		m.Subscribe = slices.Values([]string{long, "short"})
		m.Initial = maps.All(map[string]string{long: long})
		s.request(m, nil)
		m = delta.Message{}
		m.Subscribe = slices.Values([]string{long + "2", "short"})
		s.request(m, nil)
		if !slices.Equal(s.names, []string{"short"}) || slices.ContainsFunc(s.awaited, func(n string) bool { return n != "short" }) {
			t.Errorf("world %t: %d names, %d to be answered", world, len(s.names), len(s.awaited))
		}
	}
}
