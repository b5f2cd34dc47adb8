package serve

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// faulty is a planner whose operations for the client "bad" panic on demand.
type faulty struct {
	*fakePlanner
	inJoin atomic.Bool
	inSet  atomic.Int32 // the number of the call that panics; 0: none
}

type faultyProxy struct {
	Proxy
	p *faulty
}

func (p *faulty) Join(ctx context.Context, c Client, moved func(fanout.Lane)) (Proxy, error) {
	if c.ID == "bad" && p.inJoin.Load() {
		panic("in Join")
	}
	v, err := p.fakePlanner.Join(ctx, c, moved)
	if c.ID == "bad" {
		v = &faultyProxy{v, p}
	}
	return v, err
}

func (v *faultyProxy) Set() *manifest.Set {
	if n := v.p.inSet.Load(); n == 1 || n > 1 && v.p.inSet.Add(-1) == 1 {
		panic("in Set")
	}
	return v.Proxy.Set()
}

// A panic ends only the stream that it concerns, in each goroutine: that of reading, that of sending to all, that of
// sending to this stream, and that of watching deadlines. Other streams continue, and nothing of the ended stream is
// left.
// Promise: security-limits.md#streams-connections-and-messages
func TestPanicEndsOneStream(t *testing.T) {
	first := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "bad"}, TypeUrl: xds.Cluster.URL()}
	for name, c := range map[string]struct {
		cfg   Config
		make  func(p *faulty, bad *client) // causes the panic; with acked: after the client is up to date
		acked bool
		// code is the status of the ended stream: Unavailable if the panic is not in the reading goroutine, because the
		// connection is then closed.
		code codes.Code
	}{
		"joining": {make: func(p *faulty, bad *client) { p.inJoin.Store(true); bad.send(first) }, code: codes.Internal},
		"reading": {cfg: Config{Hooks: Hooks{Acked: func(_ xds.Type, node string, _ int64, _ time.Duration) {
			if node == "bad" {
				panic("in a request")
			}
		}}}, make: func(_ *faulty, bad *client) { bad.send(first); bad.ack(bad.next()) }, code: codes.Internal},
		"told of a change": {make: func(p *faulty, _ *client) { p.inSet.Store(1) }, acked: true, code: codes.Unavailable},
		"sending":          {make: func(p *faulty, _ *client) { p.inSet.Store(3) }, acked: true, code: codes.Unavailable},
		"sending in a goroutine of the stream's own": {cfg: Config{Answers: []Answer{{TypeURL: "istio.io/debug",
			Resources: func(context.Context, Client, []string) ([]*discoveryv3.Resource, error) { return nil, nil }}}},
			make: func(p *faulty, bad *client) { // the goroutine that sends an answer also sends the next response
				p.inSet.Store(1)
				bad.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "istio.io/debug", ResourceNamesSubscribe: []string{"x"}})
				eventually(bad.t, "the stream ends", func() bool {
					p.mu.Lock()
					defer p.mu.Unlock()
					return len(p.views) == 1
				})
			}, acked: true, code: codes.Unavailable},
		"watching": {cfg: Config{AckDeadline: time.Second, Hooks: Hooks{Timeout: func(bool) { panic("in a deadline") }}},
			make: func(_ *faulty, bad *client) { bad.send(first); bad.next() }, code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			p := &faulty{fakePlanner: newPlanner(cluster("a"))}
			c.cfg.Planner, c.cfg.Log = p, slog.New(slog.DiscardHandler)
			s, addr := start(t, c.cfg)
			good, bad := dial(t, addr), dial(t, addr)
			good.ask(xds.Cluster)
			good.ack(good.next())
			if c.acked {
				bad.send(first)
				bad.ack(bad.next())
				eventually(t, "both are up to date", func() bool { return settled(s) == 2 })
			}
			c.make(p, bad)
			p.put(cluster("b"))
			r := good.next()
			if good.ack(r); len(r.Resources) != 1 || r.Resources[0].Name != "b" {
				t.Errorf("the other stream is sent %v", r)
			}
			if got := bad.end(); got.Code() != c.code {
				t.Errorf("the stream ends with %v, want %v", got, c.code)
			}
			eventually(t, "nothing is left of it", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return len(p.views) == 1
			})
			if n := len(s.Inspect()); n != 1 {
				t.Errorf("%d streams, want 1", n)
			}
		})
	}
}

// settled returns the number of streams with nothing in flight and no sending goroutine.
func settled(s *Server) (n int) {
	for _, st := range s.all() {
		if st.rests() && st.movedAt.Load() == 0 && !st.unacknowledged() {
			n++
		}
	}
	return n
}

func (st *stream) unacknowledged() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.state.Unacked() > 0
}
