package delta

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// Each limit of unknown names is exact: as many as the limit are kept, and the next one is left out. If more resources
// exist than the limit, as many names as resources are kept.
func TestEdgesOfUnknownNames(t *testing.T) {
	long := func(length, n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("%0*d", length, i))
		}
		return names
	}
	few, _ := great(10)
	many, _ := great(fewNames + 500)
	for _, c := range []struct {
		what  string
		set   *manifest.Set
		names []string
		out   int
	}{
		{"as many as may be", few, invented(0, fewNames), 0},
		{"one more", few, invented(0, fewNames+1), 1},
		{"as long as may be", few, long(maxName, fewBytes/maxName), 0},
		{"one more of those", few, long(maxName, fewBytes/maxName+1), 1},
		{"one that is longer", few, long(maxName+1, 1), 1},
		{"as many as there are resources", many, invented(0, fewNames+500), 0},
		{"one more than these", many, invented(0, fewNames+501), 1},
	} {
		for _, atOnce := range []bool{true, false} {
			s := New(Config{}, c.set)
			if names := c.names; atOnce {
				ask(s, xds.Endpoint, names...)
			} else {
				for part := range slices.Chunk(names, 100) {
					ask(s, xds.Endpoint, part...)
				}
			}
			if got := s.LeftOut(); got != c.out {
				t.Errorf("%s, all at once %t: %d are left out, want %d", c.what, atOnce, got, c.out)
			}
		}
	}
}

// The cost of a request is at most that of the names that may be kept, whatever it lists: names and claims, but no
// names that are too long.
func TestEdgesOfCost(t *testing.T) {
	set, _ := great(10)
	claims := func(names []string) func(func(string, string) bool) {
		return func(yield func(string, string) bool) {
			for _, name := range names {
				if !yield(name, "v") {
					return
				}
			}
		}
	}
	each := len(invented(0, 1)[0]) + costUnknown
	for what, c := range map[string]struct {
		request Request
		want    int
	}{
		"names":          {Request{Subscribe: slices.Values(invented(0, fewNames+100))}, fewNames * each},
		"claims":         {Request{Initial: claims(invented(0, manyClaims+100))}, manyClaims * each},
		"the longest":    {Request{Subscribe: slices.Values([]string{strings.Repeat("n", maxName)})}, max(maxName+costUnknown, spendAtOnce)},
		"what is longer": {Request{Subscribe: slices.Values([]string{strings.Repeat("n", maxName+1)})}, 0},
	} {
		c.request.Type = xds.Endpoint
		if got := New(Config{Paid: true}, set).Cost(c.request); got != c.want {
			t.Errorf("%s: %d bytes, want %d", what, got, c.want)
		}
	}
	s := New(Config{}, set)
	s.Request(Request{Type: xds.Cluster, Subscribe: slices.Values([]string{wildcard}), Initial: claims(invented(0, manyClaims+1))}, nil)
	s.EndResume()
	if _, removed := takeAll(s); s.LeftOut() != 1 || len(removed) != manyClaims {
		t.Errorf("of %d claims %d are left out, and %d removed", manyClaims+1, s.LeftOut(), len(removed))
	}
}

// A request that repeats one existing name hundreds of thousands of times is truncated before it is copied; so is a
// request for a dynamic type, for which a few names are kept.
func TestRepeatedNamesAreNotCopied(t *testing.T) {
	set, there := great(10)
	again := slices.Repeat(there[:1], 1_000_000)
	for what, c := range map[string]struct {
		ask  func() (*State, Request)
		most uint64 // in bytes
	}{
		"a name of what there is": {func() (*State, Request) {
			return New(Config{}, set), Request{Type: xds.Endpoint, Subscribe: slices.Values(again)}
		}, 8 << 20},
		"a dynamic type": {func() (*State, Request) {
			return dynamicState(false), dynamicRequest{subscribe: invented(0, 200_000)}.request()
		}, 128 << 10},
	} {
		s, request := c.ask()
		request.digest()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.Request(request, nil)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > c.most {
			t.Errorf("%s: %d bytes are allocated", what, n)
		}
	}
}

// The limit of a dynamic type's names is exact.
func TestEdgesOfDynamicNames(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		s := dynamicState(false)
		for part := range slices.Chunk(invented(0, maxDynamicNames+1), map[bool]int{true: 1000, false: 10}[atOnce]) {
			s.Request(dynamicRequest{subscribe: part}.request(), nil)
		}
		if got := s.LeftOut(); got != 1 {
			t.Errorf("all at once %t: %d are left out", atOnce, got)
		}
	}
}

// The text of a refusal is searched for names up to the length that Envoy writes. A later name is not found, and the
// response is sent again in halves.
func TestEdgeOfRefusalsText(t *testing.T) {
	const named = "Error adding/updating cluster(s) "
	for more, want := range map[int]string{0: "static-a", 1: ""} {
		s := New(Config{}, &manifest.Set{Types: [xds.NumTypes]manifest.Stack{xds.Cluster: {manifest.Of(thing(xds.Cluster, "static-a@1"), thing(xds.Cluster, "static-b@1"))}}})
		ask(s, xds.Cluster, wildcard)
		r, _ := s.Next()
		end := "static-a: "
		text := strings.Repeat("x", maxScan+more-len(named)-len(end)) + named + end
		got := s.Request(Request{Type: xds.Cluster, Nonce: r.Nonce, Failed: true, Error: text}, nil)
		if len(got) != 1 || got[0].Name != want {
			t.Errorf("a text of %d bytes: the culprit is %q, want %q", len(text), got[0].Name, want)
		}
	}
}

// A client that acknowledges no response and keeps subscribing to the dependencies of its clusters is answered a
// limited number of times, and again after it has acknowledged.
func TestEdgeOfFlights(t *testing.T) {
	set, there := great(2 * maxFlights)
	s := New(Config{}, set)
	ask(s, xds.Cluster, wildcard)
	s.Next()
	var last Reply
	for _, name := range there {
		ask(s, xds.Endpoint, name)
		if r, ok := s.Next(); ok {
			last = r
		}
	}
	if n := len(s.types[xds.Endpoint].flights); n != maxFlights {
		t.Errorf("%d responses are not acknowledged, want %d", n, maxFlights)
	}
	s.Request(Request{Type: xds.Endpoint, Nonce: last.Nonce}, nil)
	if r, ok := s.Next(); !ok || len(r.Set) != maxFlights {
		t.Errorf("after an acknowledgement %d assignments are sent", len(r.Set))
	}
}
