package delta

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// invented returns n names without resources.
func invented(from, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("outbound|80||invented-%07d.nowhere.svc.cluster.local", from+i))
	}
	return names
}

// kept returns the number of names in a stream's state, over all types.
func kept(s *State) (n int) {
	for t := range s.types {
		n += s.types[t].names.Len() + len(s.types[t].overrides)
		for _, f := range s.types[t].flights {
			n += len(f.removed)
		}
	}
	return n
}

func ask(s *State, t xds.Type, names ...string) {
	s.Request(Request{Type: t, Subscribe: slices.Values(names)}, nil)
}

// takeAll lets a client accept and acknowledge all responses; it returns the names that were sent, and those that were
// removed.
func takeAll(s *State) (set, removed []string) {
	for r, ok := s.Next(); ok; r, ok = s.Next() {
		for _, one := range r.Set {
			set = append(set, one.Name)
		}
		removed = append(removed, r.Removed...)
		s.Request(Request{Type: r.Type, Nonce: r.Nonce}, nil)
	}
	return set, removed
}

// Names beyond the limits are not copied: a message may contain hundreds of thousands of names, and dozens of streams
// may send one at the same time. Existing resources among the names are served at any position in the list.
// Promise: security-limits.md#streams-connections-and-messages
func TestManyNamesAreNotCopied(t *testing.T) {
	set, there := great(10)
	for _, sotw := range []bool{false, true} {
		list := invented(0, 200_000)
		list = slices.Concat(list, there, list) // each existing name twice
		s := New(Config{SotW: sotw}, set)
		request := Request{Type: xds.Endpoint, Subscribe: slices.Values(list), Unsubscribe: slices.Values(list[:100_000])}
		request.digest()
		for i := range 2 { // the first request of the type, and a later one
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s.Request(request, nil)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
				t.Errorf("state of the world %t, request %d: %d bytes are allocated", sotw, i, n)
			}
			if got := int(s.LeftOut()); got < (i+1)*390_000 {
				t.Errorf("state of the world %t, request %d: %d names were left out", sotw, i, got)
			}
			sent, _ := takeAll(s)
			for _, name := range there {
				if i == 0 && !slices.Contains(sent, name) {
					t.Errorf("state of the world %t: %s was not sent, among %d", sotw, name, len(sent))
				}
			}
		}
	}
}

// Whatever a client requests, and in whatever way, a stream keeps a limited number of names without resources, and
// serves existing resources as if those names were absent.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestUnknownNamesAreBounded(t *testing.T) {
	const most = 4 * 2 * fewNames // of each type: in the list, and as an override
	for _, sotw := range []bool{false, true} {
		for _, all := range []bool{false, true} {
			for _, acks := range []bool{false, true} {
				t.Run(fmt.Sprintf("state of the world %t, wildcard %t, acknowledges %t", sotw, all, acks), func(t *testing.T) {
					set, names := great(10)
					s := New(Config{SotW: sotw}, set)
					if all {
						ask(s, xds.Endpoint, wildcard)
					}
					var list []string
					for i := range 3 {
						more := invented(i*5_000, 5_000)
						if list = more; sotw && i%2 == 1 {
							list = slices.Concat(invented((i-1)*5_000, 5_000), more)
						}
						for _, t := range []xds.Type{xds.Cluster, xds.Endpoint, xds.Route, xds.Secret} {
							ask(s, t, list...)
						}
						if acks {
							takeAll(s)
						} else {
							s.Next()
						}
						if n := kept(s); n > most {
							t.Fatalf("%d names are kept", n)
						}
					}
					if s.LeftOut() == 0 {
						t.Error("it is not said that names were left out")
					}
					ask(s, xds.Endpoint, append(list, names...)...)
					if got, _ := takeAll(s); !all && acks && !subset(names, got) {
						t.Errorf("of what there is %d are sent", len(got))
					}
				})
			}
		}
	}
}

func subset(some, of []string) bool {
	return !slices.ContainsFunc(some, func(n string) bool { return !slices.Contains(of, n) })
}

