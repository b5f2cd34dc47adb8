package delta

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// The standing of one name for a client, from not requested to refused: requested, missing, sent and acknowledged.
func TestStandingOfOneResource(t *testing.T) {
	set := func(revision int64, label string) *manifest.Set {
		s := &manifest.Set{Revision: revision}
		s.Types[xds.Route] = evolve(manifest.Stack{}, []*xds.Resource{thing(xds.Route, label), thing(xds.Route, "other@1")})
		return s
	}
	v1, v2 := thing(xds.Route, "r@1").Version, thing(xds.Route, "r@2").Version
	s := New(Config{}, set(1, "r@1"))
	s.Request(Request{Type: xds.Cluster}, nil)
	s.Next()
	want := func(when string, asks bool, lacks string, good, acknowledged string) {
		t.Helper()
		if got := s.Asks(xds.Route, "r"); got != asks {
			t.Errorf("%s: asks %v", when, got)
		}
		for _, version := range []string{v1, v2} {
			if got := s.Lacks(xds.Route, "r", version); got != (asks && version == lacks) {
				t.Errorf("%s: lacks %s: %v", when, versions[version], got)
			}
		}
		if got := s.Good(xds.Route, "r"); got != good {
			t.Errorf("%s: has %q", when, versions[got])
		}
		if got := s.Acknowledged(xds.Route, "r"); got != acknowledged {
			t.Errorf("%s: has acknowledged %q", when, versions[got])
		}
	}
	want("not asked for", false, "", "", "")
	s.Request(Request{Type: xds.Route, Subscribe: slices.Values([]string{"r"})}, nil)
	if !s.Lacks(xds.Route, "r", v1) || s.Good(xds.Route, "r") != "" {
		t.Error("it is asked for, and not said to be lacking")
	}
	r, _ := s.Next()
	want("on its way", true, v2, v1, "")
	s.Request(Request{Type: xds.Route, Nonce: r.Nonce}, nil)
	want("acknowledged", true, v2, v1, v1)
	s.Target(set(2, "r@2"))
	r, _ = s.Next()
	want("the next one on its way", true, v1, v2, v1)
	s.Request(Request{Type: xds.Route, Nonce: r.Nonce, Failed: true, Error: "no"}, nil)
	want("refused", true, "", v1, "")
	if s.Asks(xds.Route, "other") || s.Lacks(xds.Route, "other", thing(xds.Route, "other@1").Version) {
		t.Error("it asks for what it did not")
	}
}

// The description of a client costs as much with two resources as with thousands.
func TestInfoIsCheap(t *testing.T) {
	cost := func(resources int) float64 {
		var all []*xds.Resource
		for i := range resources {
			all = append(all, thing(xds.Route, fmt.Sprintf("r%d@1", i)))
		}
		set := &manifest.Set{Revision: 1}
		set.Types[xds.Route] = evolve(manifest.Stack{}, all)
		s := New(Config{}, set)
		s.Request(Request{Type: xds.Route, Subscribe: slices.Values([]string{"*"})}, nil)
		r, _ := s.Next()
		s.Request(Request{Type: xds.Route, Nonce: r.Nonce}, nil)
		if i := s.Info(xds.Route); !i.Synced {
			t.Fatalf("%+v", i)
		}
		return testing.AllocsPerRun(10, func() { s.Info(xds.Route) })
	}
	if few, many := cost(2), cost(5000); many > few {
		t.Errorf("%v allocations with 5,000 resources, %v with two", many, few)
	}
}

// A client that resumes with the newest versions is in sync without a response; so is one whose refused version is no
// longer in the newest set. A client that waits for a newer version is not.
func TestSynced(t *testing.T) {
	set := func(revision int64, labels ...string) *manifest.Set {
		s := &manifest.Set{Revision: revision}
		var routes []*xds.Resource
		for _, label := range labels {
			routes = append(routes, thing(xds.Route, label))
		}
		s.Types[xds.Route] = evolve(manifest.Stack{}, routes)
		s.Types[xds.Cluster] = evolve(manifest.Stack{}, []*xds.Resource{thing(xds.Cluster, fmt.Sprintf("c@%d", revision))})
		return s
	}
	want := func(s *State, when string, of xds.Type, synced bool, sent, acked string, refused int) {
		t.Helper()
		if i := s.Info(of); i.Synced != synced || i.Sent != sent || i.Acked != acked || len(i.Refused) != refused {
			t.Errorf("%s, %s: synced %v, sent %q, acked %q, refused %v", when, of.Noun(), i.Synced, i.Sent, i.Acked, i.Refused)
		}
	}
	claim := func(of xds.Type, labels ...string) iter.Seq2[string, string] {
		return func(yield func(string, string) bool) {
			for _, label := range labels {
				if r := thing(of, label); !yield(r.Name, r.Version) {
					return
				}
			}
		}
	}
	drain := func(s *State) {
		for _, more := s.Next(); more; _, more = s.Next() {
		}
	}

	s := New(Config{}, set(1, "r@1", "q@1"))
	want(s, "not asked", xds.Route, false, "", "", 0)
	s.Request(Request{Type: xds.Cluster, Initial: claim(xds.Cluster, "c@1")}, nil)
	s.Request(Request{Type: xds.Route, Subscribe: slices.Values([]string{"r"}), Initial: claim(xds.Route, "r@1")}, nil)
	want(s, "resumed", xds.Cluster, true, Resumed, Resumed, 0)
	want(s, "resumed", xds.Route, true, Resumed, Resumed, 0)
	drain(s)
	want(s, "resumed, with a turn", xds.Route, true, Resumed, Resumed, 0)

	s = New(Config{}, set(1, "r@2"))
	s.Request(Request{Type: xds.Cluster, Initial: claim(xds.Cluster, "c@1")}, nil)
	s.Request(Request{Type: xds.Route, Subscribe: slices.Values([]string{"r"}), Initial: claim(xds.Route, "r@1")}, nil)
	want(s, "resumed with an older version", xds.Route, false, Resumed, "", 0)
	r, _ := s.Next()
	want(s, "in flight", xds.Route, false, r.Nonce, "", 0)
	s.Request(Request{Type: xds.Route, Nonce: r.Nonce}, nil)
	want(s, "acknowledged", xds.Route, true, r.Nonce, r.Nonce, 0)
	last := r.Nonce

	s.Target(set(1, "r@3"))
	want(s, "a newer version waits for its turn", xds.Route, false, last, last, 0)
	r, _ = s.Next()
	s.Request(Request{Type: xds.Route, Nonce: r.Nonce, Failed: true, Error: "no"}, nil)
	drain(s)
	want(s, "refused", xds.Route, true, r.Nonce, last, 1)
	s.Target(set(1, "r@2"))
	back, _ := s.Next()
	s.Request(Request{Type: xds.Route, Nonce: back.Nonce}, nil)
	drain(s)
	want(s, "the refused version was withdrawn", xds.Route, true, back.Nonce, back.Nonce, 0)
}
