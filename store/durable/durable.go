// Package durable writes files atomically, and reads them safely. After a crash of the machine, a file has either its
// old or its new content, never a part of it (except with ReplaceUnsynced).
//
// Owns: nothing. Reads: nothing. Never: leaves incomplete content at the path of a file while the machine runs.
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

// Replace atomically replaces the file at path, or creates it. The folder must exist. The file then has exactly the
// given mode. The function write writes the content to its argument, a temporary *os.File in the same folder. Replace
// syncs the temporary file, renames it to path, and then syncs the folder, because syncing a file does not sync its
// name (fsync(2)). Errors are those of write and of the file system. After an error the previous file is unchanged,
// unless only the sync of the folder failed. A killed process may leave the temporary file behind.
func Replace(path string, mode os.FileMode, write func(io.Writer) error) error {
	if err := put(path, mode, write, os.Rename); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

// ReplaceUnsynced replaces the file at path, or creates it, by a rename of path+".new", which it writes first. It syncs
// nothing: after a crash of the machine the content may be lost or incomplete, but not after a crash of the process. A
// new file gets the given mode, less the umask. After an error the previous file is unchanged, and path+".new" is
// removed, which frees the space of a partial file. Only one call at a time may write a path. Errors are those of the
// file system.
func ReplaceUnsynced(path string, mode os.FileMode, data []byte) error {
	next := path + ".new"
	err := os.WriteFile(next, data, mode)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
	}
	return err
}

// Create writes a file like Replace, but only if the path does not exist. If it exists, or another process creates it
// at the same time, the error wraps fs.ErrExist, and the existing file is unchanged. Other errors are those of Replace.
func Create(path string, mode os.FileMode, write func(io.Writer) error) error {
	if err := put(path, mode, write, os.Link); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

// Open opens a file for reading; the caller closes it. It fails if the size of the file exceeds the limit in bytes, if
// the path is not a regular file (such as a pipe, a device or a folder), or if the file system fails. The error wraps
// fs.ErrNotExist if there is no file. Errors name the path. A symbolic link is an error too, because Replace never
// creates a link, and a link could lead to a file of another owner. Open does not block.
func Open(path string, limit int64) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, and links are not followed", path)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file (%v)", path, info.Mode().Type())
	case info.Size() > limit:
		err = fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), limit)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// Read returns the content of a file whose size in bytes does not exceed the limit. If the file grows while it is read,
// only the bytes up to the limit are returned. Errors are those of Open and of reading. After an error of reading, the
// result contains the bytes that were read before.
func Read(path string, limit int64) ([]byte, error) {
	file, err := Open(path, limit)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}

// Made returns the creation time of an open file in UTC, according to its file system (statx(2), stx_btime). Writing
// and renaming do not change this time. A copy of the file, also one from a backup, has another time. The result is
// zero if the file system does not record or report the time.
func Made(file *os.File) time.Time {
	var s unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &s); err != nil || s.Mask&unix.STATX_BTIME == 0 {
		return time.Time{}
	}
	return time.Unix(s.Btime.Sec, int64(s.Btime.Nsec)).UTC()
}

// Free returns the number of bytes that are available to unprivileged processes in the file system of a path. Errors
// are those of statfs(2).
func Free(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", path, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// Link atomically makes path a symbolic link to target. The target need not exist. An existing file or link at path is
// replaced; an existing folder is an error. Link first creates the link path+".next" and renames it, and then syncs the
// folder. A killed process or an error may leave path+".next", which the next call replaces. Errors are those of the
// file system.
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

// sync syncs a file, or the names in a folder, to disk (fsync(2)). Tests replace it to observe the calls.
var sync = (*os.File).Sync

// put writes a temporary file in the same folder, and syncs it. It then calls the function install, which renames or
// links the file to path.
func put(path string, mode os.FileMode, write func(io.Writer) error, install func(from, to string) error) error {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // no effect after a rename
	if err := errors.Join(write(temp), temp.Chmod(mode), sync(temp), temp.Close()); err != nil {
		return err
	}
	if err := install(temp.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// syncFolder syncs the names in a folder to disk.
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
