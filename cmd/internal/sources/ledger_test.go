package sources

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// holder is a Holder whose Busy returns set values, and counts its calls.
type holder struct {
	name          string
	busy, younger bool
	asked         int
}

func (h *holder) Busy(time.Time) (busy, younger bool) {
	h.asked++
	return h.busy, h.younger
}

// ledgerTest is a ledger and its entries by name.
type ledgerTest struct {
	t *testing.T
	*Ledger
	entries map[string]*Entry
}

func newLedgerTest(t *testing.T, l Limits) *ledgerTest {
	return &ledgerTest{t, NewLedger(l), map[string]*Entry{}}
}

// enter enters a holder, and compares the displaced one: a name, "" without one, or "none" without a place.
func (w *ledgerTest) enter(from, name, want string) {
	w.t.Helper()
	if w.entries[name] == nil {
		w.entries[name] = w.Entry(&holder{name: name}, &net.TCPAddr{IP: net.ParseIP(from), Port: 1})
	}
	got := ""
	lost, ok := w.Enter(w.entries[name])
	if lost != nil {
		got = lost.(*holder).name
	}
	if !ok {
		got += "none"
	}
	if got != want {
		w.t.Errorf("%s of %s enters: %q, want %q", name, from, got, want)
	}
}

func (w *ledgerTest) busy(is bool, names ...string) {
	for _, name := range names {
		w.entries[name].holder.(*holder).busy = is
	}
}

// all checks how many have places, and of how many sources.
func (w *ledgerTest) all(places, sources int) {
	w.t.Helper()
	if w.Taken() != places || len(w.sources) != sources {
		w.t.Errorf("%d places of %d sources, want %d of %d", w.Taken(), len(w.sources), places, sources)
	}
}

// A source with many places displaces only its own.
// Promise: security-connections.md#places-and-time
func TestOldestOfTheSourceThatHasMost(t *testing.T) {
	w := newLedgerTest(t, Limits{Total: 5, PerSource: 3})
	w.enter("10.0.0.1", "a1", "")
	w.enter("10.0.0.1", "a2", "")
	w.enter("10.0.0.1", "a3", "")
	w.enter("10.0.0.1", "a4", "a1")
	w.enter("10.0.0.1", "a4", "") // a4 has a place already
	w.enter("10.0.0.2", "b1", "")
	w.enter("10.0.0.2", "b2", "")
	w.enter("10.0.0.3", "c1", "a2")
	w.enter("10.0.0.2", "b3", "b1") // no other source has more
	w.all(5, 3)
	w.enter("10.0.0.1", "a1", "none") // a1 was displaced before
	for _, e := range w.entries {
		w.Leave(e)
		w.Leave(e)
	}
	w.all(0, 0)
	w.enter("10.0.0.1", "a4", "none") // a4 has left before
}

// A busy holder loses nothing to its own source, and is displaced last in favour of another source with fewer places.
func TestBusy(t *testing.T) {
	w := newLedgerTest(t, Limits{Total: 4, PerSource: 3})
	for _, name := range []string{"a1", "a2", "a3"} {
		w.enter("10.0.0.1", name, "")
	}
	w.busy(true, "a1", "a2", "a3")
	w.enter("10.0.0.1", "a4", "none")
	w.enter("10.0.0.2", "b1", "")
	w.busy(false, "a2")
	w.enter("10.0.0.3", "c1", "a2")
	w.enter("10.0.0.4", "d1", "a1")
	w.all(4, 4)
}

// If the oldest entry is busy because it is recent, all later ones are busy too, and are not checked: a full source
// costs the same, whatever its size.
func TestYounger(t *testing.T) {
	w := newLedgerTest(t, Limits{Total: 3, PerSource: 3})
	for _, name := range []string{"a1", "a2", "a3"} {
		w.enter("10.0.0.1", name, "")
		h := w.entries[name].holder.(*holder)
		h.busy, h.younger = true, name != "a1"
	}
	w.enter("10.0.0.1", "a4", "none")
	for name, want := range map[string]int{"a1": 1, "a2": 1, "a3": 0} {
		if got := w.entries[name].holder.(*holder).asked; got != want {
			t.Errorf("%s was asked %d times, want %d", name, got, want)
		}
	}
	w.busy(false, "a1")
	w.enter("10.0.0.1", "a4", "a1")
}

// A known source keeps a few places, whatever others do.
// Promise: security-connections.md#places-and-time
func TestKnown(t *testing.T) {
	w := newLedgerTest(t, Limits{Total: 4, PerSource: 4, Known: 2})
	w.enter("10.0.0.1", "a0", "")
	w.Know(w.entries["a0"])
	w.Leave(w.entries["a0"])
	w.enter("10.0.0.1", "a1", "")
	w.enter("10.0.0.1", "a2", "")
	w.enter("10.0.0.2", "b1", "")
	w.enter("10.0.0.3", "c1", "")
	for i := range 10 { // of many sources, which have less than it
		from := net.IPv4(10, 0, 1, byte(i))
		lost, ok := w.Enter(w.Entry(&holder{name: from.String()}, &net.TCPAddr{IP: from}))
		if !ok || lost == nil || strings.HasPrefix(lost.(*holder).name, "a") {
			t.Errorf("%v lost to %v, %v", lost, from, ok)
		}
	}
	if lost, ok := w.Enter(w.Entry(&holder{}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)})); !ok || lost.(*holder).name != "a1" {
		t.Errorf("it has as many as it is given: %v, %v", lost, ok)
	}
	w.Forget(w.entries["a0"])
	w.enter("10.0.0.5", "e1", "a2")
	if w.Known() != 0 {
		t.Errorf("kept: %v", w.known)
	}
}

// Up to that number, a known source displaces holders of other sources that have as few places.
// Promise: security-connections.md#places-and-time
func TestKnownComes(t *testing.T) {
	w := newLedgerTest(t, Limits{Total: 2, PerSource: 2, Known: 2})
	w.enter("10.0.0.1", "a0", "")
	w.Know(w.entries["a0"])
	w.Leave(w.entries["a0"])
	w.enter("10.0.0.1", "a1", "")
	w.enter("10.0.0.2", "b1", "")
	w.enter("10.0.0.1", "a2", "b1")
}

// Above that number, a known source loses places like all others.
func TestKnownHasMuch(t *testing.T) {
	w := newLedgerTest(t, Limits{Total: 4, PerSource: 4, Known: 2})
	for _, name := range []string{"a1", "a2", "a3"} {
		w.enter("10.0.0.1", name, "")
	}
	w.Know(w.entries["a1"])
	w.enter("10.0.0.2", "b1", "")
	w.enter("10.0.0.3", "c1", "a1")
}

// A shared source may occupy all places.
func TestShared(t *testing.T) {
	w := newLedgerTest(t, Limits{Total: 4, PerSource: 1, Shared: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::5/128")}})
	for _, name := range []string{"a1", "a2", "a3"} {
		w.enter("10.0.0.1", name, "")
	}
	w.enter("10.0.1.1", "b1", "")
	w.enter("10.0.1.1", "b2", "b1")
	w.enter("10.0.0.2", "c1", "a1")
	w.enter("2001:db8::6", "d1", "a2") // the same /64
	if !w.Shared(w.entries["d1"]) || w.Shared(w.entries["b2"]) {
		t.Error("who is in a shared range")
	}
}
