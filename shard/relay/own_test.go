package relay

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/agentapi"
)

const typeTrust = "type.googleapis.com/trust"

// deltaClient is a minimal Envoy: it subscribes to all clusters, and accepts every response.
type deltaClient struct {
	t *testing.T
	grpc.ClientStream
	held map[string]string
}

func newDeltaClient(t *testing.T, r *Relay) *deltaClient {
	t.Helper()
	c := &deltaClient{t: t, ClientStream: openDelta(t, clientOf(t, r)), held: map[string]string{}}
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: typeCDS})
	return c
}

func (c *deltaClient) send(m *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	if err := c.SendMsg(m); err != nil {
		c.t.Fatal(err)
	}
}

func (c *deltaClient) receive() *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	var m discoveryv3.DeltaDiscoveryResponse
	if err := c.RecvMsg(&m); err != nil {
		c.t.Fatal(err)
	}
	if m.TypeUrl != typeCDS {
		c.t.Fatalf("Envoy saw an agent resource: %v", &m)
	}
	for _, r := range m.Resources {
		c.held[r.Name] = r.Version
	}
	for _, name := range m.RemovedResources {
		delete(c.held, name)
	}
	return &m
}

// accept receives a response and acknowledges it.
func (c *deltaClient) accept() *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	m := c.receive()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
	return m
}

// seen polls the requests of one type on the nth stream of a replica until ok holds.
func (v *replica) seen(n int, url string, ok func([]*discoveryv3.DeltaDiscoveryRequest) bool) []*discoveryv3.DeltaDiscoveryRequest {
	v.t.Helper()
	var of []*discoveryv3.DeltaDiscoveryRequest
	until(v.t, "requests of "+url, func() bool {
		_, all := v.stream(n)
		of = slices.DeleteFunc(all, func(r *discoveryv3.DeltaDiscoveryRequest) bool { return r.TypeUrl != url })
		return ok(of)
	})
	return of
}

func quick(r *Relay) {
	r.timing.spread, r.timing.between, r.timing.longest, r.timing.resume = 0, time.Millisecond, 10*time.Millisecond, 0
}

// next receives, within the deadline.
func next[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(deadline):
		t.Fatal("did not happen in time")
	}
	return v
}

func text(s string) *wrapperspb.StringValue { return wrapperspb.String(s) }

// The agent's own types are requested after Envoy's first request, without a node, and Envoy sees none of their
// responses. Accepted resources are acknowledged, refused ones are refused with the reason, and the next upstream
// receives the accepted versions.
func TestOwnSubscriptions(t *testing.T) {
	m := newMesh()
	m.set(t, typeCDS, "c", "c1", text("cluster"))
	m.set(t, typeTrust, "ROOTCA", "t1", text("one"))
	a, b := m.replica(t), m.replica(t)
	tooks := make(chan string, 8)
	var fail error
	var mu sync.Mutex
	r := runRelay(t, Config{Target: a.addr, Follow: true, Own: []Subscription{{Type: typeTrust, Names: []string{"ROOTCA"}, Take: func(r *discoveryv3.Resource) error {
		mu.Lock()
		defer mu.Unlock()
		var s wrapperspb.StringValue
		if err := r.GetResource().UnmarshalTo(&s); err != nil {
			return err
		}
		tooks <- s.Value
		return fail
	}}}}, quick)
	c := newDeltaClient(t, r)
	c.accept()
	if got := next(t, tooks); got != "one" {
		t.Errorf("took %q", got)
	}
	asked := a.seen(0, typeTrust, func(of []*discoveryv3.DeltaDiscoveryRequest) bool { return len(of) == 2 })
	if asked[0].Node != nil || !slices.Equal(asked[0].ResourceNamesSubscribe, []string{"ROOTCA"}) || asked[1].ResponseNonce == "" || asked[1].ErrorDetail != nil {
		t.Errorf("asked %v", asked)
	}
	if _, all := a.stream(0); all[0].TypeUrl != typeCDS || all[0].Node == nil {
		t.Errorf("the first request is %v", all[0])
	}

	mu.Lock()
	fail = errors.New("no such root")
	mu.Unlock()
	m.set(t, typeTrust, "ROOTCA", "t2", text("two"))
	asked = a.seen(0, typeTrust, func(of []*discoveryv3.DeltaDiscoveryRequest) bool { return len(of) == 3 })
	if got := asked[2].ErrorDetail.GetMessage(); got != "ROOTCA: no such root" || next(t, tooks) != "two" {
		t.Errorf("refused with %q", got)
	}
	m.change(func() { delete(m.resources[typeTrust], "ROOTCA") })
	asked = a.seen(0, typeTrust, func(of []*discoveryv3.DeltaDiscoveryRequest) bool { return len(of) == 4 })
	if asked[3].ErrorDetail != nil || len(tooks) != 0 {
		t.Errorf("a removal was answered with %v, or told", asked[3])
	}

	m.setOwner(b.addr)
	asked = b.seen(0, typeTrust, func(of []*discoveryv3.DeltaDiscoveryRequest) bool { return len(of) >= 1 })
	if v := asked[0].InitialResourceVersions; len(v) != 1 || v["ROOTCA"] != "t1" {
		t.Errorf("said to the next upstream: %v", v)
	}
	m.set(t, typeCDS, "c", "c2", text("changed"))
	if c.accept(); c.held["c"] != "c2" {
		t.Errorf("after the move: %v", c.held)
	}
	s := eventually(t, r, "counts", func(s Stats) bool { return s.Moves == 1 })
	if s.Taken != 1 || s.Refused != 1 || s.Owner != b.addr {
		t.Errorf("stats: %+v", s)
	}
}

