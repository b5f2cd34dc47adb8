package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"navarch.io/navarch/deploy/redirect"
)

// ProbePort is the destination port of Verify's connections (istio-iptables: constants.DefaultIptablesProbePort).
const ProbePort = 15002

// patience is the time limit of one connection of Verify. With redirection it never leaves the machine.
const patience = 5 * time.Second

// ErrAbsent is the error of Verify for traffic that is not redirected.
var ErrAbsent = errors.New("traffic of this Pod is not redirected to its proxy")

// Verify tests with its own connections whether traffic is redirected in the network namespace of this thread, for each
// address family with an address. It needs no capability. As the user or a group of the proxy it tests inbound traffic,
// as any other user outbound traffic. All rules are applied in one transaction, so one direction implies the other. It
// listens on the proxy's ports for a moment, and a port in use is an error, because the result is unknown then.
// ErrAbsent (wrapped) means that traffic arrives at another port, or nowhere.
func Verify(c redirect.Config, uid, gid uint32) error {
	own, err := addresses()
	if err != nil {
		return err
	}
	if len(own) == 0 {
		return fmt.Errorf("%w: the namespace has no address but loopback", ErrAbsent)
	}
	for _, a := range own {
		to, port := a, c.InboundPort
		if !isProxy(c, uid, gid) {
			if to, port = target(c, a, gid), c.OutboundPort; !to.IsValid() {
				continue // nothing of this family is redirected
			}
		}
		if err := probe(to, port); err != nil {
			return err
		}
	}
	return nil
}

func isProxy(c redirect.Config, uid, gid uint32) bool {
	return slices.Contains(c.ProxyUIDs, uid) || slices.Contains(c.ProxyGIDs, gid)
}

// addresses returns the namespace's first address of each family beyond loopback.
func addresses() (out []netip.Addr, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		all, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			ip, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			addr := ip.Addr().Unmap()
			same := func(o netip.Addr) bool { return o.Is4() == addr.Is4() }
			if addr.IsGlobalUnicast() && !slices.ContainsFunc(out, same) {
				out = append(out, addr)
			}
		}
	}
	return out, nil
}

// documentation are addresses that no host has (RFC 5737, RFC 3849).
var documentation = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1"),
	netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}

// target returns an address of the family of `own` to which a group's outbound traffic is redirected; not valid: none
// is known.
func target(c redirect.Config, own netip.Addr, gid uint32) netip.Addr {
	if len(c.OwnerGroups) > 0 && !slices.Contains(c.OwnerGroups, gid) ||
		slices.Contains(c.OwnerGroupsExclude, gid) || slices.Contains(c.OutboundExcludePorts, ProbePort) {
		return netip.Addr{}
	}
	candidates := documentation
	if !c.Outbound.All {
		candidates = nil
		for _, p := range c.Outbound.List {
			candidates = append(candidates, p.Addr(), p.Addr().Next())
		}
	}
	for _, a := range candidates {
		excluded := slices.ContainsFunc(c.OutboundExclude, func(p netip.Prefix) bool { return p.Contains(a) })
		included := c.Outbound.All || slices.ContainsFunc(c.Outbound.List, func(p netip.Prefix) bool { return p.Contains(a) })
		if included && !excluded && a.Is4() == own.Is4() && a != own && !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast() {
			return a
		}
	}
	return netip.Addr{}
}

// probe connects to an address, and checks that the connection arrives at a port of this machine instead.
func probe(to netip.Addr, port uint16) error {
	network := "tcp4"
	if to.Is6() {
		network = "tcp6"
	}
	listener, err := net.Listen(network, ":"+strconv.Itoa(int(port)))
	if err != nil {
		return fmt.Errorf("cannot take the proxy's port for a moment: %w", err)
	}
	defer listener.Close()
	at := netip.AddrPortFrom(to, ProbePort)
	conn, err := net.DialTimeout(network, at.String(), patience)
	if errors.Is(err, syscall.ENETUNREACH) {
		return nil // traffic of this family cannot leave the Pod
	}
	if err != nil {
		return fmt.Errorf("%w: a connection to %s does not arrive at port %d: %w", ErrAbsent, at, port, err)
	}
	defer conn.Close()
	if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	for {
		accepted, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("%w: a connection to %s does not arrive at port %d, but elsewhere", ErrAbsent, at, port)
		}
		from := accepted.RemoteAddr().String()
		accepted.Close()
		if from == conn.LocalAddr().String() { // other clients may connect, too
			return nil
		}
	}
}
