package mesh

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
)

func world(t *testing.T, name string, change ...func(*Settings)) *Mesh {
	t.Helper()
	s, err := preset(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&s)
	}
	w, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func all(w *Mesh) map[string]string {
	m := map[string]string{}
	for path, data := range w.Files() {
		m[path] = string(data)
	}
	return m
}

func sum(w *Mesh) string {
	h := sha256.New()
	for path, data := range w.Files() {
		h.Write([]byte(path))
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// The presets' bytes do not change: every measured figure depends on them, so a change makes old figures incomparable.
func TestPresetsAreTheSameEverywhere(t *testing.T) {
	want := map[string]string{"edge": "c87feccfba0e8529", "front": "e5c7ea2c3af7b001", "tiny": "fd786f43de44ba9c", "world-a": "aefc1165819e6e57", "world-b": "68da00262a3aaeb0"}
	got := map[string]string{}
	for _, name := range Presets() {
		got[name] = sum(world(t, name))
	}
	if !maps.Equal(got, want) {
		t.Errorf("sums of the presets' bytes: %q, want %q", got, want)
	}
	if other := sum(world(t, "world-b", func(s *Settings) { s.Seed++ })); other == want["world-b"] {
		t.Error("another seed makes the same world")
	}
}

// The two worlds have the sizes of the load scenarios.
func TestWorldsAreAsAsked(t *testing.T) {
	a := world(t, "world-a")
	perNamespace := map[string]int{}
	for _, s := range a.services {
		perNamespace[s.space.name]++
		if len(s.pods) != 4 || s.virtual || s.rule != noRule || s.policy {
			t.Fatalf("world A: %s has more or less than four pods", s.host())
		}
	}
	if len(a.services) != 500 || len(perNamespace) != 50 {
		t.Errorf("world A: %d services over %d namespaces", len(a.services), len(perNamespace))
	}
	for name, n := range perNamespace {
		if n != 10 {
			t.Errorf("world A: namespace %s has %d services", name, n)
		}
	}
	b := world(t, "world-b")
	rules, local, policies := 0, 0, 0
	for _, s := range b.services {
		if s.rule != noRule {
			rules++
		}
		if s.rule > subsets {
			local++
		}
		if s.policy {
			policies++
		}
	}
	if n := len(b.services); n != 1000 || len(b.spaces) != 40 || rules != 200 || local != 20 || len(b.Virtual()) != 100 || policies != 334 || len(b.Scoped()) != 20 {
		t.Errorf("world B: %d services, %d namespaces, %d rules (%d local), %d VirtualServices, %d policies, %d Sidecars",
			n, len(b.spaces), rules, local, len(b.Virtual()), policies, len(b.Scoped()))
	}
	// Zipf: the n-th largest has 1/n of the largest, as far as whole services allow.
	first := float64(len(b.spaces[0].services))
	for i, space := range b.spaces {
		if got, want := float64(len(space.services)), first/float64(i+1); math.Abs(got-want) > 1.5 {
			t.Errorf("world B: tenant %d has %v services, want %.1f", i, got, want)
		}
	}
	for _, space := range b.spaces {
		if space.sidecar && (len(space.sees) != 2 || slices.Contains(space.sees, space)) {
			t.Errorf("world B: %s sees %v", space.name, space.sees)
		}
	}
}

// A server reads every object of every preset, in both forms, without a problem, and so every file that an edit
// replaces. No object is in two files.
func TestServersUnderstandTheFolder(t *testing.T) {
	for _, name := range []string{"world-a", "world-b", "edge", "tiny", "front"} {
		for _, form := range []Form{Kubernetes, Istio} {
			t.Run(name+"/"+string(form), func(t *testing.T) {
				w := world(t, name, func(s *Settings) { s.Form = form; *s = s.Scaled(min(1, 60/float64(s.Services))) })
				dir := filepath.Join(t.TempDir(), "mesh")
				if err := w.Write(dir); err != nil {
					t.Fatal(err)
				}
				understood(t, w, dir)
				c := NewChurn(w, dir)
				edits := append(c.Roll(1), c.ToggleReadiness(0), c.Port(0), c.VirtualServices(0, 1, 2), c.Policy(2))
				for k := range w.services {
					if e, has := c.Tune(k); has {
						edits = append(edits, e)
					}
				}
				if scoped := w.Scoped(); len(scoped) > 0 {
					e, err := c.Sidecar(scoped[0])
					if err != nil {
						t.Fatal(err)
					}
					edits = append(edits, e)
				}
				for _, e := range edits {
					if _, err := e.Apply(); err != nil {
						t.Fatal(err)
					}
				}
				understood(t, w, dir)
			})
		}
	}
}

func understood(t *testing.T, w *Mesh, dir string) {
	t.Helper()
	events, problems, err := files.Read(dir, "", nil)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	n := normal.New(normal.Options{})
	look := lookup{pods: map[string]*normal.Pod{}}
	for _, e := range events {
		if e.Op == object.Put && e.Object.ID.Kind == "Pod" {
			pod, problems := normal.ParsePod(e.Object)
			if len(problems) > 0 {
				t.Error(problems)
			}
			look.pods[e.Object.ID.Namespace+"/"+e.Object.ID.Name] = pod
		}
	}
	records := map[string]int{}
	for _, e := range events {
		if e.Op != object.Put {
			continue
		}
		r := n.Object(e.Object, look)
		for _, p := range r.Problems {
			if e.Object.ID.Kind != "Gateway" || p.Severity != problem.Warning { // a kind that this version does not act on
				t.Errorf("%s: %s %s", e.Location, p.Field, p.Message)
			}
		}
		records[e.Object.ID.Kind] += len(r.Records)
	}
	kind := "Service"
	if w.Settings.Form == Istio {
		kind = "ServiceEntry"
	}
	if got := records[kind]; got < len(w.services) {
		t.Errorf("%d records of %ss, want one or more for each of %d services", got, kind, len(w.services))
	}
}

// Contents of endpoints that Port makes never repeat: a server may skip as many of them as it likes.
func TestPortsDoNotComeBack(t *testing.T) {
	for _, form := range []Form{Kubernetes, Istio} {
		settings, err := Load("tiny")
		if err != nil {
			t.Fatal(err)
		}
		settings.Form = form
		w, err := New(settings)
		if err != nil {
			t.Fatal(err)
		}
		c, seen := NewChurn(w, ""), map[string]bool{}
		for range 100 {
			e := c.Port(0)
			if text := string(e.files[0].data); len(e.files) != 1 || seen[text] {
				t.Fatalf("%s: after %d edits %s", form, len(seen), text)
			} else {
				seen[text] = true
			}
			for _, name := range e.Expect[0].Names {
				if name[:len("outbound|80|")] != "outbound|80|" {
					t.Errorf("%s should change", name)
				}
			}
		}
	}
}

// An edit replaces the one file of its object, and leaves no other file behind. Afterwards the folder equals a newly
// written world.
func TestEditsReplaceOneFileEach(t *testing.T) {
	w := world(t, "tiny")
	dir := filepath.Join(t.TempDir(), "mesh")
	if err := w.Write(dir); err != nil {
		t.Fatal(err)
	}
	c := NewChurn(w, dir)
	scoped, err := c.Sidecar(w.Scoped()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		edit  Edit
		files int
	}{{c.ToggleReadiness(3), 1}, {c.ToggleReadiness(3), 1}, {c.Port(4), 1}, {c.VirtualServices(5), 1}, {c.VirtualServices(1, 2, 3, 4, 5), 5}, {scoped, 1}, {c.Policy(0), 1}, {c.Roll(7)[0], 2}} {
		before := read(t, dir)
		if _, err := one.edit.Apply(); err != nil {
			t.Fatal(err)
		}
		after := read(t, dir)
		var changed []string
		for path := range after {
			if after[path] != before[path] {
				changed = append(changed, path)
			}
		}
		want := one.edit.Files()
		slices.Sort(want)
		slices.Sort(changed)
		if !slices.Equal(changed, want) || len(want) != one.files {
			t.Errorf("%s: changed %v, says %v, want %d", one.edit.What, changed, want, one.files)
		}
		for path := range before {
			if _, there := after[path]; !there {
				t.Errorf("%s: %s is gone", one.edit.What, path)
			}
		}
	}
	// Two changes of readiness cancel each other.
	s := w.services[3]
	if got := read(t, dir)["endpoints/"+s.space.name+"/"+s.name+".yaml"]; got != string(s.slice(s.pristine()).data) {
		t.Errorf("two changes of readiness left\n%s", got)
	}
}

func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		m[rel] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A folder with foreign content is refused. A folder that contains a world is overwritten by the next one.
func TestWriteSparesForeignFolders(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "mine.yaml")
	if err := os.WriteFile(mine, []byte("a: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w := world(t, "tiny")
	if err := w.Write(dir); err == nil {
		t.Error("a folder with another file in it was written to")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	big := world(t, "world-a", func(s *Settings) { *s = s.Scaled(.1) })
	for _, one := range []*Mesh{big, w} {
		if err := one.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, want := read(t, dir), all(w)
	delete(got, marker)
	if !maps.Equal(got, want) {
		t.Errorf("the second world's folder has %d files, want %d", len(got), len(want))
	}
}

// Workloads differ from each other in any number, do not depend on their number, and are pods of the mesh while it has
// enough.
func TestWorkloads(t *testing.T) {
	for _, name := range []string{"world-a", "tiny"} {
		w := world(t, name)
		listed := map[string]bool{}
		for _, s := range w.services {
			for _, p := range s.pods {
				listed[p.address.String()+" "+p.name+" "+s.space.name] = true
			}
		}
		many := w.Workloads(3 * len(listed))
		ips, names, spaces := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for i, one := range many {
			if ips[one.IP] || names[one.Namespace+one.Pod] {
				t.Fatalf("%s: %d-th workload %+v is there twice", name, i, one)
			}
			ips[one.IP], names[one.Namespace+one.Pod] = true, true
			if is := listed[one.IP+" "+one.Pod+" "+one.Namespace]; is != (i < len(listed)) {
				t.Fatalf("%s: %d-th of %d pods: listed %t", name, i, len(listed), is)
			}
			if spaces[one.Namespace] = true; one.Labels["app"] != one.Name || one.ServiceAccount != one.Name {
				t.Fatalf("%+v", one)
			}
			if i == 100 && name == "world-a" && len(spaces) != 50 {
				t.Errorf("the first %d proxies are in %d namespaces of 50", i, len(spaces))
			}
		}
		for i, one := range w.Workloads(10) {
			if one.IP != many[i].IP || one.Pod != many[i].Pod {
				t.Errorf("%s: the %d-th of 10 is another than of many", name, i)
			}
		}
	}
}

// A namespace's changes are seen by the proxies of these namespaces: itself, those without a Sidecar, and those whose
// Sidecar names it.
func TestSeers(t *testing.T) {
	w := world(t, "tiny")
	if seers := world(t, "world-a").Seers("ns-007"); seers != nil {
		t.Errorf("without Sidecars %v see it, want all", seers)
	}
	space := w.spaces[0] // with a Sidecar
	other := space.sees[0]
	hidden := w.spaces[slices.IndexFunc(w.spaces, func(n *namespace) bool { return n != space && !slices.Contains(space.sees, n) })]
	for _, want := range []struct {
		seen *namespace
		sees bool
	}{{space, true}, {other, true}, {hidden, false}} {
		seers := w.Seers(want.seen.name)
		if (seers == nil || slices.Contains(seers, space.name)) != want.sees {
			t.Errorf("%s sees %s: %t", space.name, want.seen.name, !want.sees)
		}
	}
	c := NewChurn(w, t.TempDir())
	narrow, err := c.Sidecar(space.name)
	if err != nil {
		t.Fatal(err)
	}
	if e := narrow.Expect[0]; !e.Removed || e.Type != xds.Cluster || !slices.Contains(e.Names, other.services[0].clusters()[0]) ||
		slices.Contains(e.Names, hidden.services[0].clusters()[0]) {
		t.Errorf("narrowed: %+v", e)
	}
	toggled := c.ToggleReadiness(other.services[0].index)
	if e := toggled.Expect[0]; e.Namespaces == nil || slices.Contains(e.Namespaces, space.name) {
		t.Errorf("an endpoint in %s is expected by %v, which %s's narrowed Sidecar hides", other.name, e.Namespaces, space.name)
	}
}
