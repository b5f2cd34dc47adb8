package budget

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"
)

const web = "spiffe://mesh/ns/shop/sa/web"

// budgetTest is a ledger with a clock, and with streams that record the reason of their end.
type budgetTest struct {
	*Ledger
	t     *testing.T
	now   time.Time
	known map[netip.Addr]struct{}
	asked int // for workloads
}

func newBudgetTest(t *testing.T, limits Limits) *budgetTest {
	w := &budgetTest{t: t, now: time.Unix(1_700_000_000, 0), known: map[netip.Addr]struct{}{}}
	w.Ledger = New(Config{Limits: limits, Now: func() time.Time { return w.now }, Workloads: func(string) map[netip.Addr]struct{} {
		w.asked++
		return w.known
	}})
	return w
}

type stream struct {
	*Entry
	ended error
}

// open opens a stream of a credential; nil if it was refused.
func (w *budgetTest) open(h Holder, node string) *stream {
	w.t.Helper()
	if h.Identity == "" {
		h.Identity = web
	}
	s := &stream{}
	var err error
	if s.Entry, err = w.Enter(h, func(err error) { s.ended = err }); err != nil {
		if !errors.Is(err, ErrExhausted) {
			w.t.Fatal(err)
		}
		return nil
	}
	s.Node(node)
	if s.ended != nil { // as the server does
		s.Leave()
	}
	return s
}

func (w *budgetTest) streams() int {
	n, _, _ := w.Count(web)
	return n
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// 10,000 good agents of one account, each with the credential of its Pod, come from one address, join, reconnect while
// their old streams still exist, and renew their certificates. An attacker may have one credential of the account, or
// 50, and invent node ids. No good agent is refused, and its streams end only because of its own newer ones.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestTenThousandAgents(t *testing.T) {
	const agents = 10_000
	gateway := netip.MustParseAddr("192.0.2.1")
	for _, attackers := range []int{0, 1, 50} {
		t.Run(fmt.Sprintf("%d stolen credentials", attackers), func(t *testing.T) {
			w := newBudgetTest(t, Limits{})
			hostile := 0
			attack := func(i int) {
				for a := range attackers {
					if a > 0 && i%20 != 0 {
						break
					}
					for j := range 2 { // the ids of good ones, too
						h := Holder{Credential: "stolen-" + strconv.Itoa(a), From: gateway}
						if s := w.open(h, "agent-"+strconv.Itoa(i+j)); s != nil {
							hostile++
							s.Spend(1 << 20)
							_ = s.Join()
						}
					}
				}
			}
			var good []*stream
			for i := range agents {
				attack(i)
				s := w.open(Holder{Credential: strconv.Itoa(i), Pod: true, From: gateway}, "agent-"+strconv.Itoa(i))
				if s == nil || s.Join() != nil || s.Spend(8<<10) != 8<<10 {
					t.Fatalf("agent %d is refused", i)
				}
				good = append(good, s)
			}
			for i := range agents { // the first half renews, all reconnect; the old connection is half dead
				attack(i)
				credential := strconv.Itoa(i)
				if i < agents/2 {
					credential += " renewed"
				}
				s := w.open(Holder{Credential: credential, Pod: true, From: gateway}, "agent-"+strconv.Itoa(i))
				if s == nil || s.Join() != nil {
					t.Fatalf("agent %d is refused when it reconnects", i)
				}
				if good[i].ended != nil {
					t.Fatalf("agent %d: its stream ended: %v", i, good[i].ended)
				}
				good[i].Leave()
				good[i] = s
			}
			for i, s := range good {
				if s.ended != nil {
					t.Fatalf("agent %d: its stream ended: %v", i, s.ended)
				}
			}
			most := agents + attackers*w.cfg.Workload
			if n := w.streams(); n > most || n < agents {
				t.Errorf("%d streams, of %d good agents and %d credentials of others, that opened %d", n, agents, attackers, hostile)
			}
			if _, _, names := w.Count(web); names > w.cfg.Names {
				t.Errorf("%d bytes of names", names)
			}
		})
	}
}

// A workload that opens more streams loses its oldest, and no other workload does.
// Promise: security-limits.md#streams-connections-and-messages, security-workloads.md#what-it-says-of-itself
func TestOldestOfAWorkload(t *testing.T) {
	for _, pod := range []bool{false, true} {
		w := newBudgetTest(t, Limits{Workload: 3})
		other := w.open(Holder{Credential: "other", Pod: pod}, "node")
		var all []*stream
		for i := range 7 {
			node := "node"
			if pod { // one Pod has one proxy, whatever it calls itself
				node += strconv.Itoa(i)
			}
			all = append(all, w.open(Holder{Credential: "c", Pod: pod}, node))
		}
		for i, s := range all {
			if (s.ended != nil) != (i < 4) {
				t.Errorf("pod %t: stream %d: %v", pod, i, s.ended)
			}
		}
		if other.ended != nil || w.streams() != 4 {
			t.Errorf("pod %t: %d streams, the other ended: %v", pod, w.streams(), other.ended)
		}
	}
}