// Only streams keep shared lists alive: a list without a stream is freed by the garbage collector. A limited number of
// lists is remembered, however many were sent.
// Promise: security-limits.md#streams-connections-and-messages
func TestRememberedListsAreNotHeld(t *testing.T) {
	var shared Names
	kept, _ := shared.intern(slices.Values(invented(0, 100)), sumOf(invented(0, 100)))
	for i := range 2 * maxRecent {
		names := invented(i*100, 100)
		shared.intern(slices.Values(names), sumOf(names))
		if again, _ := shared.intern(slices.Values(invented(0, 100)), sumOf(invented(0, 100))); again != kept {
			t.Fatal("a list that a stream keeps is not found")
		}
	}
	if n := shared.recent.Len(); n != maxRecent {
		t.Errorf("%d lists are remembered", n)
	}
	for deadline := time.Now().Add(time.Minute); shared.table.Size() > 1 && time.Now().Before(deadline); {
		runtime.GC()
		runtime.Gosched()
	}
	if n := shared.table.Size(); n != 1 {
		t.Errorf("%d lists are held, one stream keeps one", n)
	}
	if list, found := shared.found(sumOf(kept.All())); !found || list != kept {
		t.Error("the one that is kept is not found")
	}
	runtime.KeepAlive(kept)
}

// A name may be requested before its resource exists: within the limit it is served when the resource appears.
// Promise: security-limits.md#streams-connections-and-messages
func TestUnknownNamesAreServedLater(t *testing.T) {
	set, names := great(3000)
	s := New(Config{}, &manifest.Set{})
	ask(s, xds.Endpoint, names...)
	if got, _ := takeAll(s); len(got) != 3000 {
		t.Fatalf("%d answers", len(got))
	}
	s.Target(set)
	ask(s, xds.Cluster)
	takeAll(s)
	for _, name := range names {
		if s.Good(xds.Endpoint, name) != set.Types[xds.Endpoint].Get(name).Version {
			t.Fatalf("%s is not served", name)
		}
	}
	if s.LeftOut() != 0 || s.Again() {
		t.Error("names were left out")
	}
}

// grants is a budget that many streams share.
type grants struct{ size, spent int }

// request passes a request to a stream with as much of its cost as the budget has, and returns the unused part to the
// budget.
func (p *grants) request(s *State, r Request) {
	granted := min(s.Cost(r), p.size-p.spent)
	p.spent += granted
	s.Grant(granted)
	s.Request(r, nil)
	p.spent -= s.Surplus()
}

func (p *grants) ask(s *State, t xds.Type, names ...string) {
	p.request(s, Request{Type: t, Subscribe: slices.Values(names)})
}

// A proxy connects after a mass removal to a replica that never had the removed resources: all of them are removed from
// the proxy, at once or, if the budget does not suffice, after further connections.
// Promise: security-limits.md#streams-connections-and-messages
func TestResumeAfterMassRemoval(t *testing.T) {
	set, names := great(100)
	stack := set.Types[xds.Cluster]
	for _, c := range []struct{ size, streams int }{{1 << 30, 1}, {4 << 20, 4}} {
		have := map[string]string{}
		for _, name := range names {
			have[name] = stack.Get(name).Version
		}
		for _, name := range invented(0, 20_000) {
			have[name] = "old"
		}
		p := &grants{size: c.size}
		streams := 0
		for again := true; again; {
			if streams++; streams > 10 {
				t.Fatal("it comes again and again")
			}
			s := New(Config{Paid: true}, set)
			p.request(s, Request{Type: xds.Cluster, Initial: func(yield func(string, string) bool) {
				for name, version := range have {
					if !yield(name, version) {
						return
					}
				}
			}})
			if s.Again() {
				t.Fatal("it is to come again before it is told what there is room for")
			}
			s.EndResume()
			_, removed := takeAll(s)
			for _, name := range removed {
				delete(have, name)
			}
			p.spent -= s.Surplus()
			if p.spent > 2*spendAtOnce {
				t.Errorf("%d bytes are not given back", p.spent)
			}
			again, p.spent = s.Again(), 0
		}
		if streams > c.streams || len(have) != len(names) {
			t.Errorf("with %d bytes: %d streams, and the proxy has %d clusters", c.size, streams, len(have))
		}
	}
}

// A stream for which names were left out is closed for a new connection when other resources of the type exist, and not
// earlier.
// Promise: security-limits.md#streams-connections-and-messages
func TestLeftOutNamesAreAskedForAgain(t *testing.T) {
	set, _ := great(10)
	s := New(Config{Paid: true}, set)
	if s.Cost(Request{Type: xds.Route, Subscribe: slices.Values([]string{"80"})}) != 0 {
		t.Error("what there is costs something")
	}
	ask(s, xds.Route, "80", "later")
	if got, _ := takeAll(s); !slices.Equal(got, []string{"80"}) || s.LeftOut() != 1 {
		t.Fatalf("sent %v, %d left out", got, s.LeftOut())
	}
	same := *set
	same.Types[xds.Endpoint] = manifest.Stack{}
	s.Target(&same)
	takeAll(s)
	if s.Again() {
		t.Error("it comes again although there is no other route")
	}
	other := same
	other.Types[xds.Route][manifest.Workload] = manifest.Of(thing(xds.Route, "later@1"))
	s.Target(&other)
	ask(s, xds.Cluster)
	takeAll(s)
	if !s.Again() {
		t.Error("it does not come again, and would wait for ever")
	}
}

