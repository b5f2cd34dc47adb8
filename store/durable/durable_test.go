package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A file is replaced as a whole, with its mode; after a failed write it is unchanged, and no other file remains.
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

// Without a sync a file is replaced as a whole, too. After a failed write or rename it is unchanged, and no other file
// remains.
func TestReplaceUnsynced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	before := sync
	t.Cleanup(func() { sync = before })
	sync = func(f *os.File) error { t.Errorf("%s is synced", f.Name()); return nil }
	for _, text := range []string{"one", "two"} {
		if err := ReplaceUnsynced(path, 0o600, []byte(text)); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(path)
		info, err2 := os.Stat(path)
		if errors.Join(err, err2) != nil || string(got) != text || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v, want %q", got, err, err2, text)
		}
	}
	folder := filepath.Join(dir, "folder") // a rename cannot replace it
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Mkdir(path+".new", 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{path, folder} {
		if err := ReplaceUnsynced(at, 0o600, []byte("three")); err == nil {
			t.Errorf("%s: no error", at)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "two" {
		t.Errorf("%q, %v", got, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
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

// Link replaces an existing file, and the leftover of a process that was killed while linking; no other file remains.
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

// The whole content of a file is on disk before its name refers to it, and the name is on disk when the call returns:
// the folder is synced after the rename (fsync(2)). If the disk fails, the call returns an error.
func TestDiskHasTheName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var failing bool
	var synced []string
	before := sync
	t.Cleanup(func() { sync = before })
	sync = func(f *os.File) error {
		what, at := "folder", "nothing"
		if f.Name() != dir {
			text, err := os.ReadFile(f.Name())
			what = fmt.Sprintf("%s %v", text, err)
		}
		if target, err := os.Readlink(path); err == nil {
			at = "a link to " + target
		} else if text, err := os.ReadFile(path); err == nil {
			at = string(text)
		}
		if synced = append(synced, what+", at the path "+at); failing {
			return syscall.EIO
		}
		return nil
	}
	write := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	for _, c := range []struct {
		do   func() error
		want []string
	}{
		{func() error { return Create(path, 0o600, write("one")) }, []string{"one <nil>, at the path nothing", "folder, at the path one"}},
		{func() error { return Replace(path, 0o600, write("two")) }, []string{"two <nil>, at the path one", "folder, at the path two"}},
		{func() error { return Link("three", path) }, []string{"folder, at the path a link to three"}},
	} {
		if synced = nil; c.do() != nil || !slices.Equal(synced, c.want) {
			t.Errorf("synced %q, want %q", synced, c.want)
		}
	}
	failing = true
	if err := Replace(path, 0o600, write("four")); !errors.Is(err, syscall.EIO) {
		t.Errorf("the disk does not take the file: %v", err)
	}
	if err := Link("four", path); !errors.Is(err, syscall.EIO) {
		t.Errorf("the disk does not take the name: %v", err)
	}
}

// A pipe, a folder, a link, a file that is too large, or a missing file is an error with the path at once, without
// waiting for a writer.
func TestOpenWaitsForNobody(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(syscall.Mkfifo(at("pipe"), 0o600), os.WriteFile(at("file"), []byte("x"), 0o600), os.Symlink("file", at("link")),
		os.WriteFile(at("large"), nil, 0o600), os.Truncate(at("large"), 1<<40)); err != nil { // a terabyte without allocated blocks
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

// The creation time of a file does not change by writing or renaming; a copy with its content and times has a later
// one.
func TestMade(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	made := func(path string) time.Time {
		t.Helper()
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		return Made(file)
	}
	var then time.Time
	if err := Replace(path, 0o600, func(w io.Writer) error { then = Made(w.(*os.File)); return nil }); err != nil {
		t.Fatal(err)
	}
	if then.IsZero() {
		t.Skip("this file system does not say when a file was made")
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := then
	for deadline := time.Now().Add(time.Minute); copied.Equal(then) && time.Now().Before(deadline); { // the clock of file systems has ticks of milliseconds
		if err := errors.Join(os.RemoveAll(other), os.WriteFile(other, nil, 0o600), os.Chtimes(other, before.ModTime(), before.ModTime())); err != nil {
			t.Fatal(err)
		}
		copied = made(other)
	}
	if got := made(path); !got.Equal(then) || !copied.After(then) {
		t.Errorf("made at %v, then it says %v, and of a copy %v", then, got, copied)
	}
}

// Free returns a number of free bytes.
func TestFree(t *testing.T) {
	if free, err := Free(t.TempDir()); err != nil || free == 0 {
		t.Errorf("%d, %v", free, err)
	}
	if _, err := Free("/none/there"); err == nil {
		t.Error("of no folder")
	}
}
