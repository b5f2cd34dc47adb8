// Package socket listens on Unix sockets that survive crashes of their processes, and that are open to the user of this
// process, or also to a group (leaf).
//
// Owns: the folders and sockets that it makes. Reads: the credentials of connecting processes. Never: takes a path from
// a process that answers on it; admits a process outside of Access, whatever the mode of a file became.
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

// MaxPath is the length of the longest path that fits into sockaddr_un on Linux, in bytes without the closing zero.
const MaxPath = 107

// Access names the processes that may connect to a socket, besides those of this process's user. The zero value names
// no others.
type Access struct {
	// Group is the id of a group whose members may connect; nil: no group.
	Group *uint32
	// Refused is called for each connection that was closed because of its process. Accept waits for it. It may be nil.
	Refused func(Peer)
}

// Listen listens on a path, and replaces the socket of a process that died. If a process answers on the path, the error
// is syscall.EADDRINUSE. The socket has mode 0600, with a group 0660. Connections of other processes are closed before
// anything is read from them.
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

// Folder creates the folder of sockets with mode 0700. With a group it has 0710: members may pass through it, but not
// list it. An existing folder gets the same mode. Missing parents are created with 0755. Errors: the path is not a
// folder, or another user owns it, who could replace the socket.
func Folder(path string, group *uint32) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path) // a link is not followed
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

// give sets the mode of a file of this process. With a group it also sets the group and the group's part of the mode.
func give(path string, group *uint32, mode, ofGroup fs.FileMode) error {
	if group == nil {
		return os.Chmod(path, mode)
	}
	if err := os.Chown(path, -1, int(*group)); err != nil {
		return fmt.Errorf("give to group %d, of which this process must be a member: %w", *group, err)
	}
	return os.Chmod(path, mode|ofGroup)
}
