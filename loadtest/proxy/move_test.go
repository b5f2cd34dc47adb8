package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// owned makes a server announce an owner to proxies.
func owned(t *testing.T, s *server, fields map[string]any) {
	t.Helper()
	who, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agentTypes[ownerURL] = who
}

func (s *server) opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// TestMoveWaitsForAdmission: a proxy without admission is served where it is, and receives nothing twice after it has
// moved.
func TestMoveWaitsForAdmission(t *testing.T) {
	for name, mtls := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			a, b, cfg := two(t, mtls)
			b.admit = make(chan struct{})
			owned(t, a, map[string]any{"address": b.addr})
			owned(t, b, map[string]any{"self": true})
			f := fleet(t, 20, cfg, a)
			eventually(t, "all wait for admission", func() bool { return b.opened() == 20 })
			for _, s := range []*server{a, b} {
				s.set(xds.Endpoint, "a", "2", endpoints("a", 2))
			}
			p := f.Watch(Change{Type: xds.Endpoint, Name: "a"})
			a.say(xds.Endpoint, []string{"a"}, nil)
			if o := p.Wait(t.Context()); o.Acked != 20 || f.Stats().Moves != 0 || a.opened() != 20 {
				t.Errorf("%+v, %d moves, %d streams", o, f.Stats().Moves, a.opened())
			}
			close(b.admit)
			eventually(t, "all have moved", func() bool { return f.Stats().Moves == 20 && a.opened() == 0 })
			eventually(t, "all have claimed what they hold", func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				n := 0
				for _, r := range b.requests {
					if r.TypeUrl == xds.Endpoint.URL() && r.InitialResourceVersions["a"] == "2" && r.Node == nil {
						n++
					}
				}
				return n == 20
			})
			before := f.Stats()
			b.set(xds.Endpoint, "a", "3", endpoints("a", 3))
			p = f.Watch(Change{Type: xds.Endpoint, Name: "a"})
			b.say(xds.Endpoint, []string{"a"}, nil)
			if o := p.Wait(t.Context()); o.Acked != 20 {
				t.Errorf("%+v", o)
			}
			if d := f.Stats().Since(before); d.Types["EDS"].Resources != 20 || d.Types["CDS"].Resources != 0 {
				t.Errorf("%+v", d.Types)
			}
			if n := f.Stats().Streams; n != 40 {
				t.Errorf("%d streams", n)
			}
			if nodes, questions := b.asked(); nodes != 20 || questions != 20 {
				t.Errorf("%d nodes and %d questions for the owner came from 20 proxies", nodes, questions)
			}
			clean(t, f)
		})
	}
}

// two starts two servers, and returns them with a configuration of proxies that follow their owners between them.
func two(t *testing.T, mtls bool) (a, b *server, cfg Config) {
	t.Helper()
	cfg = Config{Follow: true, MoveWithin: time.Millisecond}
	if !mtls {
		return serve(t, nil), serve(t, nil), cfg
	}
	ca := newAuthority(t)
	server := &tls.Config{Certificates: []tls.Certificate{*ca.leaf("", "istiod.test")}, NextProtos: []string{"h2"}}
	cfg.TLS = func(Identity) (*tls.Config, error) {
		return &tls.Config{RootCAs: ca.pool, ServerName: "istiod.test"}, nil
	}
	return serve(t, server), serve(t, server), cfg
}

// asked returns the number of requests with a node, and of subscriptions to the owner.
func (s *server) asked() (nodes, questions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.Node != nil {
			nodes++
		}
		if r.TypeUrl == ownerURL && len(r.ResourceNamesSubscribe) > 0 {
			questions++
		}
	}
	return nodes, questions
}

// announce sends the proxies of a server their present owner.
func announce(t *testing.T, s *server, fields map[string]any) {
	t.Helper()
	owned(t, s, fields)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if err := s.answerAgentType(st, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: ownerURL, ResourceNamesSubscribe: []string{ownerID}}, s.agentTypes[ownerURL]); err != nil {
			t.Errorf("tell: %v", err)
		}
	}
}

// askFor returns a check that a server has that many streams, which all subscribe to some endpoints.
func askFor(s *server, name string, n int) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.streams) == n && !slices.ContainsFunc(s.streams, func(st *stream) bool { return !st.names[xds.Endpoint][name] })
	}
}

