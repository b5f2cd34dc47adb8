// Package socket listens on Unix sockets that outlive their processes, and that are open to the user of this process, or to a group as well
// (leaf).
//
// Owns: the folders and sockets that it makes.  Reads: the credentials of who connects.  Never: takes a path from a process that
// answers on it; lets in whom the access does not name, whatever the mode of a file became.
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// MaxPath is the longest path that fits sockaddr_un on Linux, its closing zero not counted; bytes.
const MaxPath = 107

// Access says who may connect to a socket beside the user that this process runs as. The zero value is that user alone.
type Access struct {
	// Group is the id of a group whose members may connect; nil: none.
	Group *uint32
	// Refused is told of each connection that was closed because of who made it. Accept waits for it. nil: nobody is.
	Refused func(Peer)
}

// Listen listens on a path, where it takes over from a process that died. Where one lives and answers, the error is
// syscall.EADDRINUSE. The socket is 0600, with a group 0660; connections of others are closed before anything is read from them.
func Listen(path string, to Access) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, syscall.EADDRINUSE
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := give(path, to.Group, 0o600, 0o060); err != nil {
		l.Close()
		return nil, err
	}
	return &guarded{Listener: l, to: to}, nil
}

// Folder makes the folder that sockets are in, 0700, and with a group 0710: its members may go through it, and not look into it.
// One that is there is made so. Folders above it are made as any are (0755). It is an error where it is another user's, or no
// folder: who owns it could put another socket in the place of ours.
func Folder(path string, group *uint32) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path) // not where a link leads
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no folder", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("folder %s is of uid %d, this process has uid %d: remove it", path, stat.Uid, os.Geteuid())
	}
	return give(path, group, 0o700, 0o010)
}

// give sets the mode of what is ours, and with a group also that, and the part of the mode that is the group's.
func give(path string, group *uint32, mode, ofGroup fs.FileMode) error {
	if group == nil {
		return os.Chmod(path, mode)
	}
	if err := os.Chown(path, -1, int(*group)); err != nil {
		return fmt.Errorf("give to group %d, of which this process must be a member: %w", *group, err)
	}
	return os.Chmod(path, mode|ofGroup)
}
