package files

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/object"
)

// pods is a file with these Pods, one document each.
func pods(names ...string) string {
	var docs []string
	for _, n := range names {
		kind, name, ok := strings.Cut(n, "/")
		if !ok {
			kind, name = "Pod", n
		}
		name, label, _ := strings.Cut(name, "=")
		docs = append(docs, fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata:\n  name: %s\n  labels: {x: \"%s\"}\n", kind, name, label))
	}
	return strings.Join(docs, "---\n")
}

// desk drives a reader with a clock of its own.
type desk struct {
	t   *testing.T
	r   *reader
	now time.Time
}

func newDesk(t *testing.T) *desk {
	return &desk{t: t, r: newReader("", time.Second), now: time.Unix(1000, 0)}
}

// see applies readings (pairs of path and content; content "-": deleted, "!": unreadable), and expects these events.
func (d *desk) see(pairs []string, want ...string) {
	d.t.Helper()
	var readings []reading
	for i := 0; i < len(pairs); i += 2 {
		l := reading{path: pairs[i], data: []byte(pairs[i+1])}
		switch pairs[i+1] {
		case "-":
			l = reading{path: pairs[i], missing: true}
		case "!":
			l = reading{path: pairs[i], err: errors.New("permission denied")}
		}
		readings = append(readings, l)
	}
	got := events(d.r.step(d.now, readings, false))
	if !slices.Equal(got, want) {
		d.t.Errorf("got events %q\n       want %q", got, want)
	}
}

// confirm is see, and the same again after the grace period; nothing may happen before.
func (d *desk) confirm(pairs []string, want ...string) {
	d.t.Helper()
	d.see(pairs)
	d.now = d.now.Add(500 * time.Millisecond)
	d.see(pairs)
	d.now = d.now.Add(500 * time.Millisecond)
	d.see(pairs, want...)
}

func (d *desk) wantProblems(want ...string) {
	d.t.Helper()
	var got []string
	for _, p := range d.r.problems() {
		got = append(got, p.Location+" "+p.String())
	}
	ok := len(got) == len(want)
	for i := range got {
		ok = ok && strings.Contains(got[i], want[i])
	}
	if !ok {
		d.t.Errorf("got problems %q\n         want %q", got, want)
	}
}

func events(in []object.Event) []string {
	var out []string
	for _, e := range in {
		op := map[object.Op]string{object.Put: "put", object.Delete: "delete", object.Broken: "broken", object.Synced: "synced"}[e.Op]
		text := op
		if e.ID.Name != "" {
			text += " " + e.ID.Name
		} else if e.Op != object.Synced {
			text += " ?"
		}
		if e.Object != nil && e.Object.Labels["x"] != "" {
			text += "=" + e.Object.Labels["x"]
		}
		out = append(out, text)
	}
	return out
}

func TestEditOfOneFile(t *testing.T) {
	d := newDesk(t)
	d.see([]string{"a.yaml", pods("a", "b"), "b.yaml", pods("c")}, "put a", "put b", "put c")
	parsed := d.r.parsed
	d.see([]string{"a.yaml", pods("a", "b=2"), "b.yaml", pods("c")}, "put b=2")
	if d.r.parsed != parsed+1 {
		t.Errorf("parsed %d files, want 1", d.r.parsed-parsed)
	}
	d.confirm([]string{"a.yaml", pods("b=2")}, "put b=2", "delete a") // b is emitted again: its document has another number
	if d.r.parsed != parsed+2 {
		t.Errorf("a change that has to be confirmed was parsed %d times", d.r.parsed-parsed-1)
	}
	d.confirm([]string{"a.yaml", "-"}, "delete b")
}

func TestHalfWrittenIsNotEmpty(t *testing.T) {
	d := newDesk(t)
	d.see([]string{"a.yaml", pods("a", "b"), "z.yaml", pods("Node/z")}, "put z", "put a", "put b")
	d.see([]string{"a.yaml", ""})
	d.now = d.now.Add(time.Hour)
	d.see([]string{"a.yaml", " \n\t\n"})
	d.wantProblems("is empty and counts as half-written: its 2 objects stay in effect")
	d.see([]string{"a.yaml", pods("a", "b", "c")}, "put c")
	d.wantProblems()
	whole := pods("a=new", "b")
	d.see([]string{"a.yaml", whole[:len(whole)/3]})
	d.see([]string{"a.yaml", whole[:len(whole)/2]})
	d.see([]string{"a.yaml", whole + "---\n" + pods("c")}, "put a=new")
	d.see([]string{"a.yaml", "!"})
	d.wantProblems("a.yaml")
	d.see([]string{"a.yaml", "-"})
	d.see([]string{"a.yaml", pods("a", "b", "c")}, "put a") // an editor that removes and writes again
	d.confirm([]string{"a.yaml", "# nothing left\n"}, "delete a", "delete b", "delete c")
}