// busy keeps proxies from moving: they wait for the endpoints of a new cluster, until the returned function sends them.
func busy(t *testing.T, s *server, f *Fleet) (calm func()) {
	t.Helper()
	s.mu.Lock()
	s.mute[xds.Endpoint] = true
	s.mu.Unlock()
	s.set(xds.Cluster, "c", "1", cluster("c", 1))
	s.set(xds.Endpoint, "c", "1", endpoints("c", 1))
	s.say(xds.Cluster, []string{"c"}, nil)
	eventually(t, "all wait for endpoints", askFor(s, "c", f.Stats().Proxies))
	return func() {
		eventually(t, "all wait for endpoints", askFor(s, "c", f.Stats().Proxies))
		s.mu.Lock()
		s.mute[xds.Endpoint] = false
		s.mu.Unlock()
		s.say(xds.Endpoint, []string{"c"}, nil)
	}
}

// letInAt waits until proxies have been let in where they are to go, and have not gone.
func letInAt(t *testing.T, f *Fleet, address string) {
	t.Helper()
	eventually(t, "all were let in", func() bool {
		for _, s := range f.all() {
			s.mu.Lock()
			in := s.coming != nil && s.coming.addr == address
			s.mu.Unlock()
			if !in {
				return false
			}
		}
		return true
	})
}

// served checks that proxies have one stream each, to a server, and receive exactly one change.
func served(t *testing.T, f *Fleet, s *server, version string, moves uint64) {
	t.Helper()
	n := f.Stats().Proxies
	eventually(t, "all are at one server alone", func() bool { return s.opened() == n && f.Stats().Moves == moves && f.Stats().Joined == n })
	eventually(t, "all ask it for endpoints", askFor(s, "a", n))
	s.settled()
	before := f.Stats()
	s.set(xds.Endpoint, "a", version, endpoints("a", 2))
	p := f.Watch(Change{Type: xds.Endpoint, Name: "a"})
	s.say(xds.Endpoint, []string{"a"}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if o := p.Wait(ctx); o.Acked != n {
		t.Errorf("%+v", o)
	}
	if d := f.Stats().Since(before); d.Types["EDS"].Resources != uint64(n) || d.Types["CDS"].Responses+d.Types["LDS"].Responses+d.Types["RDS"].Responses != 0 {
		t.Errorf("%+v", d.Types)
	}
	clean(t, f)
}

// TestMoveThatFails: the proxy stays on its stream, is served there, and moves after the next announcement.
func TestMoveThatFails(t *testing.T) {
	const n = 5
	for name, fails := range map[string]func(t *testing.T, a, b *server, f *Fleet){
		"refused": func(t *testing.T, _, b *server, f *Fleet) {
			b.refuse = grpcstatus.Error(codes.ResourceExhausted, "too many")
			close(b.admit)
		},
		"gone, with them waiting for admission": func(t *testing.T, _, b *server, _ *Fleet) { b.grpc.Stop() },
		"gone after it let them in": func(t *testing.T, a, b *server, f *Fleet) {
			calm := busy(t, a, f)
			close(b.admit)
			letInAt(t, f, b.addr)
			b.grpc.Stop()
			calm()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, c := serve(t, nil), serve(t, nil), serve(t, nil)
			b.admit = make(chan struct{})
			owned(t, a, map[string]any{"address": b.addr})
			owned(t, b, map[string]any{"self": true})
			owned(t, c, map[string]any{"self": true})
			f := fleet(t, n, Config{Follow: true, MoveWithin: time.Millisecond}, a)
			eventually(t, "all wait for admission", func() bool { return b.opened() == n })
			fails(t, a, b, f)
			eventually(t, "all have failed", func() bool { return f.Stats().Ended["move"] == n })
			served(t, f, a, "2", 0)
			if s := f.Stats(); s.Streams != n {
				t.Errorf("%d streams: not all are on their first one", s.Streams)
			}
			takeOver(a, c)
			announce(t, a, map[string]any{"address": c.addr})
			served(t, f, c, "3", n)
		})
	}
}

// takeOver copies the mesh of one server to another.
func takeOver(from, to *server) {
	from.mu.Lock()
	defer from.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	for t := range from.sotw {
		to.sotw[t] = maps.Clone(from.sotw[t])
	}
}

