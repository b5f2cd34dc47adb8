// Package durable replaces files so that after a crash of the machine there is the old one or the new one, whole, and
// reads them again (leaf).
//
// Owns: nothing.  Reads: nothing.  Never: leaves a temporary file behind, unless the process was killed.
package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Replace makes what write writes the content of a file, with a mode, in a folder that is there; write is given the
// *os.File that gets this name afterwards. It returns when the disk has it: the file, and the name in the folder, which
// is synced by itself (fsync(2): the entry of a file is not part of it). Where there is an error, write's among them,
// the file is what it was, unless only the folder could not be synced.
func Replace(path string, mode os.FileMode, write func(io.Writer) error) error {
	if err := put(path, mode, write, os.Rename); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

// Create is Replace of a file that is not there. Where one is, also one that somebody else creates at the same time,
// the error wraps fs.ErrExist, and that is what it was.
func Create(path string, mode os.FileMode, write func(io.Writer) error) error {
	if err := put(path, mode, write, os.Link); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

// Open opens for reading a file that this process keeps, of most bytes at most. An error names the path, and comes at
// once: where there is a pipe, which would be waited for, a device or a folder; a symbolic link, which Replace never
// leaves, and which could lead to somebody else's file; a file that is larger; or what the file system says.
func Open(path string, most int64) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, which is not followed", path)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file (%v)", path, info.Mode().Type())
	case info.Size() > most:
		err = fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), most)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// Read is the content of a file that Open opens. Errors are those of Open and of reading.
func Read(path string, most int64) ([]byte, error) {
	file, err := Open(path, most)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}

// Made is when a file was made, by its file system (statx(2), stx_btime): it stays the same while the file is written
// to and renamed, and a copy of the file, also one out of a backup, has another. Zero: the file system does not say.
func Made(file *os.File) time.Time {
	var s unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &s); err != nil || s.Mask&unix.STATX_BTIME == 0 {
		return time.Time{}
	}
	return time.Unix(s.Btime.Sec, int64(s.Btime.Nsec)).UTC()
}

// Free returns how many bytes a process without privileges may still write on the file system of a path. Errors are the
// file system's.
func Free(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("free room of %s: %w", path, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// Link makes path a symbolic link to target, which may be there or not, and replaces a file or a link that is there at
// once. It returns when the disk has the name. A process that was killed may leave path with ".next" behind it, which
// the next call replaces. Errors are the file system's.
func Link(target, path string) error {
	next := path + ".next"
	err := os.Remove(next)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = os.Symlink(target, next)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	return nil
}

// sync has the disk take what a file has, or the names in a folder (fsync(2)); the tests look at when that is.
var sync = (*os.File).Sync

// put writes a file beside its place and has name give it its own.
func put(path string, mode os.FileMode, write func(io.Writer) error, name func(from, to string) error) error {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // nothing, where it was renamed
	if err := errors.Join(write(temp), temp.Chmod(mode), sync(temp), temp.Close()); err != nil {
		return err
	}
	if err := name(temp.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	if err := errors.Join(sync(f), f.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}
