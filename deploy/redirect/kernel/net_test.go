package kernel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"navarch.io/navarch/deploy/redirect"
	"navarch.io/navarch/deploy/testcluster/netns"
)

// The network of these tests: a Pod and another host, each in its own namespace, and a link between them.
var (
	podIP   = []netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("fd09::2")}
	otherIP = []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")}
)

const (
	proxyUser = redirect.DefaultProxyUID
	appUser   = 1000
	appPort   = 8080
)

type network struct{ pod, other *netns.Space }

// newNetwork skips where this process may not make namespaces.
func newNetwork(t *testing.T) network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("real redirection needs root")
	}
	pod, err := netns.New()
	if err != nil {
		t.Skipf("real redirection needs the right to make network namespaces: %v", err)
	}
	other, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pod.Close(); other.Close() })
	var there vishnetns.NsHandle
	must(t, other.Do(func() (err error) { there, err = vishnetns.Get(); return err }))
	defer there.Close()
	must(t, pod.Do(func() error {
		wire := netlink.NewLinkAttrs()
		wire.Name = "eth0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: wire, PeerName: "eth0", PeerNamespace: netlink.NsFd(there)})
	}))
	must(t, pod.Do(func() error { return address(podIP, otherIP) }))
	must(t, other.Do(func() error { return address(otherIP, nil) }))
	return network{pod, other}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// address sets the addresses of eth0 of this namespace, and the default routes.
func address(own, gateway []netip.Addr) error {
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_dad", []byte("0"), 0o644); err != nil {
		return err
	}
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, a := range own {
		bits := 24
		if a.Is6() {
			bits = 64
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}, Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for _, a := range gateway {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: a.AsSlice()}); err != nil {
			return fmt.Errorf("default route by %s: %w", a, err)
		}
	}
	return nil
}

// as runs f in a namespace as a user and a group: sockets that it makes are theirs to the kernel (the thread's fsuid,
// which ends with it).
func as(s *netns.Space, uid, gid int, f func() error) error {
	return s.Do(func() error {
		if _, err := unix.SetfsgidRetGid(gid); err != nil {
			return err
		}
		if _, err := unix.SetfsuidRetUid(uid); err != nil {
			return err
		}
		return f()
	})
}

// apply makes the rules of a configuration those of the Pod.
func (n network) apply(t *testing.T, c redirect.Config) {
	t.Helper()
	must(t, c.Validate())
	must(t, n.pod.Do(func() error { return Apply(c.Rules()) }))
}

// serve makes a namespace listen at ports, TCP and UDP of both families; clients receive "NAME PORT
// ORIGINAL-DESTINATION PEER". Envoy and the agent run as the proxy's user; the agent listens for UDP on loopback,
// because its answers must come from there.
func serve(t *testing.T, s *netns.Space, name string, ports ...int) {
	t.Helper()
	uid, hosts := 0, []string{""}
	if name == "envoy" || name == "agent" {
		uid = proxyUser
	}
	if name == "agent" {
		hosts = []string{"127.0.0.1", "[::1]"}
	}
	for _, port := range ports {
		var l net.Listener
		var packets []net.PacketConn
		must(t, as(s, uid, uid, func() (err error) {
			if l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err != nil {
				return err
			}
			for _, host := range hosts {
				u, err := net.ListenPacket("udp", fmt.Sprintf("%s:%d", host, port))
				if err != nil {
					return err
				}
				packets = append(packets, u)
			}
			return nil
		}))
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprintf(c, "%s %d %s %s", name, port, originalDestination(c.(*net.TCPConn)), host(c.RemoteAddr()))
				c.Close()
			}
		}()
		for _, u := range packets {
			t.Cleanup(func() { u.Close() })
			go func() {
				b := make([]byte, 64)
				for {
					_, from, err := u.ReadFrom(b)
					if err != nil {
						return
					}
					fmt.Fprintf(packetTo{u, from}, "%s %d", name, port)
				}
			}()
		}
	}
}

type packetTo struct {
	conn net.PacketConn
	to   net.Addr
}

func (p packetTo) Write(b []byte) (int, error) { return p.conn.WriteTo(b, p.to) }

func host(a net.Addr) string {
	at, _ := netip.ParseAddrPort(a.String())
	return at.Addr().Unmap().String()
}

// originalDestination returns the destination of a connection before it was redirected.
func originalDestination(c *net.TCPConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return err.Error()
	}
	var out string
	_ = raw.Control(func(fd uintptr) {
		var b [28]byte
		size := uint32(len(b))
		local, _ := netip.ParseAddrPort(c.LocalAddr().String())
		level := uintptr(unix.SOL_IP)
		if !local.Addr().Unmap().Is4() {
			level = unix.SOL_IPV6
		}
		const soOriginalDst = 80 // of both families
		if _, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, level, soOriginalDst, uintptr(unsafe.Pointer(&b)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
			out = netip.AddrPortFrom(local.Addr().Unmap(), local.Port()).String()
			return
		}
		port := uint16(b[2])<<8 | uint16(b[3])
		if level == unix.SOL_IP {
			out = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port).String()
		} else {
			out = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), port).String()
		}
	})
	return out
}

// caller is a client, with the address from which it connects.
type caller struct {
	space    *netns.Space
	uid, gid int
	from     netip.Addr // not valid: any
}

// call connects, and returns the server's text; an error of the connection is "refused" or "silence".
func (c caller) call(protocol string, to netip.Addr, port int) string {
	var said string
	err := as(c.space, c.uid, c.gid, func() error {
		d := net.Dialer{Timeout: time.Second}
		if c.from.IsValid() && protocol == "tcp" {
			d.LocalAddr = &net.TCPAddr{IP: c.from.AsSlice()}
		}
		conn, err := d.Dial(protocol, netip.AddrPortFrom(to, uint16(port)).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if protocol == "udp" {
			if _, err := conn.Write([]byte("?")); err != nil {
				return err
			}
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			b := make([]byte, 64)
			n, err := conn.Read(b)
			said = string(b[:n])
			return err
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		b, err := io.ReadAll(conn)
		said = string(b)
		return err
	})
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "silence"
	case err != nil:
		return err.Error()
	}
	return said
}

// listing returns nft's listing of a namespace's rules; it skips the test without nft.
func listing(t *testing.T, s *netns.Space) string {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft on this machine to compare with")
	}
	var out []byte
	must(t, s.Do(func() (err error) {
		out, err = exec.Command("nft", "list", "ruleset").CombinedOutput()
		return err
	}))
	return string(out)
}

// load makes nft read rules.
func load(t *testing.T, s *netns.Space, text string) {
	t.Helper()
	must(t, s.Do(func() error {
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader(text)
		if out, err := nft.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}))
}

// hammer calls f until stop is called, which returns f's first error.
func hammer(f func() error) (stop func() error) {
	end, once := make(chan struct{}), sync.Once{}
	done := make(chan error, 1)
	go func() {
		var first error
		for {
			select {
			case <-end:
				done <- first
				return
			default:
			}
			if err := f(); err != nil && first == nil {
				first = err
			}
		}
	}()
	return func() error { once.Do(func() { close(end) }); return <-done }
}
