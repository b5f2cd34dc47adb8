//go:build !race

package ingest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// For any number of waiting changes of one namespace, changes of others are in the next batch.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestNoisyNamespaceDoesNotDelayOthers(t *testing.T) {
	endpoint := Objects{put(t, in("quiet", epSlice("s", "10.0.0.1", "p")))}
	route := Objects{put(t, in("calm", vs("r", "1s")))}
	for name, test := range map[string]struct {
		noisy   []Objects
		batches int // batches for all of them
	}{
		"2,000 changes of one record": {many(t, "noisy", 2000, 1), 21},
		"100 of 20":                   {many(t, "noisy", 2000, 20), 26}, // four and the endpoint, then four more of each
		"20 of 90":                    {many(t, "noisy", 1800, 90), 20},
		"8 of 250":                    {many(t, "noisy", 2000, 250), 9},
		"one of 2,000":                {many(t, "noisy", 2000, 2000), 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t)
			c.emit(test.noisy...)
			c.emit(endpoint, route)
			batches := 0
			for w := c.done(); w != nil; w = c.done() {
				if batches++; batches == 1 && (!keys(w)["quiet/s"] || !keys(w)["calm/r"]) {
					t.Errorf("the first batch has %d records of others", w.Batch.Len())
				}
				if w.Batch.Len() > fill && len(test.noisy[0]) <= fill {
					t.Errorf("a batch of %d", w.Batch.Len())
				}
			}
			if want := len(slices.Concat(test.noisy...)) + 3; len(c.stored) != want || batches > test.batches {
				t.Errorf("%d records in %d batches, want %d in at most %d", len(c.stored), batches, want, test.batches)
			}
		})
	}
}

// A group that is larger than a batch lets others pass once, and is then written whole: neither starves the other.
func TestLargeGroupHasItsTurn(t *testing.T) {
	c := newCounter(t)
	large := many(t, "noisy", 600, 300)
	c.emit(large...)
	order := ""
	for i := range 8 {
		c.emit(Objects{put(t, in("quiet", vs("r", fmt.Sprintf("%ds", i+1))))})
		w := c.done()
		switch n := w.Batch.Len(); {
		case n == 1 && keys(w)["quiet/r"]:
			order += "q"
		case n == 300 && !keys(w)["quiet/r"]:
			order += "L"
		default:
			t.Fatalf("a batch of %d", n)
		}
	}
	if order != "qLqLqqqq" && order != "qLqqLqqq" {
		t.Errorf("written in the order %s", order)
	}
}

// Nor do many small ones of another namespace, however many wait.
func TestLargeGroupBesideMany(t *testing.T) {
	c := newCounter(t)
	c.emit(many(t, "large", 300, 300)...)
	c.emit(many(t, "busy", 500, 1)...)
	if a, b := c.done().Batch.Len(), c.done().Batch.Len(); a != fill || b != 300 {
		t.Errorf("batches of %d and %d", a, b)
	}
}

func TestEmitIsOneBatch(t *testing.T) {
	c := newCounter(t)
	c.emit(many(t, "noisy", 500, 1)...)
	wide := slices.Concat(many(t, "noisy2", 60, 60)[0], many(t, "other", 60, 60)[0], many(t, "third", 5, 5)[0])
	c.emit(wide)
	for w := c.done(); w != nil; w = c.done() {
		n := 0
		for name := range keys(w) {
			if !strings.HasPrefix(name, "noisy/") {
				n++
			}
		}
		if n != 0 && n != len(wide) {
			t.Fatalf("%d of %d records that were told together are in one batch", n, len(wide))
		}
	}
	if len(c.stored) != 500+len(wide)+1 {
		t.Errorf("%d records", len(c.stored))
	}
	// Groups in the box stay separate, too.
	l := New(Config{})
	l.Emit(wide)
	l.Emit(wide[:1])
	if in, _ := l.box.Take(); len(in.emits) != 2 || len(in.emits[0].Objects) != len(wide) || in.emits[1].At.Before(in.emits[0].At) {
		t.Errorf("took %d emits", len(in.emits))
	}
}

