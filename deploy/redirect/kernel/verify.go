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

// patience is how long one connection of Verify may take. It never leaves the machine where redirection is there.
const patience = 5 * time.Second

// ErrAbsent is why Verify fails where traffic is not redirected.
var ErrAbsent = errors.New("traffic of this Pod is not redirected to its proxy")

// Verify proves with connections of its own that traffic is redirected in the network namespace of this thread, for each address family that the
// namespace has an address of. It needs no rights. What it can prove depends on who it runs as: as the user or a group of the proxy that inbound
// traffic is redirected, as anybody else that outbound traffic is. All rules come in one transaction, so where one direction is
// redirected, so is the other. It takes the proxy's ports for a moment: an error is one that is in use, too, because what happens to
// traffic is not known then. ErrAbsent (wrapped): traffic arrives elsewhere, or nowhere.
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

// addresses are those of the namespace beyond loopback, the first of each family.
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

// documentation are addresses that nobody has (RFC 5737, RFC 3849).
var documentation = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}

// target is an address of the family of `own` to which outbound traffic of a group is redirected; not valid: none is known.
func target(c redirect.Config, own netip.Addr, gid uint32) netip.Addr {
	if len(c.OwnerGroups) > 0 && !slices.Contains(c.OwnerGroups, gid) || slices.Contains(c.OwnerGroupsExclude, gid) || slices.Contains(c.OutboundExcludePorts, ProbePort) {
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

// probe connects to an address, and looks whether the connection arrives at a port of this machine instead.
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
		return nil // nothing of this family can leave the Pod
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
		if from == conn.LocalAddr().String() { // others may connect, too
			return nil
		}
	}
}