// TestMoveIsTurnedBack: an admitted proxy that has not moved yet learns another owner, or loses its stream. It leaves
// the admitting server, and ends with one stream, at its owner.
func TestMoveIsTurnedBack(t *testing.T) {
	const n = 5
	for name, do := range map[string]func(t *testing.T, a, b, c *server, f *Fleet, calm func()){
		"told that it is at home": func(t *testing.T, a, b, _ *server, f *Fleet, calm func()) {
			announce(t, a, map[string]any{"self": true})
			eventually(t, "all have turned back", func() bool { return b.opened() == 0 })
			calm()
			served(t, f, a, "2", 0)
		},
		"told of another": func(t *testing.T, a, b, c *server, f *Fleet, calm func()) {
			takeOver(a, c)
			announce(t, a, map[string]any{"address": c.addr})
			eventually(t, "all have turned back", func() bool { return b.opened() == 0 })
			letInAt(t, f, c.addr)
			calm()
			served(t, f, c, "2", n)
		},
		"its stream ends": func(t *testing.T, a, b, _ *server, f *Fleet, _ func()) {
			takeOver(a, b)
			f.Reconnect(All, Reconnect{Now: true})
			eventually(t, "all have opened another stream", func() bool { return f.Stats().Streams == 2*n })
			served(t, f, b, "2", 0)
		},
		"its stream ends, and its owner refuses it": func(t *testing.T, a, b, _ *server, f *Fleet, calm func()) {
			b.mu.Lock()
			b.refuse = grpcstatus.Error(codes.ResourceExhausted, "too many")
			b.mu.Unlock()
			f.Reconnect(All, Reconnect{Now: true})
			eventually(t, "all have come back, and were refused again", func() bool { return f.Stats().Ended["move"] == n && b.opened() == 0 })
			calm()
			served(t, f, a, "2", 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, c := serve(t, nil), serve(t, nil), serve(t, nil)
			for _, s := range []*server{a, b, c} {
				owned(t, s, map[string]any{"self": true})
			}
			f := fleet(t, n, Config{Follow: true, MoveWithin: time.Millisecond}, a)
			calm := busy(t, a, f)
			announce(t, a, map[string]any{"address": b.addr})
			letInAt(t, f, b.addr)
			do(t, a, b, c, f, calm)
		})
	}
}

// TestMoveEndsWithItsProxy: a proxy that is removed, or loses its stream, while it waits for admission elsewhere, ends
// that connection too.
func TestMoveEndsWithItsProxy(t *testing.T) {
	a, b := serve(t, nil), serve(t, nil)
	b.admit = make(chan struct{})
	owned(t, a, map[string]any{"address": b.addr})
	f := fleet(t, 10, Config{Follow: true, MoveWithin: time.Millisecond}, a)
	eventually(t, "all wait for admission", func() bool { return b.opened() == 10 })
	f.Remove(First(5))
	f.Close()
	eventually(t, "all have left", func() bool { return a.opened() == 0 && b.opened() == 0 })
}

// TestLetIn parses the frames that a server may send before it admits a stream.
func TestLetIn(t *testing.T) {
	frame := func(kind http2.FrameType, flags http2.Flags, size int) []byte {
		return append([]byte{byte(size >> 16), byte(size >> 8), byte(size), byte(kind), byte(flags), 0, 0, 0, 1}, make([]byte, size)...)
	}
	settings, headers := frame(http2.FrameSettings, 0, 12), frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 300)
	for name, c := range map[string]struct {
		said []byte
		in   bool
		err  error
	}{
		"nothing":          {},
		"half of a head":   {said: headers[:5]},
		"settings":         {said: settings},
		"half of settings": {said: settings[:15]},
		"headers":          {said: headers, in: true},
		"both":             {said: slices.Concat(settings, frame(http2.FrameWindowUpdate, 0, 4), headers), in: true},
		"refused":          {said: slices.Concat(settings, frame(http2.FrameHeaders, http2.FlagHeadersEndStream|http2.FlagHeadersEndHeaders, 40)), err: errRefused},
		"reset":            {said: frame(http2.FrameRSTStream, 0, 4), err: errRefused},
		"goes away":        {said: frame(http2.FrameGoAway, 0, 8), err: errRefused},
	} {
		if in, err := letIn(c.said); in != c.in || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", name, in, err)
		}
	}
}
