package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The disk is waited for: a file that cannot be synced does not get its name, and that the folder could not be is an error. What cannot be
// synced is a pipe in their place (fsync(2), EINVAL).
func TestReplaceWaitsForTheDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	path := filepath.Join(dir, "file")
	read, write, err := os.Pipe()
	if err := errors.Join(err, os.Mkdir(dir, 0o700), os.WriteFile(path, []byte("one"), 0o600)); err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	err = Replace(path, 0o600, func(w io.Writer) error {
		return syscall.Dup3(int(write.Fd()), int(w.(*os.File).Fd()), 0)
	})
	if got, read := os.ReadFile(path); !errors.Is(err, syscall.EINVAL) || string(got) != "one" || read != nil {
		t.Errorf("a file that cannot be synced: %v; there is %q, %v", err, got, read)
	}

	var pipe *os.File
	err = put(path, 0o600, func(io.Writer) error { return nil }, func(from, to string) error {
		err := errors.Join(os.Rename(from, to), os.Rename(dir, dir+".aside"), syscall.Mkfifo(dir, 0o600))
		if err == nil {
			pipe, err = os.OpenFile(dir, os.O_RDWR, 0) // so that nobody waits for a writer
		}
		return err
	})
	if pipe == nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "sync folder "+dir) {
		t.Errorf("a folder that cannot be synced: %v", err)
	}
}
