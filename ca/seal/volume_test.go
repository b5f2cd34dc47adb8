package seal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/ca/seal"
)

// volume is a Secret volume as the kubelet keeps it: kek.key leads through the link ..data to a folder that is replaced
// as a whole.
type volume struct {
	t   *testing.T
	dir string
	n   int
}

// put stores a key in the volume, in a file of a mode that is root's, or another user's if this process is root.
func (v *volume) put(key string, mode os.FileMode) string {
	v.t.Helper()
	v.n++
	folder := filepath.Join(v.dir, "..2026_"+strings.Repeat("i", v.n))
	path := filepath.Join(folder, "kek.key")
	must(v.t, os.Mkdir(folder, 0o755))
	must(v.t, os.WriteFile(path, []byte(key), 0o600))
	must(v.t, os.Chown(path, 65534, os.Getegid()))
	must(v.t, os.Chmod(path, mode))
	must(v.t, os.Symlink(filepath.Base(folder), filepath.Join(v.dir, "..next")))
	must(v.t, os.Rename(filepath.Join(v.dir, "..next"), filepath.Join(v.dir, "..data")))
	link := filepath.Join(v.dir, "kek.key")
	if v.n == 1 {
		must(v.t, os.Symlink("..data/kek.key", link))
	}
	return link
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The key may be in a Secret volume: its file belongs to another user, and is read through the group that the Pod's
// fsGroup set. Replacing the content of the volume by the kubelet is supported; a key that was replaced by mistake is
// used again once it is restored. Files that others may read or write are refused.
func TestKeyInSecretVolume(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files of another user can be made by root alone")
	}
	const a, b = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	v := &volume{t: t, dir: t.TempDir()}
	path := v.put(a, 0o440)
	running := envelope(t, file(t, path))
	blob := sealed(t, running)
	v.put(a, 0o440)
	opens(t, running, blob)
	opens(t, envelope(t, file(t, path)), blob)

	v.put(b, 0o400)
	opens(t, running, blob) // it is in memory
	late := envelope(t, file(t, path))
	if _, err := late.Open(t.Context(), blob, about); !errors.Is(err, seal.ErrUnavailable) {
		t.Errorf("under another key: %v", err)
	}
	v.put(a, 0o640)
	opens(t, late, blob)

	for _, mode := range []os.FileMode{0o444, 0o460, 0o644, 0o450, 0o401} {
		v.put(a, mode)
		if _, err := seal.NewFile(path); err == nil || !strings.Contains(err.Error(), "other users can read or write it") {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	v.put(a, 0o440)
	real, err := filepath.EvalSymlinks(path)
	must(t, err)
	must(t, os.Chown(real, os.Geteuid(), os.Getegid()))
	if _, err := seal.NewFile(path); err == nil { // it needs no group to read its own
		t.Error("its own file that its group may read is taken")
	}
}
