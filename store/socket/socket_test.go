package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSocketIsTakenFromTheDeadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := first.Accept(); err != nil {
				return
			}
		}
	}()
	if _, err := Listen(path, 0o600); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second listener on a living socket: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as a process that was killed
	first.Close()
	second, err := Listen(path, 0o777)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	defer second.Close()
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o777 {
		t.Errorf("socket mode %v, %v", fi.Mode(), err)
	}
}