// The budget gets bytes back for names that are unsubscribed, and for names whose resources exist now.
func TestSpendingIsGivenBack(t *testing.T) {
	set, names := great(2000)
	p := &grants{size: 1 << 30}
	s := New(Config{Paid: true}, &manifest.Set{})
	p.ask(s, xds.Endpoint, names...)
	takeAll(s)
	if want := 2000 * (len(names[0]) + costUnknown); p.spent < want || p.spent > want+2*spendAtOnce {
		t.Fatalf("%d bytes are paid for, want %d", p.spent, want)
	}
	for some := range slices.Chunk(names[:1000], 10) {
		p.request(s, Request{Type: xds.Endpoint, Unsubscribe: slices.Values(some)})
		p.request(s, Request{Type: xds.Endpoint, Unsubscribe: slices.Values(some)}) // for the second time
	}
	if half := 1000 * (len(names[0]) + costUnknown); p.spent > half+2*spendAtOnce || p.spent < half {
		t.Errorf("%d bytes are paid for, want %d", p.spent, half)
	}
	s.Target(set)
	takeAll(s)
	p.ask(s, xds.Endpoint, invented(0, 100)...) // the other resources exist: their bytes pay for these
	if p.spent > 100*(100+costUnknown)+3*spendAtOnce {
		t.Errorf("%d bytes are paid for, for 100 names", p.spent)
	}
}

// A very long name is left out, wherever it is in a request; the stream stays open, also later.
// Promise: security-limits.md#streams-connections-and-messages
func TestLongNames(t *testing.T) {
	long := strings.Repeat("n", maxName+1)
	set, names := great(3)
	claim := func(yield func(string, string) bool) { yield(long, "1") }
	s := New(Config{}, set)
	s.Request(Request{Type: xds.Cluster, Initial: claim}, nil)
	s.Request(Request{Type: xds.Cluster, Subscribe: slices.Values([]string{long, "short"})}, nil)
	s.Request(Request{Type: xds.Endpoint, Subscribe: slices.Values(append(names, long)), Initial: claim}, nil)
	s.Request(Request{Type: xds.Endpoint, Subscribe: slices.Values([]string{long + "2", "short"})}, nil)
	for ty := range s.types {
		for name := range s.types[ty].overrides {
			if len(name) > maxName {
				t.Errorf("%v: a name of %d bytes is kept", xds.Type(ty), len(name))
			}
		}
		for _, name := range s.types[ty].names.All() {
			if len(name) > maxName {
				t.Errorf("%v: a name of %d bytes is asked for", xds.Type(ty), len(name))
			}
		}
	}
	if got, removed := takeAll(s); !subset(append(names, "short"), got) || !slices.Equal(removed, []string{"short"}) || s.LeftOut() != 4 {
		t.Errorf("sent %d, removed %v, %d left out", len(got), removed, s.LeftOut())
	}
	s.Target(&manifest.Set{})
	if takeAll(s); s.Again() {
		t.Error("the stream comes again")
	}
	if got := s.Request(Request{Type: xds.Cluster, Nonce: long}, nil); len(got) != 1 || len(got[0].Nonce) > maxNonce {
		t.Errorf("a nonce is kept: %v", got)
	}
}

// Removing many clusters searches the routes once, and not once for each cluster: otherwise the cost would be the
// product with the number of a client's overrides.
func TestRemovalsLookAtRoutesOnce(t *testing.T) {
	const n = 500
	set, _ := great(n)
	var routes []*xds.Resource
	var names []string
	for i := range n {
		r := thing(xds.Route, fmt.Sprintf("route-%d@1", i))
		routes, names = append(routes, r), append(names, r.Name)
	}
	set.Types[xds.Route][manifest.Scope] = manifest.Of(routes...)
	looked := 0
	s := New(Config{}, set)
	s.Withhold(func(r *xds.Resource) bool {
		looked++
		return r.Type == xds.Route // each is a waiting override
	})
	ask(s, xds.Cluster)
	takeAll(s)
	ask(s, xds.Route, names...)
	takeAll(s)
	less := *set
	less.Types[xds.Cluster], less.Types[xds.Endpoint] = manifest.Stack{}, manifest.Stack{}
	s.Target(&less)
	looked = 0
	if _, removed := takeAll(s); len(removed) != n {
		t.Fatalf("%d clusters are removed", len(removed))
	}
	if looked > 20*n {
		t.Errorf("%d looks at %d routes, for %d clusters", looked, n, n)
	}
}
