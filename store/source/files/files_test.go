package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/object"
)

// live is a Source on a folder of its own.
type live struct {
	t      *testing.T
	dir    string
	source *Source
	events chan []object.Event
}

func start(t *testing.T, prepare func(dir string)) *live {
	l := &live{t: t, dir: t.TempDir(), events: make(chan []object.Event, 100)}
	prepare(l.dir)
	source, err := New(Config{Dir: l.dir, Quiet: 5 * time.Millisecond, Grace: 20 * time.Millisecond, Rescan: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	l.source = source
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, func(e []object.Event) { l.events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended: %v", err)
		}
	})
	return l
}

// want waits for exactly these events, in one batch or several.
func (l *live) want(want ...string) {
	l.t.Helper()
	deadline := time.After(time.Minute)
	var got []string
	for len(got) < len(want) {
		select {
		case e := <-l.events:
			got = append(got, events(e)...)
		case <-deadline:
			l.t.Fatalf("got events %q, want %q; problems %v", got, want, l.source.Problems())
		}
	}
	if !slices.Equal(got, want) {
		l.t.Fatalf("got events %q, want %q", got, want)
	}
}

func (l *live) write(path, text string) {
	l.t.Helper()
	put(l.t, filepath.Join(l.dir, path), text)
}

// put writes a file, and the folders above it.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRunFollowsTheFolder(t *testing.T) {
	l := start(t, func(dir string) {
		put(t, dir+"/a.yaml", pods("a"))
		put(t, dir+"/sub/deep/b.yml", pods("b"))
		put(t, dir+"/.hidden/x.yaml", pods("x"))
		put(t, dir+"/.x.yaml", pods("x"))
		put(t, dir+"/notes.txt", "not read")
		put(t, dir+"/c.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"}}`+"\n")
	})
	l.want("put a", "put b", "put c", "synced")
	parsed := l.source.Stats().Parsed

	l.write("sub/deep/b.yml", pods("b=2"))
	l.want("put b=2")
	if n := l.source.Stats().Parsed - parsed; n != 1 {
		t.Errorf("an edit of one file parsed %d", n)
	}

	l.write("new/folder/d.yaml", pods("d"))
	l.want("put d")
	l.write("new/folder/d.yaml", pods("d=2"))
	l.want("put d=2")

	l.write("odd.yaml/e.yaml", pods("e")) // a folder with the name of a file
	l.want("put e")

	l.write("a.yaml.tmp", pods("a=2")) // the atomic way
	do(t, os.Rename(l.dir+"/a.yaml.tmp", l.dir+"/a.yaml"))
	l.want("put a=2")

	do(t, os.Rename(l.dir+"/a.yaml", l.dir+"/a.yaml~")) // vim's way
	l.write("a.yaml", pods("a=3"))
	do(t, os.Remove(l.dir+"/a.yaml~"))
	l.want("put a=3")

	do(t, os.Rename(l.dir+"/new", l.dir+"/moved"))
	l.want("put d=2") // it has another location
	l.write("c.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c","labels":{"x":"2"}}}`+"\n")
	l.want("put c=2")
	l.write("moved/folder/d.yaml", pods("d=3"))
	l.want("put d=3")

	do(t, os.RemoveAll(l.dir+"/moved"))
	l.want("delete d")
}

func TestRunFollowsAMountedConfigMap(t *testing.T) {
	publish := func(dir, version, text string) {
		put(t, dir+"/..v"+version+"/a.yaml", text)
		put(t, dir+"/..v"+version+"/sub/b.yaml", strings.ReplaceAll(text, "name: a", "name: b"))
		do(t, os.Symlink("..v"+version, dir+"/..data_tmp"))
		do(t, os.Rename(dir+"/..data_tmp", dir+"/..data"))
	}
	l := start(t, func(dir string) {
		publish(dir, "1", pods("a"))
		do(t, os.Symlink("..data/a.yaml", dir+"/a.yaml"))
		do(t, os.Symlink("..data/sub", dir+"/sub"))
		do(t, os.Symlink(".", dir+"/loop"))
	})
	l.want("put a", "put b", "synced")
	if p := l.source.Problems(); len(p) > 0 {
		t.Errorf("problems %v", p) // a link to a parent would return every object twice
	}
	publish(l.dir, "2", pods("a=2"))
	l.want("put a=2", "put b=2")
	do(t, os.RemoveAll(l.dir+"/..v1"))
	publish(l.dir, "3", pods("a=3"))
	l.want("put a=3", "put b=3")
}

// A folder that vanishes is emitted as gone, with the reason by which the ingester judges it.
func TestRunSaysWhyObjectsAreGone(t *testing.T) {
	l := start(t, func(dir string) { put(t, dir+"/sub/a.yaml", pods("a", "b")) })
	l.want("put a", "put b", "synced")
	do(t, os.RemoveAll(l.dir+"/sub"))
	select {
	case all := <-l.events:
		if got := events(all); !slices.Equal(got, []string{"delete a", "delete b"}) {
			t.Errorf("events %q", got)
		}
		for _, e := range all {
			if e.Why != object.Missing {
				t.Errorf("%v: %v", e.ID, e.Why)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing is emitted")
	}
	l.write("sub/a.yaml", pods("a", "b=2"))
	l.want("put a", "put b=2")
}

// A file system that reports nothing is walked.
func TestRescan(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a.yaml", pods("a"))
	s, err := New(Config{Dir: dir})
	do(t, err)
	readings, _ := s.scan(time.Now(), nil)
	s.reader.step(time.Now(), readings, true)
	put(t, dir+"/a.yaml", pods("a=22"))
	put(t, dir+"/b.yaml", pods("b"))
	readings, _ = s.scan(time.Now(), nil)
	if got := events(s.reader.step(time.Now(), readings, false)); !slices.Equal(got, []string{"put a=22", "put b"}) {
		t.Errorf("got %q", got)
	}
	if readings, _ = s.scan(time.Now(), nil); len(readings) != 0 {
		t.Errorf("nothing changed and %d files were read", len(readings))
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/b.yaml", pods("a=b")+"---\nx: [\n")
	put(t, dir+"/a.yaml", strings.TrimSuffix(pods("a=a"), "\n"))
	got, problems, err := Read(dir, "", nil)
	if err != nil || !slices.Equal(events(got), []string{"broken ?", "put a=a", "synced"}) || len(problems) != 2 {
		t.Errorf("events %q, problems %v, error %v", events(got), problems, err)
	}
	if _, _, err := Read(dir+"/none", "", nil); err == nil {
		t.Error("a folder that is not there was read")
	}
	if _, _, err := Read(dir+"/a.yaml", "", nil); err == nil {
		t.Error("a file was read as a folder")
	}
}
