package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/store/loopback"
)

// outbound is a listener as gateways have them: its traffic direction is OUTBOUND.
func outbound(t *testing.T, packed *anypb.Any) *anypb.Any {
	t.Helper()
	l := &listenerv3.Listener{}
	if err := packed.UnmarshalTo(l); err != nil {
		t.Fatal(err)
	}
	l.TrafficDirection = corev3.TrafficDirection_OUTBOUND
	out, err := anypb.New(l)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// startGateway runs an agent of a router with variables of its own, so that tests may run at the same time.
func startGateway(t *testing.T, discovery string, variables ...string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.env")
	if err := os.WriteFile(file, []byte(strings.Join(variables, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return startAgent(t, discovery, "--xds-plaintext", "--type", "router", "--env-file", file)
}

// rollout is a load of requests on a gateway that goes, and on another one that takes its place.
type rollout struct {
	t            *testing.T
	gateway      string // address of the one that goes
	other        string
	away         atomic.Bool  // the load balancer sends new connections to the other one
	signalled    atomic.Int64 // unix nanoseconds of SIGTERM
	served       atomic.Int64
	dialledLate  atomic.Int64 // connections to the gateway after SIGTERM
	closes       atomic.Int64 // responses with Connection: close on kept connections
	firstClose   atomic.Int64 // unix nanoseconds
	mu           sync.Mutex
	wrong        []error
	keptOnOthers atomic.Int64
}

func (r *rollout) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	to := r.gateway
	switch {
	case r.away.Load():
		to = r.other
	case r.signalled.Load() > 0:
		r.dialledLate.Add(1)
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

// client makes requests that Go's transport does not repeat by itself.
func (r *rollout) client(kept, h2 bool) func() {
	transport := &http.Transport{DialContext: r.dial, DisableKeepAlives: !kept, MaxConnsPerHost: 1}
	if h2 {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	r.t.Cleanup(client.CloseIdleConnections)
	return func() {
		request, err := http.NewRequest(http.MethodPost, "http://gateway/", struct{ io.Reader }{strings.NewReader("once")})
		if err != nil {
			r.fail(err)
			return
		}
		resp, err := client.Do(request)
		if err != nil {
			r.fail(err)
			return
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			r.fail(fmt.Errorf("status %d, %w", resp.StatusCode, err))
		}
		r.served.Add(1)
		if kept && resp.Close {
			r.closes.Add(1)
			r.firstClose.CompareAndSwap(0, time.Now().UnixNano())
		}
		if kept && r.away.Load() {
			r.keptOnOthers.Add(1)
		}
	}
}

func (r *rollout) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Errorf("%v after SIGTERM: %w", time.Duration(time.Now().UnixNano()-r.signalled.Load()), err))
}

// run makes 200 requests a second until the context ends: most on kept connections of HTTP/1.1 and HTTP/2, some on
// new ones.
func (r *rollout) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	work := make(chan struct{})
	defer close(work)
	for _, of := range []struct{ kept, h2 bool }{{true, false}, {true, false}, {true, false}, {true, true}, {true, true},
		{false, false}, {false, true}} {
		request := r.client(of.kept, of.h2)
		all.Go(func() {
			for range work {
				request()
			}
		})
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			work <- struct{}{}
		}
	}
}

// idleHTTP1 makes one request on a connection that stays idle then; the result is the error that ends it.
func idleHTTP1(t *testing.T, address string) <-chan error {
	t.Helper()
	c := dialIdle(t, address, "GET / HTTP/1.1\r\nHost: gateway\r\n\r\n")
	head := make([]byte, 12)
	if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 200" {
		t.Fatalf("%q, %v", head, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- readToEnd(c) }()
	return ended
}

// idleHTTP2 opens a connection without any request; the result is the last frame type, or the error that ends it.
func idleHTTP2(t *testing.T, address string) <-chan error {
	t.Helper()
	c := dialIdle(t, address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	ended := make(chan error, 1)
	go func() {
		var goAway error = errors.New("the connection ended without GOAWAY")
		for {
			head := make([]byte, 9)
			if _, err := io.ReadFull(c, head); err != nil {
				ended <- errors.Join(goAway, notEOF(err))
				return
			}
			if _, err := io.CopyN(io.Discard, c, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
				ended <- err
				return
			}
			if head[3] == 7 {
				goAway = nil
			}
		}
	}()
	return ended
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func dialIdle(t *testing.T, address, first string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, first); err != nil {
		t.Fatal(err)
	}
	return c
}

// A gateway that gets SIGTERM is unready at once, serves kept and new connections for the minimum, then ends them by
// Connection: close and GOAWAY, idle ones too, and exits before its bound. No request fails meanwhile.
func TestGatewayRollout(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-release
		}
	}))
	backend.Config.Protocols = new(http.Protocols)
	backend.Config.Protocols.SetHTTP1(true)
	backend.Config.Protocols.SetUnencryptedHTTP2(true)
	backend.Start()
	defer backend.Close()
	r := &rollout{t: t, gateway: loopback.For(t), other: backend.Listener.Addr().String()}
	ads := newFakeADS(t, r.gateway, r.other)
	ads.resources[ldsType].Resource = outbound(t, ads.resources[ldsType].Resource)
	addr, _ := ads.start(t, loopback.For(t))
	const least, bound = 2 * time.Second, 40 * time.Second
	p := startGateway(t, addr, "MINIMUM_DRAIN_DURATION="+least.String(), "TERMINATION_DRAIN_DURATION_SECONDS=40")
	p.until("ready", func(d debugPage) bool { return d.Ready })

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() { r.run(ctx); close(done) }()
	await(t, "no load", func() bool { return r.served.Load() > 200 })
	if n := r.closes.Load(); n > 0 {
		t.Errorf("%d responses had Connection: close before SIGTERM", n)
	}
	idle1, idle2, slow := idleHTTP1(t, r.gateway), idleHTTP2(t, r.gateway), make(chan error, 1)
	go func() { slow <- get("http://" + r.gateway + "/slow") }()
	<-arrived

	began := time.Now()
	r.signalled.Store(began.UnixNano())
	p.cmd.Process.Signal(syscall.SIGTERM)
	await(t, "still ready", func() bool { return p.readiness() == http.StatusServiceUnavailable })
	if took := time.Since(began); took > least/2 {
		t.Errorf("ready for %v after SIGTERM", took)
	}
	// The load balancer is late: the gateway ends kept connections already.
	await(t, "no Connection: close", func() bool { return r.closes.Load() > 20 })
	r.away.Store(true)
	for name, ended := range map[string]<-chan error{"HTTP/1.1": idle1, "HTTP/2": idle2} {
		if err := <-ended; err != nil {
			t.Errorf("the idle connection of %s: %v", name, err)
		}
	}
	close(release)
	if err := <-slow; err != nil {
		t.Errorf("a request that began before SIGTERM: %v", err)
	}
	if err := p.exit(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	took := time.Since(began)
	served := r.served.Load()
	await(t, "no load after the exit", func() bool { return r.served.Load() > served+50 })
	stop()
	<-done
	r.judge(began, least)
	if log := p.out.String(); took > bound/2 || !strings.Contains(log, "drained, no connection is left") {
		t.Errorf("the agent ended after %v", took)
	}
	t.Logf("%d requests, %d with Connection: close, exit after %v", r.served.Load(), r.closes.Load(), took)
}