func TestNewFileWithoutEndIsConfirmed(t *testing.T) {
	d := newDesk(t)
	d.confirm([]string{"a.yaml", strings.TrimSuffix(pods("a"), "\n")}, "put a")
}

func TestBrokenDocuments(t *testing.T) {
	d := newDesk(t)
	bad := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: b\nspec: [\n"
	d.see([]string{"a.yaml", pods("a", "b")}, "put a", "put b")
	d.see([]string{"a.yaml", pods("a=2") + "---\n" + bad}, "broken b", "put a=2")
	d.wantProblems("a.yaml#2 Pod default/b: is no YAML")
	d.see([]string{"a.yaml", "x: [\n"}, "broken ?", "put b") // even its name is unreadable: its last good objects stay, and are emitted
	d.see([]string{"a.yaml", pods("a=2", "b")}, "delete ?")
	d.wantProblems()
	d.see([]string{"a.yaml", pods("a=2") + "---\n" + bad}, "broken b")
	d.see([]string{"a.yaml", pods("a=2", "b")}, "put b") // the same as before, emitted again since it was broken
	d.see([]string{"c.yaml", strings.ReplaceAll(bad, "name: b", "name: c")}, "broken c")
	d.confirm([]string{"c.yaml", "-"}, "delete c") // never good, and gone
}

func TestDuplicates(t *testing.T) {
	d := newDesk(t)
	d.see([]string{"b.yaml", pods("a=b", "z")}, "put a=b", "put z")
	d.see([]string{"a.yaml", pods("a=a")})
	d.wantProblems("a.yaml#1 Pod default/a: an object of this name in b.yaml#1 takes precedence")
	d.see([]string{"a.yaml", pods("a=a2")})
	d.confirm([]string{"b.yaml", pods("z")}, "put a=a2", "put z")
	d.wantProblems()
	d.see([]string{"c.yaml", pods("c", "c=2")}, "put c")
	d.wantProblems("c.yaml#2 Pod default/c: an object of this name in c.yaml#1 takes precedence")
	first := newDesk(t)
	first.see([]string{"b.yaml", pods("a=b"), "a.yaml", pods("a=a")}, "put a=a") // read together: by path
}

// A removal is emitted once it was seen for the grace period, whatever its size: the ingester decides whether to hold
// it. The end of a broken document explains no removal either.
func TestRemovals(t *testing.T) {
	d := newDesk(t)
	d.see([]string{"a.yaml", pods("a", "b"), "b.yaml", pods("Node/node")}, "put node", "put a", "put b")
	d.confirm([]string{"a.yaml", "-", "b.yaml", "-"}, "delete node", "delete a", "delete b")
	d.wantProblems()
	d.see([]string{"a.yaml", pods("a", "b=2"), "b.yaml", pods("Node/node")}, "put node", "put a", "put b=2")
	d.confirm([]string{"a.yaml", pods("e", "f")}, "put e", "put f", "delete a", "delete b")
	for _, readings := range [][]reading{{{path: "a.yaml", data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: e}\nspec: 5\nspec: 6\n")}}, {{path: "a.yaml", missing: true}}} {
		for range 2 {
			for _, e := range d.r.step(d.now, readings, false) {
				if e.Op == object.Delete && e.ID.Name != "" && e.Why != object.Missing {
					t.Errorf("%v is gone, for they %v", e.ID, e.Why)
				}
			}
			d.now = d.now.Add(2 * time.Second)
		}
	}
}

func TestDueGathers(t *testing.T) {
	d := newDesk(t)
	d.see([]string{"a.yaml", pods("a"), "b.yaml", pods("b"), "c.yaml", pods("c")}, "put a", "put b", "put c")
	start := d.now
	d.see([]string{"a.yaml", "-"})
	d.now = d.now.Add(900 * time.Millisecond)
	d.see([]string{"b.yaml", "-"})
	if due, ok := d.r.due(); !ok || due != d.now.Add(time.Second) {
		t.Errorf("due %v after the start, want a second after the last", due.Sub(start))
	}
	for range 10 {
		d.now = d.now.Add(900 * time.Millisecond)
		d.r.pending["b.yaml"].since = d.now
	}
	if due, _ := d.r.due(); due != start.Add(4*time.Second) {
		t.Errorf("due %v after the start, want 4 s", due.Sub(start))
	}
}
