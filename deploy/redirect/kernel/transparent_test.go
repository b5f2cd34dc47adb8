package kernel

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"navarch.io/navarch/deploy/redirect"
)

func ask(conn *net.UDPConn) (string, error) {
	if _, err := conn.Write([]byte("?")); err != nil {
		return "", err
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	b := make([]byte, 64)
	k, err := conn.Read(b)
	if err != nil && os.IsTimeout(err) {
		return "silence", nil
	}
	return string(b[:k]), err
}

// dropRights drops all capabilities of this thread.
func dropRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// transparent makes sockets for any address, with a mark: what Envoy has in mode TPROXY.
func transparent(mark int) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) (err error) {
		set := func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1); err == nil && network == "tcp6" {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
			}
			if err == nil && mark != 0 {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark)
			}
		}
		if e := c.Control(set); e != nil {
			return e
		}
		return err
	}
}

// In mode TPROXY the application sees the client's address, in both address families: the connection reaches Envoy
// unchanged, and Envoy connects from the client's address, with the mark (filter original_src).
func TestTransparent(t *testing.T) {
	n := newNetwork(t)
	serve(t, n.pod, "app", appPort, 15021)
	serve(t, n.pod, "envoy", 15001)
	serve(t, n.other, "other", appPort)
	c := all()
	c.Mode = redirect.TProxy
	n.apply(t, c)
	n.apply(t, c)
	app, other := caller{n.pod, appUser, appUser, netip.Addr{}}, caller{n.other, 0, 0, netip.Addr{}}
	for i := range podIP {
		if got := other.call("tcp", podIP[i], appPort); got != "silence" && got != "refused" {
			t.Errorf("while Envoy is away: %q", got)
		}
	}
	for i, pod := range podIP {
		passThrough(t, n, []string{"tcp4", "tcp6"}[i])
		expect(t, []expectation{
			{"inbound", other, "tcp", pod, appPort, fmt.Sprintf("app 8080 %s %s", netip.AddrPortFrom(pod, appPort), otherIP[i])},
			{"inbound, excluded", other, "tcp", pod, 15021, fmt.Sprintf("app 15021 %s %s", netip.AddrPortFrom(pod, 15021), otherIP[i])},
			{"outbound", app, "tcp", otherIP[i], appPort, fmt.Sprintf("envoy 15001 %s %s", netip.AddrPortFrom(otherIP[i], appPort), pod)},
			{"the application to itself", app, "tcp", pod, appPort, fmt.Sprintf("app 8080 %s %s", netip.AddrPortFrom(pod, appPort), pod)},
		})
	}
	must(t, n.pod.Do(func() error { return Clean(c) }))
}

// passThrough acts as an Envoy in mode TPROXY: it forwards connections at 15006 to their original destination, from
// their source address. It accepts only a few connections, because its own might return to it.
func passThrough(t *testing.T, n network, network string) {
	t.Helper()
	var l net.Listener
	must(t, as(n.pod, proxyUser, proxyUser, func() (err error) {
		config := net.ListenConfig{Control: transparent(0)}
		l, err = config.Listen(context.Background(), network, ":15006")
		return err
	}))
	t.Cleanup(func() { l.Close() })
	go func() {
		for range 16 {
			down, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer down.Close()
				err := as(n.pod, proxyUser, proxyUser, func() error {
					from, err := netip.ParseAddrPort(down.RemoteAddr().String())
					if err != nil {
						return err
					}
					d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: from.Addr().AsSlice()}, Control: transparent(redirect.DefaultMark)}
					up, err := d.Dial(network, down.LocalAddr().String())
					if err != nil {
						return err
					}
					defer up.Close()
					_, err = io.Copy(down, up)
					return err
				})
				if err != nil {
					fmt.Fprint(down, err)
				}
			}()
		}
	}()
}
