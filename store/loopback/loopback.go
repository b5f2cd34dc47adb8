// Package loopback reserves addresses for processes that are started with them. An address that was obtained from the kernel (port 0) and
// released again may be taken by anybody: the next outgoing connection may get its port. The ports here are below the kernel's range for
// outgoing connections, so no connection gets one of them, nor can a connection to such a port, made before its server listens, be connected
// to itself.
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
	lowest  = 16000 // above what Envoy, Istio and etcd listen on by default
	highest = 1<<16 - 1
	few     = 1000 // ports that are enough to choose from
)

// Address is a host and port of loopback, see On. Errors are those of On.
func Address() (string, error) { return On("127.0.0.1") }

// On is a host and port at an IP address of this machine, where nobody listens. The port stays this process's, whatever the
// address, until the process ends, however it ends; others that ask this package, in the same network namespace, are
// not given it. The error says that there is none, or that the address is not of this machine.
func On(ip string) (string, error) {
	if net.ParseIP(ip) == nil {
		return "", fmt.Errorf("loopback: %q is no IP address", ip)
	}
	return ours.take(ip)
}

// failer is what For needs of a test.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// For is Address for a test, which ends where there is none.
func For(t failer) string {
	t.Helper()
	address, err := Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// PortFor is the port alone of an Address for a test.
func PortFor(t failer) int {
	t.Helper()
	_, text, err := net.SplitHostPort(For(t))
	port, err2 := strconv.Atoi(text)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return port
}

// Net is the first three numbers of 254 addresses of this machine, "127.1.2", for what listens at ports that are given. It
// stays this process's as a port does, see On; who listens at all addresses (0.0.0.0) is in the way all the same. An error: all are taken.
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

// NetFor is Net for a test.
func NetFor(t failer) string {
	t.Helper()
	prefix, err := Net()
	if err != nil {
		t.Fatal(err)
	}
	return prefix
}

// reserved are the ports of this process.
type reserved struct {
	mu    sync.Mutex
	ports []int // to choose from
	next  int
	marks []net.PacketConn // never closed: the kernel does it when the process ends
}

var ours reserved

// take is the next port that no process has. What hinders beside that would hinder every port.
func (r *reserved) take(ip string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ports == nil {
		r.ports = below(ephemeral())
		r.next = rand.IntN(len(r.ports)) // so that processes seldom meet
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
			_ = m.Close() // a mark has nothing to lose
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

// mark reserves a port against all who use this package.
func mark(port int) (net.PacketConn, error) { return named(strconv.Itoa(port)) }

// named is a mark: it is taken where another process has it, or this one. A name of the abstract kind belongs to the
// network namespace, as ports do, is seen by every user whatever his folder of temporary files, and is gone with the
// process (unix(7)).
func named(what string) (net.PacketConn, error) {
	return net.ListenPacket("unixgram", "@navarch-loopback-"+what)
}

// ephemeral is the range from which the kernel gives ports to connections, the lowest and the highest (ip(7)).
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

// below lists the ports that no connection is given: below the range for connections, above it where there are too few,
// and all of them where the range leaves none. There a port can still be taken by a connection, which a test cannot prevent.
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
