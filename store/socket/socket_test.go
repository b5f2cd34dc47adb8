package socket

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

func TestSocketIsTakenFromTheDeadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := Listen(path, Access{})
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
	if _, err := Listen(path, Access{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second listener on a living socket: %v", err)
	}
	first.(*guarded).Listener.(*net.UnixListener).SetUnlinkOnClose(false) // as a process that was killed
	first.Close()
	second, err := Listen(path, Access{})
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	second.Close()
}

// modes checks owner group and mode of a path.
func modes(t *testing.T, path string, mode fs.FileMode, group int) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if gid := info.Sys().(*syscall.Stat_t).Gid; info.Mode().Perm() != mode || gid != uint32(group) {
		t.Errorf("%s: %v of group %d, want %v of %d", path, info.Mode(), gid, mode, group)
	}
}

// Promise: security-connections.md#who-is-on-the-same-machine
func TestModes(t *testing.T) {
	own := os.Getegid()
	folder := filepath.Join(t.TempDir(), "a", "sockets")
	for range 2 { // made, and then put right
		if err := Folder(folder, nil); err != nil {
			t.Fatal(err)
		}
		modes(t, folder, 0o700, own)
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Listen(filepath.Join(folder, "s"), Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	modes(t, filepath.Join(folder, "s"), 0o600, own)

	group := uint32(own)
	if own == 0 {
		group = 4321
	}
	if err := Folder(folder, &group); err != nil {
		t.Fatal(err)
	}
	shared, err := Listen(filepath.Join(folder, "g"), Access{Group: &group})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	modes(t, folder, 0o710, int(group))
	modes(t, filepath.Join(folder, "g"), 0o660, int(group))
	modes(t, filepath.Join(folder, "s"), 0o600, own) // files without a group stay private
}

// A folder that another user could change is not used.
func TestFolderIsOurs(t *testing.T) {
	dir := t.TempDir()
	file, link, foreign := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "foreign")
	err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(dir, link), os.Mkdir(foreign, 0o777))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if err := Folder(path, nil); err == nil || !strings.Contains(err.Error(), "is no folder") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if os.Geteuid() != 0 {
		return // only root can make one of another user
	}
	if err := os.Chown(foreign, 1234, 0); err != nil {
		t.Fatal(err)
	}
	if err := Folder(foreign, nil); err == nil || !strings.Contains(err.Error(), "is of uid 1234") {
		t.Errorf("another user's: %v", err)
	}
}

func TestAdmits(t *testing.T) {
	own, group := uint32(os.Geteuid()), uint32(77)
	for name, c := range map[string]struct {
		peer          Peer
		alone, shared bool
	}{
		"own user":              {Peer{UID: own, GID: 5}, true, true},
		"another":               {Peer{UID: own + 1, GID: 5, Groups: []uint32{6}}, false, false},
		"group":                 {Peer{UID: own + 1, GID: 77}, false, true},
		"one of its groups":     {Peer{UID: own + 1, GID: 5, Groups: []uint32{6, 77}}, false, true},
		"who that is not known": {Peer{UID: own, GID: 77, Err: errors.New("x")}, false, false},
	} {
		if got := (Access{}).admits(c.peer); got != c.alone {
			t.Errorf("%s, alone: %v", name, got)
		}
		if got := (Access{Group: &group}).admits(c.peer); got != c.shared {
			t.Errorf("%s, with the group: %v", name, got)
		}
	}
}

func TestGroupID(t *testing.T) {
	if id, err := GroupID("77"); id != 77 || err != nil {
		t.Error(id, err)
	}
	if id, err := GroupID("root"); id != 0 || err != nil {
		t.Error(id, err)
	}
	for _, bad := range []string{"no such group", "", "4294967295", "-1"} {
		if _, err := GroupID(bad); err == nil {
			t.Errorf("%q is a group", bad)
		}
	}
}

// as runs f on a thread that is of another user, and ends with it.
func as(t *testing.T, uid, gid uintptr, groups []uint32, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		var first unsafe.Pointer
		if len(groups) > 0 {
			first = unsafe.Pointer(&groups[0])
		}
		_, _, e1 := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0)
		_, _, e2 := syscall.RawSyscall(syscall.SYS_SETRESGID, gid, gid, gid)
		_, _, e3 := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid)
		if e1 != 0 || e2 != 0 || e3 != 0 {
			done <- errors.Join(e1, e2, e3)
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// connects returns nil if a connection is admitted: the listener answers those.
func connects(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// Processes of other users, outside of the group if there is one, are refused: by the mode of the folder, and otherwise
// by their credentials.
// Promise: security-connections.md#who-is-on-the-same-machine
func TestForeignersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users")
	}
	group := uint32(4321)
	many := []uint32{group}
	for i := range uint32(200) { // more than the first request returns
		many = append(many, 10000+i)
	}
	for _, shared := range []bool{false, true} {
		refused := make(chan Peer, 10)
		to, of := Access{Refused: func(p Peer) { refused <- p }}, (*uint32)(nil)
		if shared {
			of, to.Group = &group, &group
		}
		top := t.TempDir()
		folder := filepath.Join(top, "sockets")
		path := filepath.Join(folder, "s")
		if err := errors.Join(os.Chmod(filepath.Dir(top), 0o755), os.Chmod(top, 0o755), Folder(folder, of)); err != nil {
			t.Fatal(err)
		}
		l, err := Listen(path, to)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("!")) // the client may have gone
				c.Close()
			}
		}()
		if err := connects(path); err != nil {
			t.Errorf("the own user: %v", err)
		}
		foreign := func(gid uintptr, groups []uint32) (err error) {
			as(t, 1234, gid, groups, func() { err = connects(path) })
			return err
		}
		if err := foreign(1234, nil); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("another user is not kept out by the folder: %v", err)
		}
		if err := foreign(1234, slices.Clone(many)); (err == nil) != shared {
			t.Errorf("a member of the group, shared %v: %v", shared, err)
		}
		if err := errors.Join(os.Chmod(folder, 0o777), os.Chmod(path, 0o777)); err != nil { // whatever the modes became
			t.Fatal(err)
		}
		if err := foreign(1234, []uint32{9}); err == nil {
			t.Error("another user is let in")
		}
		if p := <-refused; p.UID != 1234 || p.GID != 1234 || p.PID != int32(os.Getpid()) || !slices.Contains(p.Groups, 9) || p.User() != "uid 1234" {
			t.Errorf("refused: %+v, %s", p, p.User())
		}
		if err := foreign(uintptr(group), nil); (err == nil) != shared {
			t.Errorf("its group is the group, shared %v: %v", shared, err)
		}
		if err := foreign(1234, slices.Clone(many)); (err == nil) != shared {
			t.Errorf("one of many groups is the group, shared %v: %v", shared, err)
		}
	}
	if name := (Peer{}).User(); name != "root (uid 0)" {
		t.Errorf("root is called %s", name)
	}
}