// Above the limit of an identity, the credential with the most streams loses its newest, and streams that are proven to
// be of known workloads stay; the limit grows with the known workloads.
// Promise: security-limits.md#streams-connections-and-messages, security-workloads.md#what-it-says-of-itself
func TestCapOfAnIdentity(t *testing.T) {
	w := newBudgetTest(t, Limits{Workload: 2, Least: 20, PerKnown: 1})
	var greedy []*stream
	for i := range 20 {
		greedy = append(greedy, w.open(Holder{Credential: "greedy"}, strconv.Itoa(i)))
	}
	if w.open(Holder{Credential: "greedy"}, "one more") != nil {
		t.Error("a credential that has everything has one more stream")
	}
	if one := w.open(Holder{Credential: "light"}, "a"); one == nil || greedy[19].ended == nil || greedy[18].ended != nil {
		t.Error("a light credential does not take the newest stream of the one that has most")
	}
	for i := range 8 {
		if w.open(Holder{Credential: "shared"}, strconv.Itoa(i)) == nil {
			t.Fatalf("the other shared credential is refused at %d streams", i)
		}
	}
	if n := w.streams(); n != 20 {
		t.Errorf("%d streams", n)
	}
	w.known[address(1)] = struct{}{}
	w.now = w.now.Add(knownFor)
	proven := w.open(Holder{Credential: "greedy", From: address(1)}, "known") // the cap is 21
	if proven == nil || w.streams() != 21 {
		t.Errorf("the cap does not grow: %d streams", w.streams())
	}
	for i := range 30 {
		w.open(Holder{Credential: "light " + strconv.Itoa(i)}, "a")
	}
	if proven.ended != nil {
		t.Error("a stream of a known workload is displaced by streams of others")
	}
	if w.asked > 3 {
		t.Errorf("the workloads are looked up %d times", w.asked)
	}
}

// Two credentials that many proxies share do not displace each other's streams in turn.
func TestSharedCredentialsDoNotTakeTurns(t *testing.T) {
	w := newBudgetTest(t, Limits{Workload: 2, Least: 21})
	ended := 0
	for round := range 100 {
		for _, name := range []string{"a", "b"} {
			if s := w.open(Holder{Credential: name}, strconv.Itoa(round)); s != nil && round > 10 {
				ended++
			}
		}
	}
	if ended > 1 || w.streams() != 21 {
		t.Errorf("%d streams were exchanged, there are %d", ended, w.streams())
	}
}

// Light credentials are limited too, except those of Pods and of known workloads.
// Promise: security-limits.md#streams-connections-and-messages, security-limits.md#terms
func TestCapOfLightCredentials(t *testing.T) {
	w := newBudgetTest(t, Limits{Least: 50, PerKnown: 1})
	w.known[address(1)] = struct{}{}
	for i := range 100 {
		w.open(Holder{Credential: strconv.Itoa(i)}, "n")
	}
	if n := w.streams(); n != 51 {
		t.Errorf("%d streams", n)
	}
	if w.open(Holder{Credential: "pod", Pod: true}, "n") == nil || w.open(Holder{Credential: "known", From: address(1)}, "n") == nil {
		t.Error("a known workload is refused")
	}
}

// Names are limited for each credential, for streams that are not proven, and for the identity. Each stream may always
// keep a few, and all bytes are returned.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestSpend(t *testing.T) {
	w := newBudgetTest(t, Limits{Names: 1000, NamesFree: 10})
	spend := func(h Holder, bytes int) int { return w.open(h, "n").Spend(bytes) }
	if n := spend(Holder{Credential: "a"}, 5000); n != 260 {
		t.Errorf("one credential has %d", n)
	}
	if n := spend(Holder{Credential: "a"}, 5000); n != 10 {
		t.Errorf("another stream of it has %d", n)
	}
	total := 0
	for i := range 10 {
		total += spend(Holder{Credential: strconv.Itoa(i)}, 5000)
	}
	if total != 500+10*10 {
		t.Errorf("those that are not proven have %d more", total)
	}
	if n := spend(Holder{Credential: "pod", Pod: true}, 5000); n != 260 {
		t.Errorf("a Pod has %d", n)
	}
	if n := spend(Holder{Credential: "pod 2", Pod: true}, 5000); n != 10 {
		t.Errorf("beyond everything a Pod has %d", n)
	}
	if n := spend(Holder{Identity: "other", Credential: "a"}, 200); n != 200 {
		t.Errorf("another identity has %d", n)
	}
	s := w.open(Holder{Identity: "third"}, "n")
	if got := []int{s.Spend(100), s.Spend(-60), s.Spend(-500), s.Spend(30)}; got[0] != 100 || got[1] != -60 || got[2] != -40 || got[3] != 30 {
		t.Errorf("%v", got)
	}
	s.Leave()
	s.Leave()
	if streams, _, names := w.Count("third"); streams != 0 || names != 0 {
		t.Errorf("%d streams, %d bytes are left", streams, names)
	}
	if s.Spend(10) != 0 {
		t.Error("a stream that has left is granted something")
	}
}

