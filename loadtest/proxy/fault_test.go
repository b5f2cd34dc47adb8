package proxy

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// TestCorrectServerIsNotBlamed runs every kind of change as a correct server makes it: nothing may be found.
func TestCorrectServerIsNotBlamed(t *testing.T) {
	s := serve(t, nil)
	s.revision = "7"
	f := fleet(t, 50, Config{Sample: .2}, s)
	clean(t, f)
	s.set(xds.Cluster, "c", "1", cluster("c", 1)) // a new cluster: its endpoints are asked for
	s.set(xds.Endpoint, "c", "1", endpoints("c", 1))
	s.say(xds.Cluster, []string{"c"}, nil)
	s.settled()
	s.set(xds.Route, "80", "2", route("80", "a", "c"))
	s.say(xds.Route, []string{"80"}, nil)
	s.settled()
	s.say(xds.Cluster, nil, []string{"b"}) // b is not routed to any more
	s.unset(xds.Cluster, "b")
	s.settled()
	s.set(xds.Cluster, "a", "2", cluster("a", 2)) // a changed cluster: its endpoints follow, unchanged
	s.say(xds.Cluster, []string{"a"}, nil)
	s.say(xds.Endpoint, []string{"a"}, nil)
	s.settled()
	s.set(xds.Listener, "in", "2", listener("in", "81")) // another route name
	s.set(xds.Route, "81", "1", route("81", "a"))
	s.say(xds.Listener, []string{"in"}, nil)
	s.settled()
	eventually(t, "all have asked for the new route", func() bool { return f.Stats().Types["RDS"].Acks == 150 })
	f.Reconnect(All, Reconnect{})
	eventually(t, "all have resumed", func() bool { return f.Stats().Resume.Count() == 50 })
	f.Reconnect(All, Reconnect{Cold: true})
	eventually(t, "all have joined again", func() bool { return f.Stats().Join.Count() == 100 })
	if n := f.CheckEqual(xds.Cluster, xds.Endpoint, xds.Listener, xds.Route); n != 0 {
		t.Errorf("%d differ", n)
	}
	clean(t, f)
	if got := f.Stats(); got.Sampled != 10 || got.Streams != 150 || got.Types["CDS"].Nacks != 0 {
		t.Errorf("%+v", got)
	}
}

// fault is one thing that a server does wrong, and what else follows from it.
type fault struct {
	also  []Kind
	cfg   Config
	setup func(*server)
	do    func(*testing.T, *server, *Fleet)
}

// short is the time of a window that nothing has to beat; long is enough for proxies to join on a busy machine.
const short, long = 100 * time.Millisecond, 4 * time.Second

// change makes a new version and sends it to all streams.
func change(s *server, t xds.Type, name, version string, m proto.Message) {
	s.set(t, name, version, m)
	s.say(t, []string{name}, nil)
}

