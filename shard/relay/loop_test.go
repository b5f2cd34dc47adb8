package relay

import (
	"context"
	"net"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/agentapi"
)

// While the new upstream does not let it in, the old one serves Envoy; from then on nothing of the old one reaches
// Envoy.
func TestOldUpstreamServesUntilTheNewOneLetsIn(t *testing.T) {
	m := newMesh()
	m.set(t, typeCDS, "c", "c1", text("cluster"))
	a := m.replica(t)
	heard, let := make(chan *discoveryv3.DeltaDiscoveryRequest, 16), make(chan struct{})
	closed, _ := startADS(t, "127.0.0.1:0", func(s deltaServer) error {
		go func() {
			for {
				req, err := s.Recv()
				if err != nil {
					return
				}
				heard <- req
			}
		}()
		select {
		case <-let:
		case <-s.Context().Done():
			return nil
		}
		if err := s.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: agentapi.OwnerURL, Nonce: "1"}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	})
	r := runRelay(t, Config{Target: a.addr, Follow: true}, quick)
	c := newDeltaClient(t, r)
	c.accept()
	m.setOwner(closed)
	if got := next(t, heard); got.Node == nil || got.TypeUrl != agentapi.OwnerURL {
		t.Errorf("first heard %v", got)
	}
	m.set(t, typeCDS, "c", "c2", text("changed"))
	if c.accept(); c.held["c"] != "c2" {
		t.Errorf("while the move waits Envoy was sent %v", c.held)
	}
	if s := r.Stats(); s.Moves != 0 || len(heard) != 0 {
		t.Errorf("moved before it was let in: %+v", s)
	}
	close(let)
	eventually(t, r, "moved", func(s Stats) bool { return s.Moves == 1 })
	m.set(t, typeCDS, "c", "c3", text("of the old one"))
	for said := false; !said; {
		got := next(t, heard)
		if said = got.TypeUrl == typeCDS; said && (got.Node != nil || got.InitialResourceVersions["c"] != "c2") {
			t.Errorf("after the move heard %v", got)
		}
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCDS, ResourceNamesSubscribe: []string{"more"}})
	for {
		if got := next(t, heard); got.TypeUrl == typeCDS {
			if len(got.ResourceNamesSubscribe) != 1 {
				t.Errorf("then heard %v", got)
			}
			return
		}
	}
}

type sotwServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	requests chan *discoveryv3.DiscoveryRequest
	end      chan struct{}
}

func (v *sotwServer) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	go func() {
		for {
			req, err := s.Recv()
			if err != nil {
				return
			}
			v.requests <- req
		}
	}()
	if err := s.Send(&discoveryv3.DiscoveryResponse{TypeUrl: typeCDS, Nonce: "1"}); err != nil {
		return err
	}
	<-v.end
	return nil
}

// A state-of-the-world stream passes as it is, without agent resources, and ends with its upstream.
func TestSotWPasses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &sotwServer{requests: make(chan *discoveryv3.DiscoveryRequest, 8), end: make(chan struct{})}
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, v)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	take := func(*discoveryv3.Resource) error { return nil }
	r := runRelay(t, Config{Target: l.Addr().String(), Follow: true, Own: []Subscription{{Type: typeTrust, Take: take}}}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c, err := clientOf(t, r).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, methodSotW, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []*discoveryv3.DiscoveryRequest{{Node: &corev3.Node{Id: "n"}, TypeUrl: typeCDS}, {TypeUrl: typeCDS, ResponseNonce: "1"}} {
		if err := c.SendMsg(req); err != nil {
			t.Fatal(err)
		}
		if got := next(t, v.requests); got.TypeUrl != typeCDS || got.ResponseNonce != req.ResponseNonce {
			t.Errorf("the control plane heard %v", got)
		}
	}
	var got discoveryv3.DiscoveryResponse
	if err := c.RecvMsg(&got); err != nil || got.Nonce != "1" {
		t.Errorf("received %v, %v", &got, err)
	}
	close(v.end)
	if err := c.RecvMsg(&got); status.Code(err) != codes.Unavailable {
		t.Errorf("ended with %v", err)
	}
	if len(v.requests) != 0 {
		t.Errorf("the control plane heard %v too", <-v.requests)
	}
}
