// Package loopback reserves addresses for processes that receive their address as an argument. A port that was obtained
// from the kernel (port 0) and released again may go to the next outgoing connection. This package therefore chooses
// ports outside the kernel's range for outgoing connections, if there are at least 1000 such ports. No outgoing
// connection occupies such a port. A client that dials such a port before the server listens is refused, and cannot
// connect to itself.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
)

const (
	lowest  = 16000 // above the default ports of Envoy, Istio and etcd
	highest = 1<<16 - 1
	few     = 1000 // smallest acceptable number of candidate ports, and number of attempts of Net
)

// Address returns host:port on 127.0.0.1, reserved as by On. Errors are those of On.
func Address() (string, error) { return On("127.0.0.1") }

// On returns host:port at an IP address of this machine, with a TCP port at which no process listens. The port is
// reserved for this process, at any address, until the process ends: other callers of this package in the same network
// namespace get other ports. Errors: ip is not an IP address, ip is not an address of this machine, or no port is free.
func On(ip string) (string, error) {
	if net.ParseIP(ip) == nil {
		return "", fmt.Errorf("loopback: %q is no IP address", ip)
	}
	return ours.take(ip)
}

// failer is the part of a test that For needs.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// For returns the result of Address for a test. It ends the test on an error.
func For(t failer) string {
	t.Helper()
	address, err := Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// PortFor returns the port of an Address for a test. It ends the test on an error.
func PortFor(t failer) int {
	t.Helper()
	_, text, err := net.SplitHostPort(For(t))
	port, err2 := strconv.Atoi(text)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return port
}

// Net returns the first three numbers of 254 loopback addresses of this machine, such as "127.1.2", for servers with
// fixed ports. The three numbers are reserved for this process until it ends. A server on all addresses (0.0.0.0)
// occupies its port at these addresses too. An error means that 1000 random choices could not be reserved, and wraps
// the error of the last one.
func Net() (string, error) {
	var err error
	for range few {
		var m net.PacketConn
		prefix := fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), 1+rand.IntN(254))
		if m, err = named(prefix); err == nil {
			ours.mu.Lock()
			defer ours.mu.Unlock()
			ours.marks = append(ours.marks, m)
			return prefix, nil
		}
	}
	return "", fmt.Errorf("loopback: %w", err)
}

// NetFor returns the result of Net for a test. It ends the test on an error.
func NetFor(t failer) string {
	t.Helper()
	prefix, err := Net()
	if err != nil {
		t.Fatal(err)
	}
	return prefix
}

// reserved holds the candidate ports, and the reservations of this process.
type reserved struct {
	mu    sync.Mutex
	ports []int // candidates; nil before the first call of take
	next  int
	marks []net.PacketConn // never closed by this process: the kernel closes them when it ends
}

var ours reserved

// take reserves the next free port at an IP address, and returns the address with the port. Errors: every candidate is
// in use, or a candidate failed for a reason that affects every port, such as an address of another machine.
func (r *reserved) take(ip string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ports == nil {
		r.ports = below(ephemeral())
		r.next = rand.IntN(len(r.ports)) // reduces collisions between processes
	}
	for range r.ports {
		port := r.ports[r.next]
		r.next = (r.next + 1) % len(r.ports)
		address := net.JoinHostPort(ip, strconv.Itoa(port))
		m, err := mark(port)
		if err == nil {
			if err = try(address); err == nil {
				r.marks = append(r.marks, m)
				return address, nil
			}
			_ = m.Close() // the error of closing a mark has no effect
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", fmt.Errorf("loopback: %w", err)
		}
	}
	return "", fmt.Errorf("loopback: none of %d ports is free at %s", len(r.ports), ip)
}

func try(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// mark reserves a port against other users of this package.
func mark(port int) (net.PacketConn, error) { return named(strconv.Itoa(port)) }

// named reserves a name for this process. The error is syscall.EADDRINUSE (errors.Is) if the name is already reserved.
// The name is an abstract socket name, which belongs to the network namespace, as ports do. An abstract socket name is
// visible to every user, independent of folders for temporary files, and ends with the process (unix(7)).
func named(what string) (net.PacketConn, error) {
	return net.ListenPacket("unixgram", "@navarch-loopback-"+what)
}

// ephemeral returns the first and the last port of the kernel's range for outgoing connections (ip(7)).
func ephemeral() (first, last int) {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(raw), &first, &last)
	}
	if err != nil {
		return 32768, 60999 // the kernel's default
	}
	return first, last
}

// below lists the ports from 16000 to 65535 that no outgoing connection gets: the ports below the range, and also the
// ports above the range if the ports below are fewer than 1000. If both together are fewer than 1000, below lists all
// ports from 16000 on. An outgoing connection may then occupy a listed port, which a test cannot prevent.
func below(first, last int) []int {
	ports := between(lowest, first-1)
	if len(ports) < few {
		ports = append(ports, between(max(last+1, lowest), highest)...)
	}
	if len(ports) < few {
		ports = between(lowest, highest)
	}
	return ports
}

func between(from, to int) []int {
	var all []int
	for p := from; p <= to; p++ {
		all = append(all, p)
	}
	return all
}
