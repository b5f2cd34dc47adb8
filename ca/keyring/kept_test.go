package keyring_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/kv/kvtest"
)

// inPlace has ways to replace a file by something else, with the expected error of each.
var inPlace = map[string]struct {
	put    func(path string, was []byte) error
	reason string
}{
	"a link": {func(path string, was []byte) error {
		elsewhere := path + ".elsewhere"
		return errors.Join(os.WriteFile(elsewhere, was, 0o600), os.Symlink(elsewhere, path))
	}, "symbolic link"},
	"a pipe": {func(path string, _ []byte) error { return syscall.Mkfifo(path, 0o600) }, "no regular file"},
	"larger than any": {func(path string, was []byte) error {
		return errors.Join(os.WriteFile(path, was, 0o600), os.Truncate(path, 1<<40))
	}, "bytes, at most"},
	"cut": {func(path string, was []byte) error { return os.WriteFile(path, was[:len(was)/2], 0o600) }, "unexpected end of JSON"},
}

// kept is the state directory of a replica that has ended.
func (w *harness) kept(mesh string) string {
	w.t.Helper()
	dir := w.t.TempDir()
	r := w.replica(allowed(dir, 20), func(c *keyring.Config) { c.Mesh = mesh })
	r.settle()
	r.stop()
	return dir
}

func replace(t *testing.T, path string, put func(path string, was []byte) error) {
	t.Helper()
	was, err := os.ReadFile(path)
	if err = errors.Join(err, os.Remove(path), put(path, was)); err != nil {
		t.Fatal(err)
	}
}

// A path of a stored file that is not a valid file is refused: it is not trusted, read without a bound, waited for or
// followed elsewhere. The error names file and reason. Without the keyring on disk a replica starts and waits for etcd.
// Without its memory of the newest keyring, which protects against an older one, it does not start.
func TestKeptFilesAreRefused(t *testing.T) {
	w := newHarness(t)
	other := &harness{Server: kvtest.Start(t), t: t, kek: w.kek}
	foreign, good := other.kept("another"), w.kept("mesh")
	w.client = w.Connect()
	w.Server.Stop()
	for name, c := range inPlace {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		sealed, remembered := filepath.Join(dir, "keyring.sealed"), filepath.Join(dir, "keyring.json")
		replace(t, sealed, c.put)
		r := w.replica(allowed(dir, 20), away)
		r.becomes(name, func(s *keyring.State) bool {
			return s.Active == nil && s.Sealed != nil && strings.Contains(s.Sealed.Error(), sealed) && strings.Contains(s.Sealed.Error(), c.reason)
		})
		r.stop()
		replace(t, remembered, c.put)
		if _, err := keyring.New(w.config(allowed(dir, 20))); err == nil || !strings.Contains(err.Error(), remembered) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s in the place of what is remembered: %v", name, err)
		}
	}
	if _, err := keyring.New(w.config(allowed(foreign, 20))); err == nil || !strings.Contains(err.Error(), filepath.Join(foreign, "keyring.json")) || !strings.Contains(err.Error(), `"another"`) {
		t.Errorf("the directory of another mesh: %v", err)
	}
	replace(t, filepath.Join(good, "keyring.sealed"), func(path string, _ []byte) error {
		raw, err := os.ReadFile(filepath.Join(foreign, "keyring.sealed"))
		return errors.Join(err, os.WriteFile(path, raw, 0o600))
	})
	r := w.replica(allowed(good, 20), away)
	r.becomes("the keyring of another mesh", func(s *keyring.State) bool {
		return s.Active == nil && s.Sealed != nil && strings.Contains(s.Sealed.Error(), filepath.Join(good, "keyring.sealed"))
	})
}