var faults = map[Kind]fault{
	EndpointBeforeCluster: {do: func(t *testing.T, s *server, f *Fleet) {
		s.set(xds.Endpoint, "new", "1", endpoints("new", 1))
		s.say(xds.Endpoint, []string{"new"}, nil)
	}},
	EndpointsMissing: {cfg: Config{WarmTimeout: long}, do: func(t *testing.T, s *server, f *Fleet) {
		change(s, xds.Endpoint, "a", "2", endpoints("a", 2)) // before, and none after
		change(s, xds.Cluster, "a", "2", cluster("a", 2))
	}},
	Unanswered: {cfg: Config{WarmTimeout: long}, setup: func(s *server) { s.mute[xds.Route] = true }},
	MissingReference: {do: func(t *testing.T, s *server, f *Fleet) {
		change(s, xds.Route, "80", "2", route("80", "a", "b", "nowhere"))
	}},
	RemovedInUse: {do: func(t *testing.T, s *server, f *Fleet) { s.say(xds.Cluster, nil, []string{"b"}) }},
	VersionBack: {cfg: Config{RevertWindow: short}, do: func(t *testing.T, s *server, f *Fleet) {
		change(s, xds.Endpoint, "a", "2", endpoints("a", 2))
		s.settled()
		s.set(xds.Endpoint, "a", "1", endpoints("a", 1))
		s.say(xds.Endpoint, []string{"a"}, nil, "p0")
	}},
	RevisionBack: {setup: func(s *server) { s.revision = "10" }, do: func(t *testing.T, s *server, f *Fleet) {
		s.revision = "9"
		change(s, xds.Endpoint, "a", "2", endpoints("a", 2))
	}},
	Duplicate: {do: func(t *testing.T, s *server, f *Fleet) { s.say(xds.Route, []string{"80"}, nil) }},
	DuplicateInResponse: {cfg: Config{Sample: 1}, also: []Kind{Duplicate}, do: func(t *testing.T, s *server, f *Fleet) {
		s.set(xds.Endpoint, "a", "2", endpoints("a", 2))
		s.say(xds.Endpoint, []string{"a", "a"}, nil)
	}},
	UnknownRemoval: {do: func(t *testing.T, s *server, f *Fleet) { s.say(xds.Cluster, nil, []string{"never"}) }},
	LostRemoval: {do: func(t *testing.T, s *server, f *Fleet) {
		p := f.Watch(Change{Type: xds.Listener, Name: "in", Gone: true})
		p.Committed(time.Now())
		s.set(xds.Listener, "other", "1", listener("other", "80"))
		s.say(xds.Listener, []string{"other"}, []string{"in"}, "p0", "p1")
		s.say(xds.Listener, []string{"other"}, nil, "p2")
		s.settled()
		eventually(t, "two have removed it", func() bool { return f.Stats().Types["LDS"].Removed == 2 })
		ctx, cancel := context.WithTimeout(t.Context(), short)
		defer cancel()
		if o := p.Wait(ctx); o.Expected != 3 || o.Acked != 2 || len(o.Missing) != 1 || o.Missing[0] != "p2.ns" {
			t.Errorf("%+v", o)
		}
	}},
	Unrequested: {do: func(t *testing.T, s *server, f *Fleet) {
		s.set(xds.Route, "99", "1", route("99", "a"))
		s.say(xds.Route, []string{"99"}, nil)
	}},
	Emptied: {also: []Kind{RemovedInUse}, do: func(t *testing.T, s *server, f *Fleet) {
		s.say(xds.Cluster, nil, []string{"a", "b"})
	}},
	Unequal: {do: func(t *testing.T, s *server, f *Fleet) {
		s.set(xds.Endpoint, "a", "2", endpoints("a", 2))
		s.say(xds.Endpoint, []string{"a"}, nil, "p1")
		s.settled()
		eventually(t, "one has it", func() bool { return f.Stats().Types["EDS"].Acks == 4 })
		if n := f.CheckEqual(); n != 1 {
			t.Errorf("%d differ", n)
		}
	}},
	InvalidContent: {cfg: Config{Sample: 1}, do: func(t *testing.T, s *server, f *Fleet) {
		s.set(xds.Endpoint, "c", "1", endpoints("c", 1))
		change(s, xds.Cluster, "c", "1", cluster("another-name", 1))
	}},
	VersionReused: {cfg: Config{Sample: 1}, also: []Kind{Duplicate}, do: func(t *testing.T, s *server, f *Fleet) {
		change(s, xds.Endpoint, "a", "1", endpoints("a", 9))
	}},
	NotReadable: {do: func(t *testing.T, s *server, f *Fleet) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, st := range s.streams {
			if err := st.SendMsg(garbage()); err != nil {
				t.Error(err)
			}
		}
	}},
}

// TestFaultsAreCaught makes the server do one thing wrong; exactly the check of that name must report it.
func TestFaultsAreCaught(t *testing.T) {
	for kind, c := range faults {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := serve(t, nil)
			if c.setup != nil {
				c.setup(s)
			}
			f := fleet(t, 3, c.cfg, s)
			if c.do != nil {
				c.do(t, s, f)
			}
			eventually(t, "it is found", func() bool { return f.Stats().Found[kind].Count > 0 })
			for found, v := range f.Stats().Found {
				if found != kind && !slices.Contains(c.also, found) {
					t.Errorf("also %s: %v", found, v.Examples)
				}
			}
		})
	}
}