// Changes that share a record are written together, in the place of the older one; latest value wins.
func TestSharedRecordsStayTogether(t *testing.T) {
	a := many(t, "noisy", 60, 60)[0]
	b := many(t, "noisy2", 60, 60)[0]
	b2 := many(t, "noisy3", 60, 60)[0]
	stored := put(t, in("warm", vs("up", "1s")))
	for name, test := range map[string]struct {
		emits []Objects
		want  [][]string // the keys among these that each batch has
		watch []string
	}{
		"place of the older": {[]Objects{a, b, {put(t, in("noisy", vs("v0007", "9s"))), put(t, in("noisy", vs("new", "1s")))}},
			[][]string{{"noisy/new", "noisy/v0001", "noisy/v0007"}, {"noisy2/v0001"}}, []string{"noisy/new", "noisy/v0001", "noisy/v0007", "noisy2/v0001"}},
		"across namespaces": {[]Objects{a, b, b2, {put(t, in("noisy", vs("v0007", "9s"))), put(t, in("noisy2", vs("v0007", "9s")))}},
			[][]string{{"noisy3/v0001"}, {"noisy/v0001", "noisy2/v0001"}}, []string{"noisy/v0001", "noisy2/v0001", "noisy3/v0001"}},
		"what is as before again": {[]Objects{{put(t, in("warm", vs("up", "2s"))), a[1]}, b, {stored, put(t, in("far", vs("x", "1s")))}},
			[][]string{{"far/x", "noisy/v0001", "noisy2/v0001"}}, []string{"far/x", "noisy/v0001", "noisy2/v0001", "warm/up"}},
		"place of the oldest, of three": {append(many(t, "noisy", 150, 50), Objects{put(t, in("noisy", vs("v0001", "9s"))), put(t, in("noisy", vs("v0101", "9s")))}),
			[][]string{{"noisy/v0001", "noisy/v0101"}, {"noisy/v0051"}}, []string{"noisy/v0001", "noisy/v0051", "noisy/v0101"}},
		"put back while it is written":   {[]Objects{{gone(stored)}}, [][]string{{"warm/up"}}, []string{"warm/up"}},
		"told again while it is written": {[]Objects{{stored}}, nil, nil},
		"nothing is left":                {[]Objects{{a[1]}, {gone(a[1])}}, nil, []string{"noisy/v0001"}},
		"two became three": {[]Objects{{a[1]}, {a[2]}, {gone(a[1]), gone(a[2]), a[3]}},
			[][]string{{"noisy/v0003"}}, []string{"noisy/v0001", "noisy/v0002", "noisy/v0003"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t)
			c.emit(test.emits...)
			var got [][]string
			for w := c.done(); w != nil; w = c.done() {
				all := keys(w)
				maps.DeleteFunc(all, func(name string, _ bool) bool { return !slices.Contains(test.watch, name) })
				got = append(got, slices.Sorted(maps.Keys(all)))
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("wrote %q, want %q", got, test.want)
			}
			if n := len(c.s.writes.queue.of) + c.s.writes.queue.waits + c.s.writes.queue.config; n != 0 {
				t.Errorf("%d are left", n)
			}
		})
	}
}

// Versions of one record are written in the order of their events, also if it changes while it is being written.
func TestOrderOfOneRecord(t *testing.T) {
	c := newCounter(t)
	c.emit(many(t, "shop", 300, 1)...)
	var last model.Hash
	for i := range 20 {
		text := vs("v0000", fmt.Sprintf("%ds", i+2))
		c.emit(Objects{put(t, text)}, Objects{put(t, vs("v0000", fmt.Sprintf("%ds", i+30)))}, Objects{put(t, text)})
		records, _ := Records([]object.Event{put(t, text)}, c.s.inventory.normal.Options)
		last = records[0].Meta().Hash
		if i%4 == 3 {
			c.done()
		}
	}
	for c.flying != nil {
		c.done()
	}
	key := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "v0000"}
	if c.stored[key] != last {
		t.Error("the last value is not stored")
	}
	if b := c.s.Stats(); b.Puts != 301+2 {
		t.Errorf("%d records were written, want each once and one twice more", b.Puts)
	}
}

