package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"unsafe"
)

// Peer is the process that made a connection, as the kernel recorded it at the time of connecting (unix(7),
// SO_PEERCRED).
type Peer struct {
	PID      int32    // 0: in another PID namespace, or unknown
	UID, GID uint32   // effective user and group; meaningful only if Err is nil
	Groups   []uint32 // supplementary groups of the process (SO_PEERGROUPS); empty: no groups, or unknown
	Err      error    // reason for which the process is unknown and is not admitted; nil: the process is known
}

// User returns name and uid of the process's user, such as "root (uid 0)". If the uid has no name on this machine, it
// returns "uid 1234".
func (p Peer) User() string {
	id := strconv.FormatUint(uint64(p.UID), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username + " (uid " + id + ")"
	}
	return "uid " + id
}

// GroupID returns the id of a group that is given by name or by number. A number need not have a name. Errors: there is
// no group of that name, groups cannot be looked up, or the id is 4294967295, which no file can have.
func GroupID(group string) (uint32, error) {
	id := group
	if _, err := strconv.ParseUint(group, 10, 32); err != nil {
		g, err := user.LookupGroup(group)
		if err != nil {
			return 0, err
		}
		id = g.Gid
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || n == 1<<32-1 { // chown(2) reads this number as "no change"
		return 0, fmt.Errorf("group %q has no usable id", group)
	}
	return uint32(n), nil
}

// guarded accepts connections of permitted processes only.
type guarded struct {
	net.Listener
	to Access
}

// Accept implements net.Listener. It returns only connections of permitted processes, and closes all others. Errors are
// those of the listener.
func (g *guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := peerOf(c)
		if g.to.admits(p) {
			return c, nil
		}
		_ = c.Close() // before any data are exchanged
		if g.to.Refused != nil {
			g.to.Refused(p)
		}
	}
}

// admits reports whether a process may connect. Root has no special right, because root can become a permitted user.
func (a Access) admits(p Peer) bool {
	switch {
	case p.Err != nil:
		return false
	case p.UID == uint32(os.Geteuid()):
		return true
	}
	return a.Group != nil && (p.GID == *a.Group || slices.Contains(p.Groups, *a.Group))
}

// peerOf asks the kernel for the process that connected.
func peerOf(c net.Conn) (p Peer) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return Peer{Err: fmt.Errorf("%T is no Unix socket", c)}
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return Peer{Err: err}
	}
	err = raw.Control(func(fd uintptr) {
		cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if err != nil {
			p.Err = fmt.Errorf("SO_PEERCRED: %w", err)
			return
		}
		p.PID, p.UID, p.GID = cred.Pid, cred.Uid, cred.Gid
		p.Groups = groupsOf(fd)
	})
	if err != nil {
		p.Err = err
	}
	return p
}

// soPeerGroups is SO_PEERGROUPS of asm-generic/socket.h (Linux 4.13), which package syscall lacks.
const soPeerGroups = 59

// groupsOf returns the peer's supplementary groups, or nil if the kernel does not report them. A process has at most
// 65536 supplementary groups (NGROUPS_MAX).
func groupsOf(fd uintptr) []uint32 {
	const bytes = 4 // size of a gid_t
	for size := uint32(64 * bytes); size <= 65536*bytes; {
		buf, length := make([]byte, size), size
		_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.SOL_SOCKET, soPeerGroups,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
		switch {
		case errors.Is(errno, syscall.ERANGE) && length > size: // length is the required size
			size = length
			continue
		case errno != 0:
			return nil
		}
		groups := make([]uint32, 0, length/bytes)
		for rest := buf[:length]; len(rest) >= bytes; rest = rest[bytes:] {
			groups = append(groups, binary.NativeEndian.Uint32(rest))
		}
		return groups
	}
	return nil
}
