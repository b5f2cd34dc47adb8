package agent

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"navarch.io/navarch/store/durable"
)

// All files are on disk before a link refers to them, and the previous ones stay until then: after a crash of the
// machine, key and certificate are of the same version.
func TestOutputOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	synced := map[string]string{} // by path: the content that durable has synced
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
	fail = links + 1 // after the swap, like the folder of a process that has crashed
	if err := os.Remove(filepath.Join(dir, names[0])); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "..data-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	o = &output{dir: dir, replace: o.replace, link: o.link} // another process
	fail = -1
	if err := write(); err != nil {
		t.Fatal(err)
	}
	want("two")
	if kept, err := filepath.Glob(filepath.Join(dir, "..data-*")); err != nil || len(kept) != 1 {
		t.Errorf("folders with keys: %v, %v", kept, err)
	}
}