// A namespace that edits the same objects again and again keeps no more waiting than it has.
func TestWaitingIsBounded(t *testing.T) {
	c := newCounter(t)
	for i := range 500 {
		c.emit(Objects{put(t, in("noisy", vs(fmt.Sprintf("v%d", i%40), fmt.Sprintf("%ds", i+1))))},
			Objects{put(t, in("noisy", vs(fmt.Sprintf("v%d", i%40), fmt.Sprintf("%ds", i+2)))), put(t, in("noisy", vs(fmt.Sprintf("v%d", (i+7)%40), fmt.Sprintf("%ds", i+3))))})
		if i%5 == 0 { // added and removed keys leave no state
			c.emit(Objects{put(t, in("noisy", vs("x", "1s")))}, Objects{gone(put(t, in("noisy", vs("x", "1s"))))})
		}
	}
	slots := 0
	for _, l := range c.s.writes.queue.namespaces {
		slots += len(l.groups)
	}
	if n := len(c.s.writes.queue.of); n != 40 || slots > 20 || len(c.s.writes.queue.turns) != 1 {
		t.Errorf("%d records wait, in %d places of %d queues", n, slots, len(c.s.writes.queue.turns))
	}
	if w := c.done(); w.Batch.Len() != 40 || c.done() != nil {
		t.Errorf("a batch of %d", w.Batch.Len())
	}
}

// The work for a batch depends on its own groups, and on one group of each namespace, not on all waiting groups.
func TestBatchesLookAtWhatTheyTake(t *testing.T) {
	q := newQueue()
	const groups, queues = 5000, 10
	for i := range groups {
		q.add(map[model.Key]bool{{Kind: model.KindService, Namespace: fmt.Sprint(i % queues), Name: fmt.Sprint(i)}: true}, time.Time{})
	}
	looked, batches := 0, 0
	for !q.empty() {
		room, before := fill, len(q.of)
		q.take(fill, func(g *group) int {
			looked += len(g.keys)
			room -= len(g.keys)
			return room
		})
		if batches++; before-len(q.of) > fill || len(q.turns) > queues {
			t.Fatalf("took %d, %d turns", before-len(q.of), len(q.turns))
		}
	}
	if looked != groups || batches != (groups+fill-1)/fill {
		t.Errorf("looked at %d groups in %d batches, want each once", looked, batches)
	}
}

// Endpoints keep their pace while no other changes wait; after a batch that leaves some, the next one follows at once.
func TestPaceLeavesNothingBehind(t *testing.T) {
	slices := func(namespace string, n int, address string) (emits []Objects) {
		for i := range n {
			emits = append(emits, Objects{put(t, in(namespace, epSlice(fmt.Sprintf("s%d", i), address, "p")))})
		}
		return emits
	}
	c := newCounter(t)
	c.done()
	c.emit(slices("noisy", 250, "10.0.0.1")...)
	for want := range []int{0, 1, 2} {
		if c.waits != 0 || c.flying == nil || c.flying.Batch.Len() != min(fill, 250-want*fill) {
			t.Fatalf("batch %d: %v, %d waits", want, c.flying, c.waits)
		}
		c.done()
	}
	if c.waits != 1 || c.flying != nil {
		t.Fatalf("%d waits, %v", c.waits, c.flying)
	}
	c.emit(slices("noisy", 3, "10.0.0.2")...)
	c.emit(slices("quiet", 1, "10.0.0.2")...)
	if c.flying != nil {
		t.Fatal("not paced")
	}
	if c.take(c.s.Step(Due{})); c.flying == nil || c.flying.Batch.Len() != 4 {
		t.Fatalf("after the pace: %v", c.flying)
	}
	c.done()
	c.emit(slices("noisy", 200, "10.0.0.3")...)
	c.emit(Objects{put(t, vs("same", "1s"))}, Objects{gone(put(t, vs("same", "1s")))}) // means nothing
	if c.flying != nil && c.flying.Batch.Len() == 200 {
		t.Fatal("not paced")
	}
}

