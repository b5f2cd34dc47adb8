package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// permissions of a path.
func permissions(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// connectAs connects to a socket as another user, on a thread that ends with it (root only).
func connectAs(t *testing.T, uid uintptr, path string) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			done <- errno
			return
		}
		c, err := net.Dial("unix", path)
		if err == nil {
			err = errors.Join(c.SetDeadline(time.Now().Add(deadline)), readToEnd(c), c.Close())
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// readToEnd reads until the other end hangs up.
func readToEnd(c net.Conn) error {
	_, err := c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// Envoy is configured through a socket that other users may not use: by the modes of files, and also if these were
// changed. An option permits a group.
// Promise: security-connections.md#who-is-on-the-same-machine
func TestSocketsAreEnvoysAlone(t *testing.T) {
	ads := newFakeADS(t, "127.0.0.1:0", "127.0.0.1:1")
	addr, _ := ads.start(t, "127.0.0.1:0")
	top := t.TempDir()
	config := filepath.Join(top, "proxy")
	flags := []string{"--xds-plaintext", "--config-path", config}
	p := startAgent(t, addr, flags...)
	p.until("Envoy speaks to the agent", func(d debugPage) bool { return d.XDS.Total.Responses > 0 })
	folder := filepath.Join(config, "sockets")
	xds := filepath.Join(folder, "XDS")
	if permissions(t, folder) != 0o700 || permissions(t, xds) != 0o600 {
		t.Errorf("%v, %v", permissions(t, folder), permissions(t, xds))
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user, and in any group")
	}
	if err := errors.Join(os.Chmod(filepath.Dir(top), 0o755), os.Chmod(folder, 0o755), os.Chmod(xds, 0o777)); err != nil {
		t.Fatal(err)
	}
	connectAs(t, 1234, xds)
	connectAs(t, 1234, xds)
	p.until("who was refused is logged, once", func(debugPage) bool {
		return strings.Count(p.out.String(), `does not run as Envoy's user" user="uid 1234" pid=`) == 1
	})
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.exit() // the process was killed

	p = startAgent(t, addr, append(flags, "--xds-socket-group", "4321")...)
	p.until("Envoy speaks to the agent", func(d debugPage) bool { return d.XDS.Total.Responses > 0 })
	if permissions(t, folder) != 0o710 || permissions(t, xds) != 0o660 {
		t.Errorf("with a group: %v, %v", permissions(t, folder), permissions(t, xds))
	}
}

func TestSocketGroupThatIsNone(t *testing.T) {
	o := &options{configPath: t.TempDir(), socketGroup: "no such group"}
	if _, err := o.makeSockets(); err == nil || !strings.Contains(err.Error(), "--xds-socket-group") {
		t.Error(err)
	}
	if err := os.WriteFile(o.sockets(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.socketGroup = ""
	if _, err := o.makeSockets(); err == nil || !strings.Contains(err.Error(), "--config-path") {
		t.Error(err)
	}
}
