package delta

import (
	"reflect"
	"slices"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// What the client asks for, lacks, has and has acknowledged of one name, on its way from nothing to a refused version.
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

// Clients that hold the same are summed once; one that has refused something, or asks for other names, by itself.
func TestSums(t *testing.T) {
	set := &manifest.Set{Revision: 1}
	set.Types[xds.Route] = evolve(manifest.Stack{}, []*xds.Resource{thing(xds.Route, "r@1"), thing(xds.Route, "other@1")})
	shared := &Names{}
	client := func(fails bool, names ...string) *State {
		s := New(Config{Names: shared}, set)
		s.Request(Request{Type: xds.Route, Subscribe: slices.Values(names)}, nil)
		r, _ := s.Next()
		s.Request(Request{Type: xds.Route, Nonce: r.Nonce, Failed: fails, Error: "no"}, nil)
		return s
	}
	sums := &Sums{}
	for i, s := range []*State{client(false, "r", "other"), client(false, "r", "other"), client(true, "r", "other"), client(false, "r")} {
		if got, want := s.InfoWith(xds.Route, sums), s.Info(xds.Route); !reflect.DeepEqual(got, want) {
			t.Errorf("%d: %+v, by itself %+v", i, got, want)
		}
		if want := []int{1, 1, 1, 2}[i]; len(sums.of) != want {
			t.Errorf("%d: %d sums, want %d", i, len(sums.of), want)
		}
	}
	first := client(false, "r", "other")
	if n := testing.AllocsPerRun(10, func() { first.InfoWith(xds.Route, sums) }); n > 2 {
		t.Errorf("%v allocations for what is known", n)
	}
}
