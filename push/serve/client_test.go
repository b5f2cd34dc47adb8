package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/xds"
)

type deltaClient = grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]

// client is a plain gRPC client.
type client struct {
	t *testing.T
	deltaClient
}

func dial(t *testing.T, addr string, opts ...grpc.CallOption) *client {
	t.Helper()
	service, ctx := connect(t, addr)
	s, err := service.DeltaAggregatedResources(ctx, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, s}
}

func dialSotW(t *testing.T, addr string) grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse] {
	t.Helper()
	service, ctx := connect(t, addr)
	s, err := service.StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func connect(t *testing.T, addr string) (discoveryv3.AggregatedDiscoveryServiceClient, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(65535), grpc.WithInitialConnWindowSize(65535), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() { cancel(); conn.Close() })
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn), ctx
}

func (c *client) ask(t xds.Type, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "test"}, TypeUrl: t.URL(), ResourceNamesSubscribe: names})
}

func (c *client) send(r *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	if err := c.Send(r); err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
}

func (c *client) ack(r *discoveryv3.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
}

func (c *client) nack(r *discoveryv3.DeltaDiscoveryResponse, text string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, ErrorDetail: failure(text)})
}

func failure(text string) *rpcstatus.Status { return &rpcstatus.Status{Code: 13, Message: text} }

func (c *client) next() *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	r, err := c.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// end waits for the stream to end and returns its status.
func (c *client) end() *status.Status {
	for {
		if _, err := c.Recv(); err != nil {
			return status.Convert(err)
		}
	}
}

func TestRefusedStreams(t *testing.T) {
	good := &corev3.Node{Id: "n"}
	for name, c := range map[string]struct {
		cfg    Config
		refuse error
		first  *discoveryv3.DeltaDiscoveryRequest
		code   codes.Code
		says   string
		behind string // the trailer
	}{
		"no node":         {first: &discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL()}, code: codes.InvalidArgument, says: "no node"},
		"a long id":       {first: &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: strings.Repeat("n", 1025)}}, code: codes.InvalidArgument, says: "node.id: 1025 bytes"},
		"no id":           {first: &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Cluster: "c"}}, code: codes.InvalidArgument, says: "node.id"},
		"planner refuses": {refuse: errors.New(`id "n": not type~ip~id~domain`), first: &discoveryv3.DeltaDiscoveryRequest{Node: good}, code: codes.InvalidArgument, says: "type~ip"},
		"behind":          {refuse: fmt.Errorf("join: %w", &BehindError{Revision: 8, Err: errors.New("etcd is away")}), first: &discoveryv3.DeltaDiscoveryRequest{Node: good}, code: codes.Unavailable, says: "at revision 8: etcd is away", behind: "8"},
		"not ready":       {refuse: fmt.Errorf("mirror: %w", ErrNotReady), first: &discoveryv3.DeltaDiscoveryRequest{Node: good}, code: codes.Unavailable, says: "snapshot"},
		"status is kept":  {refuse: status.Error(codes.ResourceExhausted, "later"), first: &discoveryv3.DeltaDiscoveryRequest{Node: good}, code: codes.ResourceExhausted, says: "later"},
		"cannot tell now": {cfg: Config{Authenticate: func(context.Context) (attest.Caller, error) {
			return attest.Caller{}, fmt.Errorf("keys: %w", attest.ErrUnavailable)
		}}, first: &discoveryv3.DeltaDiscoveryRequest{Node: good}, code: codes.Unavailable, says: "not authenticated"},
		"not authenticated": {cfg: Config{Authenticate: func(context.Context) (attest.Caller, error) { return attest.Caller{}, errors.New("no token") }}, first: &discoveryv3.DeltaDiscoveryRequest{Node: good}, code: codes.Unauthenticated, says: "no token"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlanner()
			p.refuse = c.refuse
			c.cfg.Planner = p
			s, addr := start(t, c.cfg)
			cl := dial(t, addr)
			cl.send(c.first)
			if got := cl.end(); got.Code() != c.code || !strings.Contains(got.Message(), c.says) {
				t.Errorf("%v", got)
			}
			if got := strings.Join(cl.Trailer().Get("navarch-behind"), " "); got != c.behind {
				t.Errorf("the trailer says %q, want %q", got, c.behind)
			}
			if n := len(s.Inspect()); n != 0 {
				t.Errorf("%d streams are left", n)
			}
		})
	}
}

// rawCodec sends bytes unchanged.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer("GET / HTTP/1.1\r\n\r\n")}, nil
}

