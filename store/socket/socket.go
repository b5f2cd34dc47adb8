// Package socket listens on Unix sockets that outlive their processes (leaf).
//
// Owns: nothing.  Reads: nothing.  Never: takes a path from a process that answers on it.
package socket

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// MaxPath is the longest path that fits sockaddr_un on Linux, its closing zero not counted; bytes.
const MaxPath = 107

// Listen listens on a path with a mode, where it takes over from a process that died. Where one lives and answers, the error
// is syscall.EADDRINUSE.
func Listen(path string, mode os.FileMode) (net.Listener, error) {
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
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
