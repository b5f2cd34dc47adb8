package proxy

import (
	"crypto/tls"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// owned makes a server tell proxies of an owner.
func owned(t *testing.T, s *server, fields map[string]any) {
	t.Helper()
	who, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asides[ownerURL] = who
}

func (s *server) opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// TestMoveWaitsAtTheDoor: a proxy that is not let in yet is served where it is, and told of nothing twice when it has moved.
func TestMoveWaitsAtTheDoor(t *testing.T) {
	for name, mtls := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			var a, b *server
			cfg := Config{Follow: true, MoveWithin: time.Millisecond}
			if mtls {
				ca := newAuthority(t)
				server := &tls.Config{Certificates: []tls.Certificate{*ca.leaf("", "istiod.test")}, NextProtos: []string{"h2"}}
				a, b = serve(t, server), serve(t, server)
				cfg.TLS = func(Identity) (*tls.Config, error) {
					return &tls.Config{RootCAs: ca.pool, ServerName: "istiod.test"}, nil
				}
			} else {
				a, b = serve(t, nil), serve(t, nil)
			}
			b.door = make(chan struct{})
			owned(t, a, map[string]any{"address": b.addr})
			owned(t, b, map[string]any{"self": true})
			f := fleet(t, 20, cfg, a)
			eventually(t, "all stand at the door", func() bool { return b.opened() == 20 })
			for _, s := range []*server{a, b} {
				s.set(xds.Endpoint, "a", "2", endpoints("a", 2))
			}
			p := f.Watch(Change{Type: xds.Endpoint, Name: "a"})
			a.say(xds.Endpoint, []string{"a"}, nil)
			if o := p.Wait(t.Context()); o.Acked != 20 || f.Stats().Moves != 0 || a.opened() != 20 {
				t.Errorf("%+v, %d moves, %d streams", o, f.Stats().Moves, a.opened())
			}
			close(b.door)
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
			nodes, questions := 0, 0
			b.mu.Lock()
			for _, r := range b.requests {
				if r.Node != nil {
					nodes++
				}
				if r.TypeUrl == ownerURL && len(r.ResourceNamesSubscribe) > 0 {
					questions++
				}
			}
			b.mu.Unlock()
			if nodes != 20 || questions != 20 {
				t.Errorf("%d nodes and %d questions for the owner came from 20 proxies", nodes, questions)
			}
			clean(t, f)
		})
	}
}

// TestMoveThatIsRefused: the proxy stays, and is served.
func TestMoveThatIsRefused(t *testing.T) {
	a, b := serve(t, nil), serve(t, nil)
	b.refuse = grpcstatus.Error(codes.ResourceExhausted, "too many")
	owned(t, a, map[string]any{"address": b.addr})
	f := fleet(t, 5, Config{Follow: true, MoveWithin: time.Millisecond}, a)
	eventually(t, "all were refused", func() bool { return f.Stats().Ended["move"] == 5 })
	a.set(xds.Endpoint, "a", "2", endpoints("a", 2))
	p := f.Watch(Change{Type: xds.Endpoint, Name: "a"})
	a.say(xds.Endpoint, []string{"a"}, nil)
	if o := p.Wait(t.Context()); o.Acked != 5 || f.Stats().Moves != 0 || f.Stats().Streams != 5 {
		t.Errorf("%+v %+v", o, f.Stats())
	}
}

// TestMoveEndsWithItsProxy: who is removed, or loses its stream, at the door of another server leaves that too.
func TestMoveEndsWithItsProxy(t *testing.T) {
	a, b := serve(t, nil), serve(t, nil)
	b.door = make(chan struct{})
	owned(t, a, map[string]any{"address": b.addr})
	f := fleet(t, 10, Config{Follow: true, MoveWithin: time.Millisecond}, a)
	eventually(t, "all stand at the door", func() bool { return b.opened() == 10 })
	f.Remove(First(5))
	f.Close()
	eventually(t, "all have left", func() bool { return a.opened() == 0 && b.opened() == 0 })
}

// TestLetIn reads what a server may say before it lets a stream in.
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
		if in, err := letIn(c.said); in != c.in || err != c.err {
			t.Errorf("%s: %v, %v", name, in, err)
		}
	}
}