// Joins of a credential have a pace, and beyond it the identity's; other credentials and identities have their own.
func TestJoins(t *testing.T) {
	w := newBudgetTest(t, Limits{Least: 100})
	s, other := w.open(Holder{Credential: "a"}, "n"), w.open(Holder{Credential: "b"}, "n")
	joins := func(s *stream, most int) (n int) {
		for range most {
			if s.Join() == nil {
				n++
			}
		}
		return n
	}
	if n := joins(s, 500); n != joinsBurst+100 {
		t.Errorf("%d joins at once", n)
	}
	if n := joins(other, 100); n != joinsBurst {
		t.Errorf("another credential joins %d times", n)
	}
	w.now = w.now.Add(time.Minute)
	if n := joins(s, 500); n != joinsBurst+100 {
		t.Errorf("%d joins a minute later", n)
	}
	w.now = w.now.Add(6 * time.Second)
	if n := joins(s, 500); n != 3+20 {
		t.Errorf("%d joins six seconds later", n)
	}
}

func TestAskAndBlame(t *testing.T) {
	w := newBudgetTest(t, Limits{Asks: 2})
	a, b := w.open(Holder{Credential: "a"}, "n"), w.open(Holder{Credential: "b"}, "n")
	done, err := a.Ask()
	_, err2 := b.Ask()
	if _, err3 := a.Ask(); err != nil || err2 != nil || !errors.Is(err3, ErrExhausted) {
		t.Fatal(err, err2, err3)
	}
	if _, err := w.open(Holder{Identity: "other"}, "n").Ask(); err != nil {
		t.Error(err)
	}
	done()
	done()
	if _, err := a.Ask(); err != nil {
		t.Error(err)
	}
	if _, err := b.Ask(); err == nil {
		t.Error("done counts twice")
	}
	n := 0
	for range 1000 {
		if a.Blame() {
			n++
		}
	}
	if n != blamesBurst/blamesShare {
		t.Errorf("objects of %d refusals are looked for, of one credential", n)
	}
}

// One credential may use a quarter of its identity's look-ups, and all credentials without a Pod three quarters
// together; all of them never exceed the identity's limit.
// Promise: security-limits.md#refused-resources
func TestBlamesAreShared(t *testing.T) {
	w := newBudgetTest(t, Limits{})
	count := func(h Holder) (n int) {
		e := w.open(h, "n")
		for range 1000 {
			if e.Blame() {
				n++
			}
		}
		return n
	}
	const quarter = 16 // of 64
	if n := count(Holder{Credential: "greedy", Pod: true}); n != quarter {
		t.Errorf("one Pod: %d", n)
	}
	loose := 0
	for i := range 10 {
		loose += count(Holder{Credential: "token " + strconv.Itoa(i)})
	}
	if loose != 3*quarter {
		t.Errorf("credentials of no Pod: %d, with a Pod's %d", loose, quarter)
	}
	w.now = w.now.Add(time.Hour)
	loose = 0
	for i := range 10 {
		loose += count(Holder{Credential: "token " + strconv.Itoa(i)})
	}
	if n := count(Holder{Credential: "pod", Pod: true}); loose != 3*quarter || n != quarter {
		t.Errorf("credentials of no Pod: %d; a Pod after them: %d", loose, n)
	}
	if n := count(Holder{Credential: "another pod", Pod: true}); n != 0 {
		t.Errorf("beyond what the identity may have: %d", n)
	}
	if n := count(Holder{Identity: "other", Credential: "pod", Pod: true}); n != quarter {
		t.Errorf("another identity: %d", n)
	}
}

// Nothing is kept of credentials without streams.
func TestForgotten(t *testing.T) {
	w := newBudgetTest(t, Limits{Least: 10})
	for i := range 1000 {
		if s := w.open(Holder{Credential: strconv.Itoa(i)}, "n"); s != nil && i%2 == 0 {
			s.Leave()
		}
	}
	w.now = w.now.Add(forgetAfter)
	w.Tick()
	if streams, credentials, _ := w.Count(web); streams != 10 || credentials != 10 {
		t.Errorf("%d streams, %d credentials", streams, credentials)
	}
	if w.idle.Len() != 0 {
		t.Errorf("%d are idle", w.idle.Len())
	}
}

// A nil Entry has no limits.
func TestNobody(t *testing.T) {
	var e *Entry
	e.Node("n")
	e.Leave()
	done, err := e.Ask()
	done()
	if err != nil || e.Join() != nil || e.Spend(1<<40) != 1<<40 || !e.Blame() {
		t.Error("nobody is bounded")
	}
}