// A replica whose allowance on disk is invalid starts, and reports the file. Certificates on its readable lines reach
// etcd, and the file is set aside. Renewals are issued again from the next allowance.
func TestAllowanceOnDiskIsRefused(t *testing.T) {
	w := newHarness(t)
	good := w.kept("mesh")
	w.client = w.Connect()
	w.Server.Stop()
	r := w.replica(allowed(good, 20), away)
	r.becomes("the keyring on disk", func(s *keyring.State) bool { return s.Active != nil })
	first, err := r.renews("web", "a")
	second, err2 := r.renews("web", "b")
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	r.stop()
	w.Server.Restart(w.Server.Dir())
	for name, c := range inPlace {
		if name == "cut" { // the rest was not handed out
			continue
		}
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "allowance.log")
		replace(t, file, c.put)
		w.allowanceIsRefused(name, dir, c.reason)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "allowance.log")
	replace(t, file, func(path string, was []byte) error {
		lines := strings.SplitAfter(string(was), "\n") // the allowance, two renewals, and nothing
		lines[1] = "{\"s\":\n"
		return os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600)
	})
	w.allowanceIsRefused("a damaged line", dir, "line 2: ")
	if got := w.journalled(); strings.Contains(got, first.Serial) || !strings.Contains(got, second.Serial) {
		t.Errorf("of %s, which is damaged, and %s, which is not, etcd has %s", first.Serial, second.Serial, got)
	}
}

// Two replicas, one with a copy of the other's state directory, each renew from an allowance of their own: the copy is
// detected, set aside and reported, and its certificates reach etcd. If the original is only restarted, it is used
// further.
// Promise: security-workloads.md#renewals-while-etcd-is-away
func TestCopiedAllowanceIsRefused(t *testing.T) {
	w := newHarness(t)
	good, dir := w.kept("mesh"), t.TempDir()
	w.client = w.Connect()
	w.Server.Stop()
	r := w.replica(allowed(good, 20), away)
	r.becomes("the keyring on disk", func(s *keyring.State) bool { return s.Active != nil })
	renewed, err := r.renews("web", "a")
	if err = errors.Join(err, os.CopyFS(dir, os.DirFS(good))); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, "allowance.log"))
	if err != nil {
		t.Fatal(err)
	}
	if durable.Made(file).IsZero() {
		t.Skip("this file system does not say when a file was made")
	}
	file.Close()
	r.stop()
	w.Server.Restart(w.Server.Dir())
	w.allowanceIsRefused("a copy", dir, "it is a copy of the file")
	if got := w.journalled(); !strings.Contains(got, `"`+renewed.Serial+`"`) {
		t.Errorf("etcd does not have %s", renewed.Serial)
	}
	if n := len(w.blobs("allowances/")); n != 2 {
		t.Errorf("etcd has %d allowances of two replicas", n)
	}
	r = w.replica(allowed(good, 20))
	r.settle()
	if n := len(w.blobs("allowances/")); n != 2 || r.Stats().Allowance != 20 {
		t.Errorf("etcd has %d allowances, the original's is of %d", n, r.Stats().Allowance)
	}
	if _, err := os.Lstat(filepath.Join(good, "allowance.log.refused")); err == nil {
		t.Error("the original is set aside")
	}
}

func (w *harness) allowanceIsRefused(name, dir, reason string) {
	w.t.Helper()
	file := filepath.Join(dir, "allowance.log")
	r := w.replica(allowed(dir, 20))
	defer r.stop()
	if log := w.logs.String(); !strings.Contains(log, "path="+file+" ") || !strings.Contains(log, reason) {
		w.t.Errorf("%s: %q of %s is not in the log:\n%s", name, reason, file, log)
	}
	if n := r.Stats().Allowance; n != 0 {
		w.t.Errorf("%s: %d renewals may be issued", name, n)
	}
	if r.settle(); r.Stats().Allowance != 20 {
		w.t.Errorf("%s: %d renewals are allowed afterwards", name, r.Stats().Allowance)
	}
	if _, err := os.Lstat(file + ".refused"); err != nil {
		w.t.Errorf("%s: it is not set aside: %v", name, err)
	}
}
