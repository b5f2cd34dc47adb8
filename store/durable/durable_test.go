package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file is replaced as a whole, with its mode; what could not be written leaves it, and nothing beside it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	words := func(text string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, failed := io.WriteString(w, text)
			return errors.Join(failed, err)
		}
	}
	full := errors.New("full")
	for _, c := range []struct {
		text string
		mode os.FileMode
		err  error
		want string
	}{{"one", 0o600, nil, "one"}, {"half of tw", 0o600, full, "one"}, {"two", 0o644, nil, "two"}} {
		if err := Replace(path, c.mode, words(c.text, c.err)); !errors.Is(err, c.err) {
			t.Errorf("%q: %v", c.text, err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != c.want {
			t.Errorf("after %q: %q, %v", c.text, got, err)
		}
		info, err := os.Stat(path)
		if err != nil || c.err == nil && info.Mode().Perm() != c.mode {
			t.Errorf("after %q: %v, %v", c.text, info.Mode(), err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := Replace(filepath.Join(dir, "none", "file"), 0o600, words("", nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
}

// Of several that create a file one wins, and nothing of the others is left.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	errs := make(chan error, 8)
	for i := range cap(errs) {
		go func() {
			errs <- Create(path, 0o600, func(w io.Writer) error {
				_, err := io.WriteString(w, string(rune('a'+i)))
				return err
			})
		}()
	}
	won := 0
	for range cap(errs) {
		switch err := <-errs; {
		case err == nil:
			won++
		case !errors.Is(err, fs.ErrExist):
			t.Error(err)
		}
	}
	got, err := os.ReadFile(path)
	left, err2 := os.ReadDir(dir)
	if won != 1 || len(got) != 1 || len(left) != 1 || errors.Join(err, err2) != nil {
		t.Errorf("%d have won, the file is %q, left %v; %v, %v", won, got, left, err, err2)
	}
}

// A link replaces what is there, and what a process left that was killed in the middle; nothing is left beside it.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "link")
	for _, target := range []string{"one", "two"} {
		if err := os.Symlink("nowhere", path+".next"); err != nil {
			t.Fatal(err)
		}
		if err := Link(target, path); err != nil {
			t.Error(err)
		}
		if got, err := os.Readlink(path); err != nil || got != target {
			t.Errorf("%q leads to %q, %v", target, got, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := Link("one", filepath.Join(dir, "none", "link")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
}

// A pipe, a folder, a link, a file that is too large or nothing in a file's place is an error at once, with the path; nobody waits for a writer.
func TestOpenWaitsForNobody(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(syscall.Mkfifo(at("pipe"), 0o600), os.WriteFile(at("file"), []byte("x"), 0o600), os.Symlink("file", at("link")),
		os.WriteFile(at("large"), nil, 0o600), os.Truncate(at("large"), 1<<40)); err != nil { // a terabyte of which the disk has nothing
		t.Fatal(err)
	}
	for path, reason := range map[string]string{at("pipe"): "no regular file", dir: "no regular file", at("link"): "symbolic link", at("large"): "at most 1 are read", at("none"): "no such file"} {
		if text, err := Read(path, 1); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if text, err := Read(at("file"), 1); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
}
