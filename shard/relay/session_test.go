package relay

import (
	"errors"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/agentapi"
)

// script runs a session by hand: the test supplies events, and each call returns the effects.
type script struct {
	t   *testing.T
	s   *session
	now time.Time
}

func newScript(t *testing.T) *script {
	c := &script{t: t, now: time.Unix(1000, 0), s: &session{
		target: "t:1", follow: true, own: map[string]bool{agentapi.OwnerURL: true}, t: defaultTiming,
		pace: movePace{random: func() float64 { return 0.5 }, base: time.Second, max: time.Minute},
	}}
	c.do(started{})
	c.do(connReady{1})
	return c
}

func (c *script) do(e event) []effect { return c.s.step(c.now, e) }

func (c *script) after(d time.Duration) []effect {
	c.now = c.now.Add(d)
	return c.do(tick{})
}

func (c *script) ask(m *discoveryv3.DeltaDiscoveryRequest) []effect {
	data := encoded(m)
	head, err := scanRequest(data)
	return c.do(fromEnvoy{data, head, err})
}

func (c *script) answer(conn uint32, m *discoveryv3.DeltaDiscoveryResponse) []effect {
	data := encoded(m)
	head, err := scanResponse(data)
	return c.do(fromConn{conn, data, head, err})
}

// ups are the requests that go up, but for those for the owner.
func ups(effects []effect) (all []request) {
	for _, e := range effects {
		if e, is := e.(sendUp); is {
			if h, _ := scanRequest(e.data); h.typeURL != agentapi.OwnerURL {
				all = append(all, h)
			}
		}
	}
	return all
}

// question returns the request for the owner among effects; asked is false without one.
func question(effects []effect) (h request, asked bool) {
	for _, e := range effects {
		if e, is := e.(sendUp); is {
			if h, _ := scanRequest(e.data); h.typeURL == agentapi.OwnerURL && len(h.subscribe) > 0 {
				return h, true
			}
		}
	}
	return h, false
}

// has finds the effect of a type.
func has[E effect](effects []effect) (e E, is bool) {
	for _, x := range effects {
		if e, is = x.(E); is {
			return e, true
		}
	}
	return e, false
}

// A move waits until nothing is in flight; of a question that stays without an answer it waits only so long.
func TestMoveWaitsForQuiet(t *testing.T) {
	c := newScript(t)
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS})
	c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "1"})
	c.do(fromConn{1, ownerResponse("o:1", false), response{typeURL: agentapi.OwnerURL, nonce: "o"}, nil})
	if _, is := has[dial](c.after(time.Hour)); is {
		t.Fatal("moves with a response that is not acknowledged")
	}
	if at := c.s.wake(c.now); !at.Equal(c.now.Add(c.s.t.look)) {
		t.Errorf("looks again at %v", at)
	}
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResourceNamesSubscribe: []string{"e"}})
	if _, is := has[dial](c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS, ResponseNonce: "1"})); is {
		t.Fatal("moves with a question that is not answered")
	}
	d, is := has[dial](c.after(c.s.t.patience))
	if !is || d.addr != "o:1" {
		t.Fatal("a question without an answer keeps it for ever")
	}
	c.do(connReady{d.conn})
	c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "2"})
	if got := c.do(connProof{d.conn}); len(got) != 0 {
		t.Fatalf("moves with a response that came while it was let in: %v", got)
	}
	got := c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS, ResponseNonce: "2"})
	if up := ups(got); len(up) != 3 || up[0].nonce != "2" || up[1].typeURL != typeCDS || len(up[2].subscribe) != 1 {
		t.Fatalf("restated %+v", up)
	}
	if gone, is := has[drop](got); !is || gone.conn != 1 {
		t.Errorf("with nothing in flight: %v", got)
	}
	if got := ups(c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeRDS, ResourceNamesSubscribe: []string{"r"}})); len(got) != 1 {
		t.Errorf("after the move: %v", got)
	}
}

