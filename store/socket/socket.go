// Package socket listens on Unix sockets. It replaces the socket that a crashed process left, and admits only processes
// of this process's user, and of a group if one is set.
//
// Owns: the folders and sockets that it makes. Reads: the credentials of connecting processes. Never: replaces the
// socket of a process that answers; admits any other process, even if the mode of the socket was changed.
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

// MaxPath is the length in bytes of the longest path that fits into sockaddr_un on Linux, without the closing zero
// byte.
const MaxPath = 107

// Access names the processes that may connect to a socket in addition to those of this process's user. The zero value
// names no further processes.
type Access struct {
	// Group is the id of a group whose members may connect; nil: no group.
	Group *uint32
	// Refused is called for each connection that was closed because its process may not connect. Accept waits until
	// Refused returns. nil: not called.
	Refused func(Peer)
}

// Listen listens on a Unix socket at a path of at most MaxPath bytes. It removes an existing file at the path, such as
// the socket of a process that died. If a process answers on the path, nothing is removed, and the error is
// syscall.EADDRINUSE. The socket has mode 0600, or mode 0660 if access has a group. Connections of processes that may
// not connect (Access) are closed before anything is read from them. Closing the listener removes the socket. Other
// errors are those of the file system, of listening, or of setting the group.
func Listen(path string, access Access) (net.Listener, error) {
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
	if err := give(path, access.Group, 0o600, 0o060); err != nil {
		l.Close()
		return nil, err
	}
	return &guarded{Listener: l, to: access}, nil
}

// Folder creates a folder for sockets, with mode 0700. With a group the mode is 0710, so members of the group may open
// sockets in the folder, but not list it. An existing folder gets the same mode and group. Missing parents are created
// with mode 0755. Errors: the path is not a folder (a symbolic link, for example), or the folder belongs to another
// user, who could replace the socket. Other errors are those of the file system, or of setting the group.
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

// give sets the mode of a file of this process. With a group it also sets the file's group, and adds the bits in
// ofGroup to the mode.
func give(path string, group *uint32, mode, ofGroup fs.FileMode) error {
	if group == nil {
		return os.Chmod(path, mode)
	}
	if err := os.Chown(path, -1, int(*group)); err != nil {
		return fmt.Errorf("give to group %d, of which this process must be a member: %w", *group, err)
	}
	return os.Chmod(path, mode|ofGroup)
}
