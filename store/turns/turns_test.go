package turns

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func host(b byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, b}), 32) }

// Hosts alternate, however many requests of one wait. Requests of one host are served in order, and one whose client
// has gone gets no turn.
// Promise: security-connections.md#handshakes
func TestLineIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 0)
		if !l.Enter(host(1), false, nil) {
			t.Fatal("there is a free turn")
		}
		var order []string
		wait := func(name string, b byte, first bool) (leave func()) {
			gone := make(chan struct{})
			go func() {
				if l.Enter(host(b), first, gone) {
					order = append(order, name)
					l.Leave(host(b))
				}
			}()
			synctest.Wait()
			return func() { close(gone); synctest.Wait() }
		}
		wait("a1", 1, false)
		wait("a2", 1, false)
		left := wait("a3", 1, false)
		wait("a4", 1, false)
		wait("b1", 2, false)
		wait("a5, first", 1, true)
		wait("c1", 3, false)
		gone := wait("d1", 4, false)
		left()
		gone()
		l.Leave(host(1))
		synctest.Wait()
		if got := strings.Join(order, " "); got != "a5, first b1 c1 a1 a2 a4" {
			t.Error(got)
		}
		if l.free != 1 || l.Waiting()+l.order.Len() != 0 || len(l.hosts)+len(l.running) != 0 {
			t.Errorf("%d free, %d hosts wait", l.free, len(l.hosts))
		}
	})
}

// No more have a turn at once than there are.
// Promise: security-connections.md#handshakes
func TestTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns, clients = 3, 20
		l := New(turns, 0)
		var mu sync.Mutex
		now, highest, done := 0, 0, 0
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				l.Enter(netip.Prefix{}, false, nil)
				mu.Lock()
				now++
				highest = max(highest, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				done++
				mu.Unlock()
				l.Leave(netip.Prefix{})
			})
		}
		all.Wait()
		if highest != turns || done != clients {
			t.Errorf("%d at once, %d of %d", highest, done, clients)
		}
	})
}

// A host has no more turns at once than its part, though there are free ones, which another host has at once.
// Promise: security-admission.md#turns-and-connections
func TestPartOfAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(4, 2)
		entered := map[byte]int{}
		var mu sync.Mutex
		enter := func(b byte) {
			go func() {
				l.Enter(host(b), false, nil)
				mu.Lock()
				defer mu.Unlock()
				entered[b]++
			}()
			synctest.Wait()
		}
		expect := func(one, two, three int) {
			t.Helper()
			if synctest.Wait(); entered[1] != one || entered[2] != two || entered[3] != three {
				t.Errorf("turns %v, want %d %d %d", entered, one, two, three)
			}
		}
		for range 5 {
			enter(1)
		}
		expect(2, 0, 0)
		enter(2)
		expect(2, 1, 0)
		l.Leave(host(2)) // frees nothing for the first
		expect(2, 1, 0)
		for range 3 {
			enter(2)
		}
		expect(2, 3, 0)
		enter(3)
		expect(2, 3, 0)
		l.Leave(host(1)) // the first host's next, which has waited longest
		expect(3, 3, 0)
		l.Leave(host(2))
		expect(3, 4, 0)
		l.Leave(host(1)) // the first has two left, and its turn is after the others'
		expect(3, 4, 1)
		for b, n := range map[byte]int{1: 1, 2: 2, 3: 1} {
			for range n {
				l.Leave(host(b))
			}
		}
		expect(5, 4, 1)
		l.Leave(host(1))
		l.Leave(host(1))
		if l.free != 4 || l.Waiting()+l.order.Len()+len(l.hosts)+len(l.running) != 0 {
			t.Errorf("%d free, %d hosts wait", l.free, len(l.hosts))
		}
	})
}

// A request that is not ahead takes no precedence from its host's waiting requests that are ahead. A host has no
// precedence once those have a turn or are gone.
func TestHostStaysAhead(t *testing.T) {
	for name, c := range map[string]struct {
		goes bool // the request that is ahead stops waiting
		want string
	}{"a request that is ahead waits": {want: "a1, ahead b1 a2"}, "it is gone": {goes: true, want: "b1 a2"}} {
		synctest.Test(t, func(t *testing.T) {
			l := New(1, 0)
			if !l.EnterAs(Turn{Host: host(3)}, nil) {
				t.Fatal("there is a free turn")
			}
			var order []string
			wait := func(name string, turn Turn) chan struct{} {
				gone := make(chan struct{})
				go func() {
					if l.EnterAs(turn, gone) {
						order = append(order, name)
						l.LeaveAs(turn)
					}
				}()
				synctest.Wait()
				return gone
			}
			wait("b1", Turn{Host: host(2)})
			gone := wait("a1, ahead", Turn{Host: host(1), Ahead: true})
			wait("a2", Turn{Host: host(1)})
			if c.goes {
				close(gone)
				synctest.Wait()
			}
			l.Leave(host(3))
			synctest.Wait()
			if got := strings.Join(order, " "); got != c.want || l.free != 1 || l.Waiting()+l.order.Len()+len(l.hosts) != 0 {
				t.Errorf("%s: %s, want %s; %d free, %d hosts wait", name, got, c.want, l.free, len(l.hosts))
			}
		})
	}
}

// The parts of a host alternate, each within its bound; names of another host's parts have no effect; and a host that
// is ahead of others gets the next turn.
// Promise: security-admission.md#turns-and-connections
func TestPartsAndHostsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewOfParts(2, 2, 1)
		var order []string
		leave := map[string]func(){}
		var mu sync.Mutex
		enter := func(b byte, part, name string, ahead bool) {
			turn := Turn{Host: host(b), Part: part, Ahead: ahead}
			go func() {
				if l.EnterAs(turn, nil) {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, name)
					leave[name] = func() { l.LeaveAs(turn) }
				}
			}()
			synctest.Wait()
		}
		end := func(name string) { leave[name](); synctest.Wait() }
		enter(1, "noisy", "n1", false)
		enter(1, "noisy", "n2", false) // one turn is free, and its part has its share
		enter(1, "noisy", "n3", false)
		enter(1, "quiet", "q1", false)
		enter(1, "other", "o1", false)
		enter(2, "", "b1", false)
		enter(3, "", "c1, ahead", true)
		for _, name := range []string{"q1", "c1, ahead", "n1", "o1", "b1", "n2", "n3"} {
			if leave[name] == nil {
				t.Fatalf("%s has no turn after %q", name, order)
			}
			end(name)
		}
		if got := strings.Join(order, " "); got != "n1 q1 c1, ahead o1 b1 n2 n3" {
			t.Error(got)
		}
		if l.free != 2 || l.Waiting()+l.order.Len()+len(l.hosts)+len(l.running)+len(l.parts) != 0 {
			t.Errorf("%d free, %d hosts wait", l.free, len(l.hosts))
		}
	})
}