func (r *rollout) judge(began time.Time, least time.Duration) {
	t := r.t
	t.Helper()
	for _, err := range r.wrong[:min(len(r.wrong), 10)] {
		t.Error(err)
	}
	if len(r.wrong) > 0 {
		t.Errorf("%d of %d requests failed", len(r.wrong), r.served.Load())
	}
	if first := time.Duration(r.firstClose.Load() - began.UnixNano()); first < least {
		t.Errorf("kept connections were ended %v after SIGTERM, want %v", first, least)
	}
	if r.dialledLate.Load() < 20 || r.keptOnOthers.Load() < 20 {
		t.Errorf("%d connections to the gateway after SIGTERM, %d requests by kept connections of the other one",
			r.dialledLate.Load(), r.keptOnOthers.Load())
	}
}

// A connection that does not end keeps a gateway until its bound, and no longer.
func TestGatewayDrainIsBounded(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(arrived); <-release }))
	defer backend.Close()
	defer close(release)
	listener := loopback.For(t)
	ads := newFakeADS(t, listener, backend.Listener.Addr().String())
	ads.resources[ldsType].Resource = outbound(t, ads.resources[ldsType].Resource)
	addr, _ := ads.start(t, loopback.For(t))
	p := startGateway(t, addr, "TERMINATION_DRAIN_DURATION_SECONDS=3")
	p.until("ready", func(d debugPage) bool { return d.Ready })
	go get("http://" + listener)
	<-arrived
	began := time.Now()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.exit(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	const line = `msg="drain time is over, Envoy is stopped" connections=1`
	if took := time.Since(began); took < 3*time.Second || !strings.Contains(p.out.String(), line) {
		t.Errorf("it drained for %v", took)
	}
}