// A batch contains the time of its own oldest change, not of the oldest waiting change.
func TestBatchSaysSinceWhen(t *testing.T) {
	c := newCounter(t)
	if !c.flying.Since.IsZero() {
		t.Errorf("since %v", c.flying.Since)
	}
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var all Emits
	for i, e := range many(t, "noisy", 150, 50) {
		all = append(all, Emit{e, at(10 + i)})
	}
	all = append(all, Emit{Objects{put(t, in("quiet", vs("r", "1s")))}, at(20)}, Emit{Objects{put(t, in("quiet", vs("r", "2s")))}, at(21)})
	c.take(c.s.Step(all))
	for i, want := range []int{10, 11, 12} {
		if w := c.done(); !w.Since.Equal(at(want)) {
			t.Errorf("batch %d is since %v, want %v", i, w.Since, at(want))
		}
	}
}

// A record that was refused, and then set back to its stored version, waits for nothing and delays nothing.
func TestRefusedAndPutBack(t *testing.T) {
	c := newCounter(t)
	c.done()
	c.emit(Objects{put(t, in("warm", vs("up", "2s")))})
	key := c.flying.Batch.Puts[0].Meta().Key
	c.emit(Objects{put(t, in("warm", vs("up", "1s")))}, Objects{put(t, in("zoo", vs("z", "1s")))})
	c.flying = nil
	c.take(c.s.Step(Written{Epoch: c.epoch, After: 5, Refused: map[model.Key]int{key: 2 << 20}}))
	if all := keys(c.flying); len(all) != 1 || !all["zoo/z"] {
		t.Errorf("wrote %v", all)
	}
	c.done()
	if !c.s.writes.queue.empty() || c.s.stored.hashes[key] != c.s.inventory.wanted.records[key].Meta().Hash {
		t.Error("it still waits")
	}
}

// A batch of large records is about one transaction in bytes.
func TestBatchIsBoundedInBytes(t *testing.T) {
	c := newCounter(t)
	var large []Objects
	for i := range 40 {
		text := strings.Replace(in("noisy", vs(fmt.Sprintf("v%02d", i), "1s")), "[{", "[{name: "+strings.Repeat("x", 90<<10)+", ", 1)
		large = append(large, Objects{put(t, text)})
	}
	c.emit(large...)
	batches := 0
	for w := c.done(); w != nil; w = c.done() {
		size := 0
		for _, r := range w.Batch.Puts {
			raw, err := model.Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			size += len(raw)
		}
		if batches++; size > kv.MaxTxnBytes+kv.MaxTxnBytes/4 {
			t.Errorf("a batch of %d bytes", size)
		}
	}
	if batches < 3 || len(c.stored) != 41 {
		t.Errorf("%d batches, %d records", batches, len(c.stored))
	}
}

// take ends for any room: each call passes a group, whether or not it fits.
func TestTakingEnds(t *testing.T) {
	for _, most := range []int{-1000, -1, 0, 1} {
		q := newQueue()
		for i := range 3 {
			ns := fmt.Sprint(i)
			q.add(map[model.Key]bool{{Kind: model.KindService, Namespace: ns, Name: "a"}: true, {Kind: model.KindService, Namespace: ns, Name: "b"}: true}, time.Time{})
		}
		for left := 3; left > 0; left-- {
			taken := 0
			q.take(most, func(*group) int { taken++; return most - 2 })
			if taken != 1 || q.waits != 2*(left-1) {
				t.Fatalf("most %d: %d groups were taken of %d, %d keys wait", most, taken, left, q.waits)
			}
		}
		if !q.empty() {
			t.Errorf("most %d: %d keys wait", most, q.waits)
		}
	}
}
