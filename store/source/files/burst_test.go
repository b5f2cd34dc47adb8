package files

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"navarch.io/navarch/store/object"
)

// small is the size of all files of a test.
func small(string) int64 { return 100 }

// When bursts of changes are over or cut, in milliseconds. Quiet is 30.
func TestBursts(t *testing.T) {
	type burst struct {
		at      int
		paths   int
		endless bool
	}
	// every reports one change of a new file, from a time to a time.
	every := func(step, from, to int) (all []int) {
		for at := from; at <= to; at += step {
			all = append(all, at)
		}
		return all
	}
	for name, test := range map[string]struct {
		changes []int
		reads   int // duration of reading and emitting a burst; changes meanwhile are noted afterwards
		want    []burst
	}{
		"one":                    {[]int{0}, 0, []burst{{30, 1, false}}},
		"a checkout of 0.2 s":    {every(10, 0, 200), 0, []burst{{230, 21, false}}},
		"two, apart":             {[]int{0, 29, 60}, 0, []burst{{59, 2, false}, {90, 1, false}}},
		"longer than that":       {every(10, 0, 320), 0, []burst{{300, 31, false}, {350, 2, false}}},
		"without end":            {every(10, 0, 500), 0, []burst{{300, 31, false}, {370, 7, true}, {440, 7, true}, {510, 6, true}}},
		"a quiet moment ends it": {slices.Concat(every(10, 0, 400), every(10, 500, 750)), 0, []burst{{300, 31, false}, {370, 7, true}, {430, 3, false}, {780, 26, false}}},
		"cut as it ended":        {slices.Concat(every(10, 0, 300), every(10, 331, 500)), 0, []burst{{300, 31, false}, {521, 17, false}}},
		"read slowly":            {every(10, 0, 500), 80, []burst{{300, 31, false}, {440, 14, true}, {550, 6, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
			d := newDirty(30 * time.Millisecond)
			var got []burst
			changes, free := test.changes, 0
			for ms := range 1000 { // the change comes first, where it is due at the same time
				if ms < free {
					continue
				}
				for len(changes) > 0 && changes[0] <= ms {
					d.note(at(ms), "/dir", fsnotify.Event{Name: "/dir/" + at(changes[0]).Format("05.000") + ".yaml", Op: fsnotify.Write}, nil)
					changes = changes[1:]
				}
				if due, armed := d.due(); !armed || due.After(at(ms)) {
					if paths, whole, endless := d.take(at(ms), small); len(paths) > 0 || whole || endless {
						t.Fatalf("took %q before it was due", paths)
					}
					continue
				}
				paths, _, endless := d.take(at(ms), small)
				got = append(got, burst{ms, len(paths), endless})
				free = ms + test.reads
				d.done(at(free))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// Of a burst that was not the first to be cut each namespace is emitted for itself, all others as a whole.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestEndlessBurstsAreEmittedByNamespace(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1000, 0)
	pod := func(namespace, name string) string {
		return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: " + namespace + ", labels: {at: \"" + now.Format("05.000") + "\"}}\n"
	}
	s, err := New(Config{Dir: dir})
	do(t, err)
	d := newDirty(s.Quiet)
	var emitted []string
	emit := func(all []object.Event) {
		var names []string
		for _, e := range all {
			names = append(names, e.ID.Name)
		}
		slices.Sort(names)
		emitted = append(emitted, strings.Join(names, " "))
	}
	change := func(path, text string) {
		put(t, dir+"/"+path, text)
		d.note(now, dir, fsnotify.Event{Name: dir + "/" + path, Op: fsnotify.Write}, nil)
	}
	burst := func(want ...string) {
		t.Helper()
		emitted = nil
		change("a.yaml", pod("noisy", "a")+pod("quiet", "b"))
		for i := 0; emitted == nil && i < 100; i++ {
			change("b.yaml", pod("noisy", "c")+pod("", "node"))
			now = now.Add(s.Quiet / 2)
			s.wake(now, nil, d, emit)
		}
		if !slices.Equal(emitted, want) {
			t.Fatalf("emitted %q, want %q", emitted, want)
		}
	}
	burst("a b c node")       // the first that is cut
	burst("node", "a c", "b") // no namespace, noisy and quiet
	burst("node", "a c", "b")
	now = now.Add(time.Minute)
	burst("a b c node")
}

// Of changes without end the walks over the whole folder are emitted by namespace too, after each new folder and at
// each Rescan. After a pause they are emitted as a whole again.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestEndlessChangesAreEmittedByNamespaceAfterAWalk(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1000, 0)
	s, err := New(Config{Dir: dir})
	do(t, err)
	w, err := newWatch(dir)
	do(t, err)
	defer w.close()
	d, calls, namespaces := newDirty(s.Quiet), 0, 0
	emit := func(all []object.Event) {
		calls++
		seen := map[string]bool{}
		for _, e := range all {
			seen[e.ID.Namespace] = true
		}
		namespaces += len(seen)
	}
	write := func(i int) {
		for _, of := range []string{"noisy", "quiet"} {
			text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p%d, namespace: %s}\n", i, of)
			put(t, fmt.Sprintf("%s/a%d-%s.yaml", dir, i, of), text)
		}
		d.all(now) // a folder has come or gone
	}
	burst := func(i int) {
		calls, namespaces = 0, 0
		for calls == 0 {
			write(i)
			now = now.Add(s.Quiet / 2)
			s.wake(now, w, d, emit)
		}
	}
	burst(0)
	if calls != 1 || namespaces != 2 {
		t.Errorf("the first burst is %d calls about %d namespaces, want one about two", calls, namespaces)
	}
	burst(1)
	if calls != 2 || namespaces != 2 {
		t.Errorf("changes without end are %d calls about %d namespaces, want one for each", calls, namespaces)
	}
	if d.all(now); !d.goesOn() {
		t.Error("a change after a burst that was cut does not go on with it")
	}
	now = now.Add(time.Minute)
	s.wake(now, w, d, emit)
	if d.all(now); d.goesOn() {
		t.Error("a change after a pause goes on with the burst before it")
	}
}

// Of a burst without end few files are read at once, and folders take turns: one file elsewhere does not wait for a
// thousand of a tenant.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestFoldersTakeTurns(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	d := newDirty(30 * time.Millisecond)
	write := func(ms int, path string) {
		d.note(at(ms), "/dir", fsnotify.Event{Name: "/dir/" + path, Op: fsnotify.Write}, nil)
	}
	for ms := range 300 {
		write(ms, fmt.Sprintf("evil/%03d.yaml", ms))
	}
	if paths, _, endless := d.take(at(300), small); len(paths) != 300 || endless {
		t.Fatalf("of the first burst %d files are read, without end: %v", len(paths), endless)
	}
	for ms := 300; ms < 360; ms++ {
		write(ms, fmt.Sprintf("evil/%03d.yaml", ms))
	}
	write(360, "shop/web.yaml")
	var all []string
	for ms := 361; len(all) < 61; ms++ {
		due, armed := d.due()
		if !armed || due.After(at(ms)) {
			t.Fatalf("%d of 61 files were read, and no more are due", len(all))
		}
		paths, _, _ := d.take(at(ms), small)
		if len(paths) == 0 || len(paths) > most {
			t.Fatalf("%d files are read at once", len(paths))
		}
		if all = append(all, paths...); !slices.Contains(all, "shop/web.yaml") {
			t.Error("the file of the other folder waits for more than one turn")
		}
		d.done(at(ms))
	}
	if slices.Sort(all); len(slices.Compact(all)) != 61 {
		t.Errorf("read are %q", all)
	}
	if _, armed := d.due(); armed {
		t.Error("more is due than has changed")
	}
}

// A burst of large files is divided by bytes: a small file elsewhere is read with the first part. A file that vanished
// waits until those that may have its objects are read, but not for ever.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestLargeBurstsAreDivided(t *testing.T) {
	now := time.Unix(1000, 0)
	d := newDirty(30 * time.Millisecond)
	size := func(path string) int64 {
		switch {
		case strings.HasPrefix(path, "evil/"):
			return mostBytes / 4
		case path == "gone.yaml":
			return -1
		}
		return 100
	}
	write := func(path string) {
		d.note(now, "/dir", fsnotify.Event{Name: "/dir/" + path, Op: fsnotify.Write}, nil)
	}
	read := func(want ...string) {
		t.Helper()
		now = now.Add(30 * time.Millisecond)
		paths, _, parted := d.take(now, size)
		if !slices.Equal(paths, want) || !parted {
			t.Fatalf("read are %q, parted: %v, want %q", paths, parted, want)
		}
		d.done(now)
	}
	write("gone.yaml")
	for i := range 9 {
		write(fmt.Sprintf("evil/%d.yaml", i))
	}
	write("shop/web.yaml")
	read("evil/0.yaml", "shop/web.yaml", "evil/1.yaml", "evil/2.yaml")
	write("shop/new.yaml")
	read("evil/3.yaml", "shop/new.yaml", "evil/4.yaml", "evil/5.yaml")
	read("evil/6.yaml", "evil/7.yaml", "evil/8.yaml", "gone.yaml")
	write("gone.yaml")
	for range int(longestHold / (30 * time.Millisecond)) {
		for i := range 5 {
			write(fmt.Sprintf("evil/%d.yaml", i))
		}
		now = now.Add(30 * time.Millisecond)
		if paths, _, _ := d.take(now, size); slices.Contains(paths, "gone.yaml") {
			t.Fatal("a file that vanished does not wait for those that exist")
		}
		d.done(now)
	}
	for i := range 5 {
		write(fmt.Sprintf("evil/%d.yaml", i))
	}
	now = now.Add(30 * time.Millisecond)
	if paths, _, _ := d.take(now, size); !slices.Contains(paths, "gone.yaml") {
		t.Errorf("after %v read are %q", longestHold, paths)
	}
}

// The walk over a folder divides large files, too, and all of them are read in the end.
func TestLargeWalksAreDivided(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1000, 0)
	s, err := New(Config{Dir: dir})
	do(t, err)
	w, err := newWatch(dir)
	do(t, err)
	defer w.close()
	d, most, seen := newDirty(s.Quiet), 0, map[string]bool{}
	emit := func(all []object.Event) {
		for _, e := range all {
			seen[e.ID.Name] = true
		}
	}
	for i := range 9 {
		put(t, fmt.Sprintf("%s/%d.yaml", dir, i), fmt.Sprintf(
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p%d, namespace: a}\n#%s\n", i, strings.Repeat("x", mostBytes/4)))
	}
	d.all(now)
	for range 20 {
		before := s.reader.parsed
		now = now.Add(s.Quiet)
		s.wake(now, w, d, emit)
		d.done(now)
		most = max(most, s.reader.parsed-before)
	}
	if len(seen) != 9 || most > 2*4 || most < 3 {
		t.Errorf("%d objects were emitted, %d files read at once at most", len(seen), most)
	}
}

// A part has the events of one namespace in their order, and at most partBytes unless one object has more.
func TestPartsAreSmall(t *testing.T) {
	var events []object.Event
	put := func(namespace, name string, size int) {
		id := object.ID{Namespace: namespace, Name: name}
		events = append(events, object.Event{Op: object.Put, ID: id, Object: &object.Object{ID: id, JSON: make([]byte, size)}})
	}
	put("evil", "a", partBytes/2)
	put("shop", "web", 100)
	put("evil", "b", partBytes/2)
	put("evil", "c", 1)
	put("evil", "d", 2*partBytes)
	put("evil", "e", 1)
	events = append(events, object.Event{Op: object.Delete, ID: object.ID{Namespace: "shop", Name: "old"}})
	var got []string
	for _, part := range byNamespace(events) {
		var names []string
		for _, e := range part {
			names = append(names, e.ID.Name)
		}
		got = append(got, strings.Join(names, " "))
	}
	if want := []string{"a b", "web old", "c", "d", "e"}; !slices.Equal(got, want) {
		t.Errorf("parts are %q, want %q", got, want)
	}
}