// If the stream never becomes idle, a new upstream is dropped after a while.
func TestMoveIsGivenUp(t *testing.T) {
	c := newScript(t)
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS})
	c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "1"})
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS, ResponseNonce: "1"})
	c.do(fromConn{1, ownerResponse("o:1", false), response{typeURL: agentapi.OwnerURL, nonce: "o"}, nil})
	d, is := has[dial](c.after(time.Hour))
	if !is {
		t.Fatal("does not move")
	}
	c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "2"})
	if got := ups(append(c.do(connReady{d.conn}), c.do(connProof{d.conn})...)); len(got) != 0 {
		t.Fatalf("moves with a response in flight: %v", got)
	}
	if at := c.s.wake(c.now); !at.Equal(c.now.Add(c.s.t.look)) {
		t.Errorf("looks again at %v", at)
	}
	got := c.after(c.s.t.patience)
	if n, is := has[notice](got); !is || n.what != moveFailed || !errors.Is(n.err, errBusy) {
		t.Errorf("got %v", got)
	}
	if gone, _ := has[drop](got); gone.conn != d.conn {
		t.Errorf("dropped connection %d", gone.conn)
	}
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS, ResponseNonce: "2"})
	if _, is := has[dial](c.do(tick{})); is {
		t.Error("tries again at once")
	}
	if _, is := has[dial](c.after(time.Second)); !is {
		t.Error("does not try again")
	}
	if got := c.do(fromConn{1, ownerResponse("o:1", true), response{typeURL: agentapi.OwnerURL, nonce: "o"}, nil}); len(got) != 3 {
		t.Errorf("with another answer, it does %v", got)
	} else if _, is := has[drop](got); !is {
		t.Errorf("with another answer, it goes on: %v", got)
	}
}

// On a later upstream, requests keep Envoy's meaning: an acknowledgement for the previous upstream is not sent, a
// subscription in it is; and a type without subscriptions is not requested.
func TestRequestsOnALaterUpstream(t *testing.T) {
	c := newScript(t)
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS})
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResourceNamesSubscribe: []string{"e"}})
	c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "1"})
	c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeEDS, Nonce: "2"})
	d, _ := has[dial](c.do(connEnded{1, errors.New("gone")}))
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResourceNamesUnsubscribe: []string{"e"}})
	if got := ups(c.do(connReady{d.conn})); len(got) != 1 || got[0].typeURL != typeCDS {
		t.Fatalf("restated %v", got)
	}
	if got := ups(c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS})); len(got) != 0 {
		t.Errorf("asks for all: %v", got)
	}
	nack := status.New(codes.Internal, "bad").Proto()
	got := ups(c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResponseNonce: "2", ErrorDetail: nack, ResourceNamesSubscribe: []string{"f"}}))
	if len(got) != 1 || got[0].nonce != "" || got[0].failed || len(got[0].subscribe) != 1 {
		t.Errorf("a subscription with an old nonce: %+v", got)
	}
	if got := ups(c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS, ResponseNonce: "1"})); len(got) != 0 {
		t.Errorf("an old answer: %v", got)
	}
	if got := ups(c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentapi.OwnerURL})); len(got) != 0 {
		t.Errorf("Envoy asks for an agent resource: %v", got)
	}
}

func (c *script) ownerIs(conn uint32, addr string, self bool) []effect {
	return c.do(fromConn{conn, ownerResponse(addr, self), response{typeURL: agentapi.OwnerURL, nonce: "o"}, nil})
}

// quiet is a stream with one type, and nothing in flight.
func (c *script) quiet() {
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS})
	c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "1"})
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS, ResponseNonce: "1"})
}

// Where nothing is subscribed nothing can be restated: the node goes up with the next request.
func TestNodeIsTheFirstWordOfEveryUpstream(t *testing.T) {
	c := newScript(t)
	c.ask(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: typeEDS, ResourceNamesSubscribe: []string{"e"}})
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResourceNamesUnsubscribe: []string{"e"}})
	d, _ := has[dial](c.do(connEnded{1, errors.New("gone")}))
	got := c.do(connReady{d.conn})
	if _, asks := has[ask](got); asks || len(ups(got)) != 0 {
		t.Errorf("said %v", got)
	}
	got = c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResourceNamesSubscribe: []string{"f"}})
	if up := ups(got); len(up) != 1 || up[0].node == nil || len(up[0].subscribe) != 1 {
		t.Errorf("said %+v", up)
	}
	if _, asks := has[ask](got); !asks {
		t.Error("asks for nothing of its own")
	}
	if up := ups(c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResourceNamesSubscribe: []string{"g"}})); len(up) != 1 || up[0].node != nil {
		t.Errorf("then said %+v", up)
	}
}