// A Take that does not return delays its own type only.
func TestSlowTakeHoldsUpNobody(t *testing.T) {
	m := newMesh()
	m.set(t, typeCDS, "c", "c1", text("cluster"))
	m.set(t, typeTrust, "ROOTCA", "t1", text("one"))
	a := m.replica(t)
	entered, release := make(chan struct{}), make(chan struct{})
	r := runRelay(t, Config{Target: a.addr, Own: []Subscription{{Type: typeTrust, Take: func(*discoveryv3.Resource) error {
		close(entered)
		<-release
		return nil
	}}}}, quick)
	c := newDeltaClient(t, r)
	c.accept()
	next(t, entered)
	m.set(t, typeCDS, "c", "c2", text("changed"))
	if c.accept(); c.held["c"] != "c2" {
		t.Errorf("got %v", c.held)
	}
	if asked := a.seen(0, typeTrust, func(of []*discoveryv3.DeltaDiscoveryRequest) bool { return len(of) > 0 }); len(asked) != 1 || len(asked[0].ResourceNamesSubscribe) != 0 {
		t.Errorf("answered before it was taken, or not a wildcard: %v", asked)
	}
	close(release)
	a.seen(0, typeTrust, func(of []*discoveryv3.DeltaDiscoveryRequest) bool { return len(of) == 2 })
}

// Of the responses that arrive while Take runs, the newest of each resource is used, one version once, and every
// response is acknowledged.
func TestTakerTakesTheNewest(t *testing.T) {
	entered, release := make(chan string, 8), make(chan struct{}, 8)
	tk := newTaker(Subscription{Type: typeTrust, Take: func(r *discoveryv3.Resource) error {
		entered <- r.Name + r.Version
		<-release
		if r.Name == "b" {
			return errors.New("bad")
		}
		return nil
	}}, func(error) {})
	answers := make(chan error, 8)
	submit := func(removed []string, resources ...string) {
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeTrust, RemovedResources: removed}
		for _, r := range resources {
			m.Resources = append(m.Resources, &discoveryv3.Resource{Name: r[:1], Version: r[1:]})
		}
		tk.submit(encoded(m), func(err error) { answers <- err })
	}
	submit(nil, "a1")
	if got := next(t, entered); got != "a1" {
		t.Fatal(got)
	}
	submit(nil, "a2", "x1")
	submit([]string{"x"}, "b1")
	submit(nil, "a3")
	release <- struct{}{}
	for _, want := range []string{"a3", "b1"} {
		if got := next(t, entered); got != want {
			t.Errorf("took %s, want %s", got, want)
		}
		release <- struct{}{}
	}
	if err := next(t, answers); err != nil {
		t.Errorf("the first was refused: %v", err)
	}
	for range 3 {
		if err := next(t, answers); err == nil || err.Error() != "b: bad" {
			t.Errorf("answered with %v", err)
		}
	}
	submit(nil, "a3")
	if err := next(t, answers); err != nil {
		t.Error(err)
	}
	data := message([]byte{0xff})
	tk.submit(data, func(err error) { answers <- err })
	if err := next(t, answers); err == nil {
		t.Error("took what is not protobuf")
	}
	head, err := scanRequest(tk.ask())
	if err != nil || len(head.initial) != 1 || head.initial[0] != (named{"a", "3"}) || head.typeURL != typeTrust {
		t.Errorf("asks with %+v, %v", head, err)
	}
}

func TestNewChecksOwn(t *testing.T) {
	take := func(*discoveryv3.Resource) error { return nil }
	for name, own := range map[string][]Subscription{
		"twice":   {{Type: "t", Take: take}, {Type: "t", Take: take}},
		"no take": {{Type: "t"}},
		"no type": {{Take: take}},
		"owner":   {{Type: agentapi.OwnerURL, Take: take}},
	} {
		if _, err := New(Config{Socket: "/s", Target: "t:1", Credentials: plaintext, Own: own}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