// Promise: security-limits.md#streams-connections-and-messages
func TestGarbageEndsOnlyItsStream(t *testing.T) {
	_, addr := start(t, Config{Planner: newPlanner(cluster("a"))})
	fine := dial(t, addr)
	fine.ask(xds.Cluster)
	fine.ack(fine.next())
	bad := dial(t, addr, grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")}))
	bad.send(&discoveryv3.DeltaDiscoveryRequest{})
	if got := bad.end(); got.Code() != codes.InvalidArgument || !strings.Contains(got.Message(), "not protobuf") {
		t.Errorf("%v", got)
	}
	fine.ask(xds.Listener)
	if r := fine.next(); r.TypeUrl != xds.Listener.URL() {
		t.Errorf("%v", r)
	}
}

func TestTypesThatAreNotServedAreIgnored(t *testing.T) {
	p := newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p})
	c := dial(t, addr)
	for _, url := range []string{"type.googleapis.com/istio.v1.HealthInformation", "type.googleapis.com/istio.networking.nds.v1.NameTable", ""} {
		c.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "test"}, TypeUrl: url})
	}
	c.ask(xds.Cluster)
	if r := c.next(); len(r.Resources) != 1 {
		t.Errorf("%v", r)
	}
	c.CloseSend()
	if _, err := c.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream that its client ends: %v", err)
	}
	eventually(t, "the view is left", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.views) == 0 && len(s.Inspect()) == 0 })
}

func TestAckDeadline(t *testing.T) {
	timeouts := make(chan bool, 10)
	_, addr := start(t, Config{Planner: newPlanner(cluster("a")), AckDeadline: 2 * time.Second, Hooks: Hooks{Timeout: func(write bool) { timeouts <- write }}})
	polite, rude := dial(t, addr), dial(t, addr)
	polite.ask(xds.Cluster)
	polite.ack(polite.next())
	rude.ask(xds.Cluster)
	rude.next() // and never sends an ACK
	if got := rude.end(); got.Code() != codes.Unavailable {
		t.Errorf("%v", got)
	}
	if <-timeouts {
		t.Error("counted as a write timeout")
	}
	polite.ask(xds.Listener)
	polite.next()
}

// padded returns a cluster of about n bytes; another version gives another cluster.
func padded(name string, n int, version string) *clusterv3.Cluster {
	c := clusterMessage(name)
	c.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"test": {Fields: map[string]*structpb.Value{
		"pad": structpb.NewStringValue(version + strings.Repeat("x", n))}}}}
	return c
}

func large(name string, n int, version string) *xds.Resource {
	return encode(xds.Cluster, name, padded(name, n, version), xds.Ref{Type: xds.Endpoint, Name: name})
}

// A client that stops reading costs a reference to one message, and does not delay the others.
func TestSlowReader(t *testing.T) {
	p := newPlanner(large("a", 1<<20, "0"), endpoints("a", "127.0.0.1:1"))
	write := make(chan bool, 10)
	s, addr := start(t, Config{Planner: p, Workers: 1, WriteTimeout: 2 * time.Second, Hooks: Hooks{Timeout: func(w bool) { write <- w }}})
	slow := dial(t, addr)
	slow.ask(xds.Cluster) // reads nothing; its 1 MB exceeds the flow control window
	eventually(t, "a response is in flight to the slow one", func() bool { i := s.Inspect(); return len(i) == 1 && i[0].Types[xds.Cluster].InFlight == 1 })

	fast := dial(t, addr)
	fast.ask(xds.Cluster)
	fast.ack(fast.next())
	before := heap()
	const pushes = 40
	for i := range pushes { // a worker that writes to the slow client would block for ever
		p.put(large("a", 1<<20, fmt.Sprint(i+1)))
		fast.ack(fast.next())
	}
	eventually(t, "the heap is what it was before 40 MiB were pushed", func() bool { return heap()-before < 8<<20 })
	for _, i := range s.Inspect() {
		if n := i.Types[xds.Cluster].InFlight; n > 1 {
			t.Errorf("%d responses in flight", n)
		}
	}
	// The slow client's first endpoints are sent outside the credit. They block a goroutine of the stream, not the worker,
	// and end the stream after the write timeout.
	slow.ask(xds.Endpoint, "a")
	eventually(t, "the answer waits", func() bool {
		for _, i := range s.Inspect() {
			if i.Types[xds.Endpoint].InFlight == 1 {
				return true
			}
		}
		return false
	})
	p.put(large("a", 1<<20, "last"))
	fast.ack(fast.next())
	if !<-write {
		t.Error("not counted as a write timeout")
	}
	eventually(t, "only the fast one is left", func() bool { return len(s.Inspect()) == 1 })
	p.put(large("a", 1<<20, "very last"))
	fast.ack(fast.next())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
