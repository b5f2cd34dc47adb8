package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/loopback"
)

const deadline = time.Minute

// fakeADS hands each delta stream to the test.
type fakeADS struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	serve func(discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error
}

func (f *fakeADS) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return f.serve(s)
}

type deltaServer = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer

// startADS serves on a free port, or on addr.
func startADS(t *testing.T, addr string, serve func(deltaServer) error) (string, *grpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, &fakeADS{serve: serve})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String(), s
}

func plaintext() (credentials.TransportCredentials, error) { return insecure.NewCredentials(), nil }

// startRelay runs a relay to target until the test ends and returns it with a client of its socket.
func startRelay(t *testing.T, target string, md func() (metadata.MD, error)) (*Relay, *grpc.ClientConn) {
	t.Helper()
	r := runRelay(t, Config{Target: target, Metadata: md}, nil)
	return r, clientOf(t, r)
}

// runRelay runs a relay until the test ends. It fills in the socket and the credentials; tune may shorten its timing.
func runRelay(t *testing.T, cfg Config, tune func(*Relay)) *Relay {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay") // t.TempDir can pass the limit of a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if cfg.Socket = filepath.Join(dir, "XDS"); cfg.Credentials == nil {
		cfg.Credentials = plaintext
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if tune != nil {
		tune(r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(deadline):
			t.Error("Run did not end with its context")
		}
	})
	return r
}

func clientOf(t *testing.T, r *Relay) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+r.cfg.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func openDelta(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, methodDelta, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually reads the counters until ok holds: they are written just after a message was handed on.
func eventually(t *testing.T, r *Relay, what string, ok func(Stats) bool) Stats {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(deadline); ; <-tick.C {
		s := r.Stats()
		if ok(s) {
			return s
		}
		if time.Now().After(limit) {
			t.Fatalf("%s: %+v", what, s)
		}
	}
}

// unknown is a message with a field that no schema has: a relay that decodes and encodes may move or drop it.
func unknown(m proto.Message) []byte {
	b := protowire.AppendTag(nil, 999, protowire.BytesType)
	b = protowire.AppendBytes(b, []byte("kept"))
	known, _ := proto.Marshal(m)
	return append(b, known...)
}

func TestMessagesPassUnchangedAndCounted(t *testing.T) {
	request := unknown(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t"})
	response := unknown(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: "t", Nonce: strings.Repeat("n", 100_000)})
	headers := make(chan metadata.MD, 1)
	addr, _ := startADS(t, "127.0.0.1:0", func(s deltaServer) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		headers <- md
		req, err := s.Recv()
		if err != nil {
			return err
		}
		if !strings.Contains(string(req.ProtoReflect().GetUnknown()), "kept") || req.TypeUrl != "t" {
			return errors.New("unknown field lost")
		}
		var out discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(response, &out); err != nil {
			return err
		}
		if err := s.Send(&out); err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	})
	r, conn := startRelay(t, addr, func() (metadata.MD, error) { return metadata.Pairs("ClusterID", "east", "x-a", "b"), nil })
	s := openDelta(t, conn)
	var req discoveryv3.DeltaDiscoveryRequest
	if err := proto.Unmarshal(request, &req); err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(&req); err != nil {
		t.Fatal(err)
	}
	var resp discoveryv3.DeltaDiscoveryResponse
	if err := s.RecvMsg(&resp); err != nil {
		t.Fatal(err)
	}
	sent, _ := proto.MarshalOptions{Deterministic: true}.Marshal(&resp)
	if len(sent) != len(response) || !bytes.Contains(sent, []byte("kept")) {
		t.Errorf("response of %d bytes arrived with %d", len(response), len(sent))
	}
	if md := <-headers; md.Get("clusterid")[0] != "east" || md.Get("x-a")[0] != "b" {
		t.Errorf("headers upstream: %v", md)
	}
	stats := eventually(t, r, "counts", func(s Stats) bool { return s.Total.Responses == 1 && s.Total.Requests == 1 })
	if stats.Total.RequestBytes != uint64(len(request)) || stats.Total.ResponseBytes != uint64(len(response)) {
		t.Errorf("counted %d up and %d down, want %d and %d", stats.Total.RequestBytes, stats.Total.ResponseBytes, len(request), len(response))
	}
	if stats.Total.SocketReadBytes <= stats.Total.ResponseBytes || !stats.Connected || stats.LastConnect == nil {
		t.Errorf("socket counters or state: %+v", stats)
	}
}