// A move waits at the owner with one request, while the live connection continues. The owner's first message means that
// the stream was admitted, and completes the move: Envoy's state is sent then, once, and the owner's responses count
// from then on.
func TestMoveIsLetInFirst(t *testing.T) {
	for name, sign := range map[string]func(*script, uint32) []effect{
		"headers":  func(c *script, conn uint32) []effect { return c.do(connProof{conn}) },
		"response": func(c *script, conn uint32) []effect { return c.ownerIs(conn, "o:1", true) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newScript(t)
			c.ask(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: typeCDS})
			c.quiet()
			c.ownerIs(1, "o:1", false)
			d, _ := has[dial](c.after(time.Hour))
			got := c.do(connReady{d.conn})
			if h, asked := question(got); !asked || h.node == nil || len(got) != 1 {
				t.Fatalf("waiting: %v", got)
			}
			got = c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "2"})
			if _, is := has[sendDown](got); !is || !c.s.reads() {
				t.Errorf("while it waits Envoy is not served: %v", got)
			}
			if up := ups(c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS, ResponseNonce: "2"})); len(up) != 1 || up[0].nonce != "2" {
				t.Errorf("while it waits Envoy is not heard: %v", up)
			}
			if at := c.s.wake(c.now); !at.Equal(c.now.Add(c.s.t.admission)) {
				t.Errorf("waits until %v", at)
			}
			got = sign(c, d.conn)
			if gone, is := has[drop](got); !is || gone.conn != 1 {
				t.Errorf("does %v", got)
			}
			up := ups(got)
			if name == "response" {
				if len(up) != 1 || c.s.known != "o:1" || !c.s.live.owner.Self {
					t.Errorf("said %+v, knows %+v", up, c.s.live)
				}
			}
			if len(up) != 1 || up[0].typeURL != typeCDS || up[0].node != nil {
				t.Errorf("said %+v", up)
			}
			if _, asks := has[ask](got); !asks {
				t.Error("asks for nothing of its own")
			}
			if _, again := question(got); again {
				t.Error("asks for the owner again")
			}
			if down, is := has[sendDown](c.answer(d.conn, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "2"})); !is {
				t.Error("Envoy is sent nothing")
			} else if h, _ := scanResponse(down.data); h.nonce == "2" {
				t.Errorf("Envoy is sent %+v", h)
			}
		})
	}
}

// A session that is refused by its new replica stays with the previous one, which has served it all the time, and tries
// again later.
func TestMoveThatIsNotLetIn(t *testing.T) {
	c := newScript(t)
	c.quiet()
	c.ownerIs(1, "o:1", false)
	d, _ := has[dial](c.after(time.Hour))
	c.do(connReady{d.conn})
	if got := c.after(c.s.t.admission - 1); len(got) != 0 {
		t.Errorf("waiting: %v", got)
	}
	got := c.after(1)
	if n, is := has[notice](got); !is || n.what != moveFailed || len(ups(got)) != 0 {
		t.Errorf("in the end: %v", got)
	}
	d, is := has[dial](c.after(time.Second))
	if !is || d.addr != "o:1" {
		t.Fatal("does not try again")
	}
	c.do(connReady{d.conn})
	d.conn++
	if again, is := has[dial](c.do(connEnded{1, errors.New("gone")})); is {
		t.Errorf("beside the one that waits it dials %+v", again)
	}
	if c.s.live.addr != "o:1" || len(c.s.mirror.types) != 1 || !c.s.live.open[typeCDS] {
		t.Errorf("the one that waits is not what is left: %+v", c.s.live)
	}
}

// Thousands of agents receive a new ring, or lose a replica, at once: their reactions are spread over time.
func TestStampedesAreSpread(t *testing.T) {
	c := newScript(t)
	c.quiet()
	if _, is := has[dial](c.ownerIs(1, "o:1", false)); is {
		t.Error("moves at once")
	}
	if at := c.s.wake(c.now); !at.Equal(c.now.Add(c.s.t.spread / 2)) {
		t.Errorf("moves at %v", at)
	}
	d, is := has[dial](c.after(c.s.t.spread / 2))
	if !is {
		t.Fatal("does not move")
	}
	c.do(connReady{d.conn})
	c.do(connProof{d.conn})
	d, is = has[dial](c.do(connEnded{d.conn, errors.New("gone")}))
	if !is || d.addr != "t:1" || d.after != c.s.t.resume/2 {
		t.Errorf("after the end of the owner: %+v", d)
	}
	d, _ = has[dial](c.do(connEnded{d.conn, errors.New("refused")}))
	if d.addr != "t:1" || d.after != 0 {
		t.Errorf("after a refused dial: %+v; the pace of dials spaces them", d)
	}
}

// A new stream of Envoy begins at the owner that was answered last, and at the target where that is gone.
func TestNewStreamBeginsAtTheOwner(t *testing.T) {
	s := &session{target: "t:1", follow: true, known: "o:1", own: map[string]bool{}, t: defaultTiming, pace: movePace{random: func() float64 { return 0 }, base: 1, max: 1}}
	now := time.Unix(0, 0)
	d, _ := has[dial](s.step(now, started{}))
	if d.addr != "o:1" || s.reads() {
		t.Errorf("begins with %+v", d)
	}
	d, _ = has[dial](s.step(now, connEnded{d.conn, errors.New("refused")}))
	if d.addr != "t:1" {
		t.Errorf("then %+v", d)
	}
	if end, is := has[finish](s.step(now, connEnded{d.conn, errors.New("refused")})); !is || end.err == nil {
		t.Error("goes on although nothing was read that it could say")
	}
}
