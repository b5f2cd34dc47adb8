package relay

import (
	"errors"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The answer to a response that the mirror cannot follow reaches the later upstream that sent it.
func TestStrangeResponsesAreAnswered(t *testing.T) {
	c := newScript(t)
	c.quiet()
	d, _ := has[dial](c.do(connEnded{1, errors.New("gone")}))
	c.do(connReady{d.conn})
	down, _ := has[sendDown](c.answer(d.conn, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "1",
		Resources: []*discoveryv3.Resource{{Name: "a", Version: "1", Ttl: durationpb.New(time.Minute)}}}))
	h, err := scanResponse(down.data)
	if err != nil {
		t.Fatal(err)
	}
	if up := ups(c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS, ResponseNonce: h.nonce})); len(up) != 1 || up[0].nonce != "1" {
		t.Errorf("said %+v", up)
	}
	if _, is := has[finish](c.do(connEnded{d.conn, errors.New("gone")})); !is {
		t.Error("the mirror is trusted")
	}
}

// The upstream of a move that takes the place of an ended one counts as the owner that it has named.
func TestOwnerOfAPromotedUpstream(t *testing.T) {
	c := newScript(t)
	c.quiet()
	c.ownerIs(1, "o:1", false)
	d, _ := has[dial](c.after(time.Hour))
	c.do(connReady{d.conn})
	c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "2"}) // keeps the move waiting
	c.ownerIs(d.conn, "o:1", true)
	var self bool
	for _, e := range c.do(connEnded{1, errors.New("gone")}) {
		if n, is := e.(notice); is && n.what == owned {
			self = n.self
		}
	}
	if c.s.live.id != d.conn || !self {
		t.Errorf("live is %+v, itself the owner: %t", c.s.live, self)
	}
}

// A refusal ends when Envoy unsubscribes from the refused resource.
func TestRefusalEndsWithTheSubscription(t *testing.T) {
	c := newScript(t)
	c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResourceNamesSubscribe: []string{"a", "b"}})
	c.answer(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeEDS, Nonce: "1", Resources: []*discoveryv3.Resource{{Name: "a"}, {Name: "b"}}})
	bad := status.New(codes.Internal, "bad").Proto()
	if r, _ := has[refusal](c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResponseNonce: "1", ErrorDetail: bad})); r.Total != 2 {
		t.Fatalf("refused %+v", r)
	}
	for left, name := range []string{"b", "a"} {
		r, is := has[refusal](c.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeEDS, ResourceNamesUnsubscribe: []string{name}}))
		if !is || r.Total != 1-left {
			t.Errorf("without %s: %+v", name, r)
		}
	}
}