// A stream ends with its upstream, and the next one states that to the restored control plane.
func TestStreamEndsWithItsUpstream(t *testing.T) {
	opened := make(chan struct{}, 8)
	serve := func(s deltaServer) error {
		opened <- struct{}{}
		<-s.Context().Done()
		return nil
	}
	addr, srv := startADS(t, loopback.For(t), serve)
	r, conn := startRelay(t, addr, nil)
	s := openDelta(t, conn)
	wait(t, opened)
	srv.Stop()
	if err := s.RecvMsg(&discoveryv3.DeltaDiscoveryResponse{}); status.Code(err) != codes.Unavailable {
		t.Fatalf("stream ended with %v, want Unavailable", err)
	}
	eventually(t, r, "disconnected", func(s Stats) bool { return !s.Connected && s.StreamsActive == 0 && s.LastError != "" })

	refused := openDelta(t, conn)
	if err := refused.RecvMsg(&discoveryv3.DeltaDiscoveryResponse{}); status.Code(err) != codes.Unavailable {
		t.Fatalf("with the control plane away: %v, want Unavailable", err)
	}
	startADS(t, addr, serve)
	for attempt := 0; ; attempt++ { // as Envoy does: again until it is there
		openDelta(t, conn)
		select {
		case <-opened:
		case <-time.After(paceMax + time.Second):
			if attempt == 20 {
				t.Fatal("control plane is back and no stream reached it")
			}
			continue
		}
		break
	}
	st := eventually(t, r, "connected again", func(s Stats) bool { return s.Connected })
	if st.LastError != "" || st.Connects != 2 {
		t.Errorf("after the return: %+v", st)
	}
}

// A control plane that is away receives few dials, however often Envoy connects.
func TestDialsArePaced(t *testing.T) {
	_, conn := startRelay(t, "127.0.0.1:1", nil) // no process listens there
	start := time.Now()
	for i := range 5 {
		s := openDelta(t, conn)
		if err := s.RecvMsg(&discoveryv3.DeltaDiscoveryResponse{}); status.Code(err) != codes.Unavailable {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
	// Holds before attempts 2 to 5: at least half of 0.1, 0.2, 0.4 and 0.8 s.
	if took := time.Since(start); took < 750*time.Millisecond {
		t.Errorf("5 attempts within %v", took)
	}
}

func TestPacer(t *testing.T) {
	random := 0.0
	p := newPacer(func() float64 { return random })
	now := time.Unix(0, 0)
	if w := p.wait(now); w != 0 {
		t.Fatalf("first dial waits %v", w)
	}
	for i, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
		p.failed(now)
		if w := p.wait(now); w != want*time.Millisecond {
			t.Errorf("after %d failures: %v, want %v ms", i+1, w, want)
		}
	}
	random = 0.999
	p.failed(now)
	if w := p.wait(now); w < 1900*time.Millisecond || w > paceMax {
		t.Errorf("jittered wait %v", w)
	}
	p.worked()
	if w := p.wait(now); w != 0 {
		t.Errorf("after success: %v", w)
	}
}

// An Envoy that does not read stops the control plane, and the relay buffers no unread responses.
func TestBackPressure(t *testing.T) {
	const messages = 64
	var sent atomic.Int32
	done := make(chan struct{})
	addr, _ := startADS(t, "127.0.0.1:0", func(s deltaServer) error {
		m := &discoveryv3.DeltaDiscoveryResponse{Nonce: strings.Repeat("n", 1<<20)}
		for range messages {
			if err := s.Send(m); err != nil {
				return err
			}
			sent.Add(1)
		}
		close(done)
		<-s.Context().Done()
		return nil
	})
	_, conn := startRelay(t, addr, nil)
	s := openDelta(t, conn)
	until(t, "the control plane sends", func() bool { return sent.Load() > 0 })
	select {
	case <-done:
		t.Fatalf("%d MiB were taken from the control plane although nobody reads", messages)
	case <-time.After(500 * time.Millisecond):
	}
	if n := sent.Load(); n > messages/2 {
		t.Errorf("%d messages of 1 MiB on the way", n)
	}
	for range messages {
		if err := s.RecvMsg(&discoveryv3.DeltaDiscoveryResponse{}); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, done)
}

func TestRefusesOtherServices(t *testing.T) {
	_, conn := startRelay(t, "127.0.0.1:1", nil)
	s, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/istio.v1.auth.IstioCertificateService/CreateCertificate", grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(&discoveryv3.DeltaDiscoveryResponse{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want Unimplemented", err)
	}
}

// The socket is for the user that Envoy runs as.
func TestSocketIsForItsUser(t *testing.T) {
	r, conn := startRelay(t, "127.0.0.1:1", nil)
	conn.Connect()
	for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() { // it listens
		conn.WaitForStateChange(t.Context(), s)
	}
	if fi, err := os.Stat(r.cfg.Socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v", fi.Mode(), err)
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{Socket: "/" + strings.Repeat("x", 120)})
	for _, want := range []string{"121 bytes", "address of a control plane", "credentials"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %q", err, want)
		}
	}
}

func TestEndedStreamsAreKeptBoundedAndCounted(t *testing.T) {
	var c counters
	for range 100 {
		s := c.open(c.begin(), methodDelta, "a:1")
		s.sent(10)
		s.end(io.EOF)
		c.finish()
	}
	live := c.open(c.begin(), methodDelta, "a:1")
	live.sent(10)
	if got := c.snapshot(); len(got.Streams) > keptStreams || got.Total.RequestBytes != 1010 || got.StreamsActive != 1 || got.StreamsOpened != 101 {
		t.Errorf("%d streams kept, %+v", len(got.Streams), got.Total)
	}
}

func wait(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(deadline):
		t.Fatal("did not happen in time")
	}
}
