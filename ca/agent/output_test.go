package agent

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"navarch.io/navarch/store/durable"
)

// The disk has every file when a link leads to it, and what was there before stands until then: a machine that crashes has a key and
// its certificate, of one version.
func TestOutputOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	synced := map[string]string{} // by path: what durable has put on the disk
	o := newOutput(dir)
	o.replace = func(path string, mode os.FileMode, write func(io.Writer) error) error {
		err := durable.Replace(path, mode, write)
		raw, failed := os.ReadFile(path)
		synced[path] = string(raw)
		return errors.Join(err, failed)
	}
	names := []string{"key.pem", "cert-chain.pem", "root-cert.pem"}
	version := "one"
	links, fail := 0, -1
	crash := errors.New("crash")
	o.link = func(target, path string) error {
		if links == fail {
			return crash
		}
		links++
		if filepath.Base(path) == "..data" {
			for _, name := range names {
				if got := synced[filepath.Join(dir, target, name)]; got != version+name {
					t.Errorf("%s is linked before the disk has %q: %q", target, version+name, got)
				}
			}
		}
		return durable.Link(target, path)
	}
	write := func() error {
		files := map[string][]byte{}
		for _, name := range names {
			files[name] = []byte(version + name)
		}
		return o.write(files)
	}
	want := func(version string) {
		t.Helper()
		for _, name := range names {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != version+name {
				t.Errorf("%s is %q, %v; want that of %s", name, got, err, version)
			}
		}
	}
	if err := write(); err != nil || links != 4 {
		t.Fatalf("%d links, %v", links, err)
	}
	want("one")
	version, fail = "two", links
	if err := write(); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	want("one")
	fail = -1
	if err := write(); err != nil {
		t.Fatal(err)
	}
	want("two")
}
