package member

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/kv"
)

func example() Record {
	return Record{Name: "navarchd-0", Address: "10.0.0.1:15012", Zone: "a", Version: "1", Incarnation: 7, State: Ready, Weight: 50, Revision: 1234, Level: 2, Sums: []byte("sums"),
		Load: ring.Load{Rest: 3, Namespaces: map[string]ring.NamespaceLoad{
			"a": {Streams: 5, Workloads: map[string]int{"x": 2, "y": 3}}, "b": {Streams: 1},
		}}}
}

func TestRecordRoundTrip(t *testing.T) {
	want := example()
	got, err := Decode(want.Encode())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
	if m := got.Member(); m != (ring.Member{Name: "navarchd-0", Address: "10.0.0.1:15012", Weight: 50}) {
		t.Errorf("%+v", m)
	}
	// A later version's field is passed over.
	if got, err = Decode(ring.AppendText(want.Encode(), 99, "new")); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("with an unknown field: %+v, %v", got, err)
	}
	for name, change := range map[string]func(*Record){
		"no name": func(r *Record) { r.Name = "" }, "no state": func(r *Record) { r.State = 0 }, "no weight": func(r *Record) { r.Weight = 0 },
		"weight": func(r *Record) { r.Weight = 101 }, "long": func(r *Record) { r.Zone = string(make([]byte, ring.MaxName+1)) },
		"streams": func(r *Record) { r.Load.Rest = maxStreams + 1 }, "state": func(r *Record) { r.State = Leaving + 1 },
		"minus": func(r *Record) { r.Load.Namespaces["a"] = ring.NamespaceLoad{Streams: -1} },
	} {
		r := example()
		change(&r)
		if _, err := Decode(r.Encode()); err == nil {
			t.Errorf("%s: was decoded", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(example().Encode())
	f.Add([]byte{8, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(r.Encode())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("does not survive: %v", err)
		}
	})
}

// A record that cannot be read leaves the last good one, and a stranger's name does not count.
func TestReadKeepsLastGood(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	good, other := example(), example()
	other.Name = "navarchd-1"
	folder := kv.Folder{Revision: 5, Blobs: []kv.Blob{
		{Path: "members/navarchd-0", Raw: good.Encode(), Revision: 4},
		{Path: "members/navarchd-2", Raw: other.Encode(), Revision: 5},
	}}
	fleet, known := read(folder, nil, log)
	if len(fleet.Members) != 1 || fleet.Members[0].Name != good.Name {
		t.Fatalf("%+v", fleet)
	}
	folder.Blobs = []kv.Blob{{Path: "members/navarchd-0", Raw: []byte("?"), Revision: 6}}
	if fleet, known = read(folder, known, log); len(fleet.Members) != 1 || fleet.Members[0].Revision != 1234 {
		t.Fatalf("the last good record is gone: %+v", fleet)
	}
	if fleet, _ = read(kv.Folder{}, known, log); len(fleet.Members) != 0 {
		t.Fatalf("a record that was deleted stays: %+v", fleet)
	}
}

// State and weight are written at once, at most every two seconds, load and revision every ten; the same never.
func TestWrites(t *testing.T) {
	var w writes
	at := time.Unix(1000, 0)
	r := example()
	expect := func(what string, after time.Duration, want bool) {
		t.Helper()
		if got := w.due(at.Add(after), r); got != want {
			t.Errorf("%s after %v: written %t, want %t", what, after, got, want)
		}
	}
	expect("the first", 0, true)
	w.written(at, r.State, r)
	expect("the same", time.Hour, false)
	r.Revision++
	expect("a revision", 9*time.Second, false)
	expect("a revision", 10*time.Second, true)
	r.Weight = 75
	expect("a weight", 1900*time.Millisecond, false)
	expect("a weight", 2*time.Second, true)
	r.State = Leaving
	expect("leaving", 0, true)
	warming := r
	warming.State = Warming
	w.written(at, Ready, warming) // the fleet's level is above its own
	r.State = Ready
	expect("ready again", 1900*time.Millisecond, false)
	expect("ready again", 2*time.Second, true)
	w.written(at, Warming, warming)
	expect("ready", 0, true)
	r.State = Leaving
	w.written(at, r.State, r)
	r.Load.Rest++
	expect("load", 5*time.Second, false)
	w.raw = nil // the lease was lost
	expect("a new lease", 0, true)
}

func TestWeight(t *testing.T) {
	for since, want := range map[time.Duration]uint32{
		-time.Second: 25, 0: 25, 14 * time.Second: 25, 15 * time.Second: 50, 30 * time.Second: 75, 59 * time.Second: 100, time.Minute: 100, time.Hour: 100,
	} {
		if got := Weight(since, time.Minute, 100); got != want {
			t.Errorf("after %v: weight %d, want %d", since, got, want)
		}
	}
	if Weight(0, time.Minute, 2) != 1 || Weight(0, 0, 80) != 80 {
		t.Error("small weights, or none to ramp")
	}
}

// The reported load is bounded, and contains every stream by its place, or in the sum of the others.
func TestStreamsLoad(t *testing.T) {
	var s Streams
	var leave []func()
	for i := range 3000 {
		for j := range 1 + 20000/(i+1)/40 {
			leave = append(leave, s.Join(fmt.Sprintf("namespace-with-a-long-name-%d", i), fmt.Sprintf("workload-with-a-long-name-%d", j%90)))
		}
	}
	load := s.Load(nil)
	if load.Streams() != len(leave) || s.Total() != len(leave) {
		t.Fatalf("%d streams are reported of %d", load.Streams(), len(leave))
	}
	if size := len(Record{Name: "x", State: Ready, Weight: 1, Load: load}.Encode()); size > 64<<10 {
		t.Errorf("the record takes %d bytes", size)
	}
	for _, format := range []string{"%x", "%0300d"} { // where the number of names counts, and where their length does
		var other Streams
		for i := range 8000 {
			other.Join(fmt.Sprintf(format, i), fmt.Sprintf(format, i))
		}
		for i := range 2000 {
			other.Join("large", fmt.Sprintf(format, i))
		}
		load := other.Load(nil)
		if size := len(Record{Load: load}.Encode()); load.Streams() != 10000 || size > 64<<10 {
			t.Errorf("names like %s: %d streams in %d bytes", format, load.Streams(), size)
		}
	}
	large := load.Namespaces["namespace-with-a-long-name-0"]
	if large.Streams != 501 || len(large.Workloads) != 90 {
		t.Errorf("the largest namespace: %d streams, %d workloads", large.Streams, len(large.Workloads))
	}
	if len(load.Namespaces["namespace-with-a-long-name-400"].Workloads) != 0 {
		t.Error("workloads of a small namespace are reported")
	}
	r := ring.Assign(nil, []ring.Member{{Name: "a", Address: "a:1", Weight: 1}, {Name: "b", Address: "b:1", Weight: 1}}, load)
	if a, b := s.Misplaced(r, "a"), s.Misplaced(r, "b"); a+b != len(leave) || a == 0 || b == 0 || s.Misplaced(nil, "a") != 0 {
		t.Errorf("misplaced at a: %d, at b: %d, of %d", a, b, len(leave))
	}
	for _, f := range slices.Concat(leave, leave) { // each twice: counted out once
		f()
	}
	if s.Total() != 0 || len(s.counts) != 0 {
		t.Errorf("%d streams are left", s.Total())
	}
}

// Streams that wait for admission are part of the load, and no others are.
func TestWaitingIsLoad(t *testing.T) {
	var s Streams
	s.Join("shop", "web")
	out := []func(){s.Wait("shop", "web"), s.Wait("shop", "pay"), s.Wait("new", "")}
	load := s.Load(nil)
	if shop := load.Namespaces["shop"]; shop.Streams != 3 || shop.Workloads["web"] != 2 || shop.Workloads["pay"] != 1 || load.Namespaces["new"].Streams != 1 {
		t.Errorf("with those that wait: %v", load.Namespaces)
	}
	r := ring.Assign(nil, []ring.Member{{Name: "a", Address: "a:1", Weight: 1}}, load)
	if s.Total() != 1 || s.Misplaced(r, "b") != 1 {
		t.Errorf("%d streams are served, %d misplaced", s.Total(), s.Misplaced(r, "b"))
	}
	for _, f := range out {
		f()
	}
	if load := s.Load(nil); load.Streams() != 1 || len(s.waiting) != 0 {
		t.Errorf("when nobody waits: %v", load.Namespaces)
	}
}