// TestAnswersAreCounted requests everything two times, at first and on a resumed stream: a server may answer each
// request, and no more.
func TestAnswersAreCounted(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 3, Config{Behaviour: func(int, Identity) Behaviour { return Behaviour{DuplicateSubscriptions: true} }}, s)
	received := func(each uint64) func() bool {
		return func() bool {
			st := f.Stats()
			return st.Types["RDS"].Acks == 3*each && st.Types["EDS"].Resources == 3*2*each && st.Joined == 3
		}
	}
	eventually(t, "both answers have come", received(2))
	f.Reconnect(All, Reconnect{})
	eventually(t, "what was asked for without a claim has come", received(3))
	clean(t, f)
	s.say(xds.Route, []string{"80"}, nil, "p1")
	eventually(t, "one answer too many is found", func() bool { return f.Stats().Found[Duplicate].Count == 1 })
}

// TestAskedForAgain unsubscribes from a route while the answer is on its way, and subscribes again: two answers are
// permitted, a third is not.
func TestAskedForAgain(t *testing.T) {
	s := serve(t, nil)
	s.set(xds.Route, "81", "1", route("81", "a"))
	f := fleet(t, 1, Config{}, s)
	s.mu.Lock() // the server reads nothing meanwhile
	one := f.all()[0]
	one.mu.Lock()
	index := f.names.name(xds.Route, "81").index
	one.subs[xds.Route].add(index)
	one.subscribe(xds.Route, []uint32{index}, nil)
	one.subscribe(xds.Route, nil, []uint32{index})
	one.subs[xds.Route].add(index)
	one.subscribe(xds.Route, []uint32{index}, nil)
	err := one.session.flush()
	one.mu.Unlock()
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "both answers have come", func() bool { return f.Stats().Types["RDS"].Acks == 3 })
	clean(t, f)
	s.say(xds.Route, []string{"81"}, nil)
	eventually(t, "one answer too many is found", func() bool { return f.Stats().Found[Duplicate].Count == 1 })
}

// TestRevertIsNoFault moves all proxies back to an older version: a configuration that was really reverted.
func TestRevertIsNoFault(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 5, Config{RevertWindow: long}, s)
	for _, port := range []uint32{2, 1, 2, 1} {
		s.set(xds.Endpoint, "a", map[uint32]string{1: "1", 2: "2"}[port], endpoints("a", port))
		s.say(xds.Endpoint, []string{"a"}, nil)
		s.settled()
	}
	eventually(t, "the windows have passed", func() bool {
		f.suspects.mu.Lock()
		defer f.suspects.mu.Unlock()
		return len(f.suspects.all) == 0
	})
	clean(t, f)
}

// TestUnacked counts the responses of open streams that have no answer yet: those of proxies that are slow to
// acknowledge, and none of a stream that has ended.
func TestUnacked(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 4, Config{}, s)
	s.settled()
	is := func(what string, n int) {
		t.Helper()
		eventually(t, what, func() bool { return f.Stats().Unacked == n && f.Stats().Joined == f.Stats().Proxies })
	}
	is("all is acknowledged", 0)
	f.SetBehaviour(First(3), Behaviour{AckDelay: time.Hour})
	before := f.Stats().Total()
	s.set(xds.Endpoint, "a", "2", endpoints("a", 2))
	s.say(xds.Endpoint, []string{"a"}, nil)
	eventually(t, "one has acknowledged", func() bool { return f.Stats().Total().Acks == before.Acks+1 })
	is("three have not", 3)
	f.SetBehaviour(First(3), Behaviour{Refuse: []Ref{{xds.Endpoint, "b"}}})
	s.set(xds.Endpoint, "b", "2", endpoints("b", 2))
	s.say(xds.Endpoint, []string{"b"}, nil)
	eventually(t, "three have refused", func() bool { return f.Stats().Total().Nacks == before.Nacks+3 })
	is("a refusal is an answer", 3)
	f.Reconnect(First(1), Reconnect{})
	is("one stream has ended, and another is there", 2)
	f.Remove(func(i int, _ Identity) bool { return i == 1 })
	is("one has ended for good", 1)
}
