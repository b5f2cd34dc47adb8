//go:build !race

package proxy

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"navarch.io/navarch/push/xds"
)

// TestLargeMesh sends messages that are larger than every window and buffer, both ways: a route of 600 KB over windows
// of 64 KiB, subscriptions and claims beyond what the server lets a client send at once, and a stock node.
func TestLargeMesh(t *testing.T) {
	s := serve(t, nil)
	const n = 10
	names := s.many(2000, "1")
	f := fleet(t, n, Config{Window: 64 << 10, Node: Stock, Sample: .4}, s)
	for i := range 5 {
		p := f.Watch(Change{Type: xds.Route, Name: "80", Marker: fmt.Sprintf("marker-%d", i)})
		r := route("80", names...)
		r.VirtualHosts[7].Domains[0] = fmt.Sprintf("marker-%d", i)
		s.set(xds.Route, "80", fmt.Sprint(i+2), r)
		s.say(xds.Route, []string{"80"}, nil)
		if o := p.Wait(t.Context()); o.Acked != n {
			t.Errorf("%+v", o)
		}
	}
	f.Reconnect(All, Reconnect{})
	eventually(t, "all have resumed", func() bool { return f.Stats().Resume.Count() == n && f.Stats().Joined == n })
	s.settled()
	clean(t, f)
	if st := f.Stats(); st.Types["RDS"].Resources != n*6 || st.Types["CDS"].Resources != n*2002 {
		t.Errorf("%+v", st.Types)
	}
	idle(t, f)
}

// idle checks the memory of idle proxies: no buffers, and no copies of shared data.
func idle(t *testing.T, f *Fleet) {
	t.Helper()
	all := f.all()
	eventually(t, "no proxy keeps a buffer", func() bool {
		return !slices.ContainsFunc(all, func(s *sim) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			c := s.session
			return c == nil || c.large != nil || c.parser.part != nil || c.out != nil || c.queue != nil ||
				c.header != nil || s.waiting[xds.Endpoint] != nil || !s.dependencies[xds.Endpoint].empty()
		})
	})
	if len(f.rooms) != numRooms {
		t.Errorf("%d of %d rooms are free", len(f.rooms), numRooms)
	}
	for _, s := range all[1:] {
		for ty := range s.held {
			s.mu.Lock()
			if !slices.Equal(s.held[ty].pages, all[0].held[ty].pages) {
				t.Errorf("%s: pages of %v of its own", s.id, xds.Type(ty))
			}
			s.mu.Unlock()
		}
	}
}

// A server that breaks rules of HTTP/2 or gRPC is reported.
func TestFraming(t *testing.T) {
	for says, frames := range map[string]func(*http2.Framer){
		"limit is 16384": func(f *http2.Framer) { _ = f.WriteData(streamID, false, make([]byte, 20000)) },
		"on stream 3":    func(f *http2.Framer) { _ = f.WriteData(3, false, make([]byte, 20)) },
		"compressed":     func(f *http2.Framer) { _ = f.WriteData(streamID, false, []byte{1, 0, 0, 0, 1, 0}) },
		"invalid": func(f *http2.Framer) {
			_ = f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, streamID, []byte{0xff})
		},
	} {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := lis.Accept()
				if err != nil {
					return
				}
				framer := http2.NewFramer(conn, conn) // the fleet may hang up before all is written
				_ = framer.WriteSettings()
				frames(framer)
			}
		}()
		f, err := New(Config{Addrs: []string{lis.Addr().String()}})
		if err != nil {
			t.Fatal(err)
		}
		f.Add(identities(1)...)
		eventually(t, says, func() bool {
			for _, k := range []Kind{FramingError, NotReadable} {
				if v := f.Stats().Found[k]; v.Count > 0 && (says == "invalid" || strings.Contains(v.Examples[0].Detail, says)) {
					return true
				}
			}
			return false
		})
		f.Close()
		_ = lis.Close()
	}
}

func TestBadConfigs(t *testing.T) {
	for _, c := range []Config{{}, {Addrs: []string{"x"}, Window: 100}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

// TestSources spreads loopback connections over addresses, and leaves others alone.
func TestSources(t *testing.T) {
	for _, c := range []struct {
		addr string
		n    int
		want string
	}{
		{"127.0.0.1:1", 0, ""}, {"127.0.0.1:1", 1, "127.1.0.1:0"}, {"localhost:1", 300, "127.1.1.44:0"}, {"10.0.0.1:1", 3, ""},
		{"[::1]:1", 3, ""}, {"bad", 3, ""},
	} {
		got := ""
		if a := source(c.addr, c.n); a != nil {
			got = a.String()
		}
		if got != c.want {
			t.Errorf("%s %d: %q, want %q", c.addr, c.n, got, c.want)
		}
	}
	s := serve(t, nil)
	fleet(t, 3, Config{PerSource: 1}, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	hosts := map[string]bool{}
	for _, p := range s.peers {
		host, _, _ := net.SplitHostPort(p)
		hosts[host] = true
	}
	if len(hosts) != 3 {
		t.Errorf("%v", s.peers)
	}
}
