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

// faulty is a planner in which what concerns the client "bad" panics on demand.
type faulty struct {
	*fakePlanner
	inJoin atomic.Bool
	inSet  atomic.Int32 // at which call; 0: never
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

// A panic ends the stream that it is about, wherever it happens: in the goroutine that reads, in one that sends to all, in one that
// sends to this stream alone, in the one that watches all. Other streams go on, and nothing of the ended one is left.
func TestPanicEndsOneStream(t *testing.T) {
	first := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "bad"}, TypeUrl: xds.Cluster.URL()}
	for name, c := range map[string]struct {
		cfg   Config
		make  func(p *faulty, bad *client) // brings the panic about; with acked: when the client is up to date
		acked bool
		code  codes.Code // of the end; where the reading goroutine is another one, the connection is closed: Unavailable
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
			make: func(p *faulty, bad *client) { // what follows an answer is sent by the goroutine that sent the answer
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

// settled is how many streams have nothing in flight, and nobody who sends.
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
