// Package durable replaces files so that after a crash of the machine there is the old one or the new one, whole, and reads them again (leaf).
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
)

// Replace makes what write writes the content of a file, with a mode, in a folder that is there. It returns when the disk has it: the
// file, and the name in the folder, which is synced by itself (fsync(2): the entry of a file is not part of it). Where there is an
// error, write's among them, the file is what it was, unless only the folder could not be synced.
func Replace(path string, mode os.FileMode, write func(io.Writer) error) error {
	if err := put(path, mode, write, os.Rename); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

// Create is Replace of a file that is not there. Where one is, also one that somebody else creates at the same time, the error wraps
// fs.ErrExist, and that is what it was.
func Create(path string, mode os.FileMode, write func(io.Writer) error) error {
	if err := put(path, mode, write, os.Link); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

// Open opens for reading a file that this process keeps, of most bytes at most. An error names the path, and comes at once: where there is a pipe, which would be waited for, a device or a
// folder; a symbolic link, which Replace never leaves, and which could lead to somebody else's file; a file that is larger; or what the file system says.
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

// Link makes path a symbolic link to target, which may be there or not, and replaces a file or a link that is there at once. It returns
// when the disk has the name. A process that was killed may leave path with ".next" behind it, which the next call replaces.
// Errors are the file system's.
func Link(target, path string) error {
	next := path + ".next"
	err := os.Remove(next)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = os.Symlink(target, next)
	}
	if err == nil {
		err = give(next, path, os.Rename)
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	return nil
}

// put writes a file beside its place and has name give it its own.
func put(path string, mode os.FileMode, write func(io.Writer) error, name func(from, to string) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // nothing, where it was renamed
	if err := errors.Join(write(temp), temp.Chmod(mode), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return give(temp.Name(), path, name)
}

// give has name give a file its name, and returns when the disk has that.
func give(from, to string, name func(from, to string) error) error {
	if err := name(from, to); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(to))
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}
