package netns

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the cluster. They are in its own namespaces, so concurrent clusters use the same ones.
const (
	PodCIDR      = "10.244.0.0/16"
	PodCIDR6     = "fd00:244::/64"
	ServiceCIDR  = "10.96.0.0/16"
	ServiceCIDR6 = "fd00:96::/112"
	Outer        = "192.168.244.1" // address of the control plane
	// BalancerCIDR and BalancerCIDR6 have the addresses of Services of type LoadBalancer.
	BalancerCIDR  = "192.168.245.0/24"
	BalancerCIDR6 = "fd00:245::/112"
)

// Fabric is the outer namespace: a bridge that connects all nodes, and routes to their Pods.
type Fabric struct{ outer *Space }

// NewFabric makes this process's namespace the outer one. The error names the link, address or setting that the kernel
// refused.
func NewFabric() (*Fabric, error) {
	outer, err := Current()
	if err != nil {
		return nil, err
	}
	return &Fabric{outer}, outer.Do(func() error {
		if err := up("lo"); err != nil {
			return err
		}
		if err := forward(); err != nil {
			return err
		}
		return bridge("nodes", Outer+"/24", "fd00:192::1/64")
	})
}

// Outer returns the outer namespace.
func (f *Fabric) Outer() *Space { return f.outer }

// Node is the namespace of one node.
type Node struct {
	*Space
	Address  netip.Addr     // of the node
	address6 string         // IPv6 address of the node
	CIDRs    []netip.Prefix // networks of its Pods
	mu       sync.Mutex
	used     map[int]bool // last bytes of Pods' addresses
	newest   int
}

// Node creates the namespace of a node; index (from 1 to 200) determines its addresses. The error names the namespace,
// link, address, route or setting that the kernel refused.
func (f *Fabric) Node(index int) (*Node, error) {
	space, err := New()
	if err != nil {
		return nil, err
	}
	n := &Node{Space: space, address6: fmt.Sprintf("fd00:192::%d", 10+index), used: map[int]bool{}, newest: 1,
		Address: netip.AddrFrom4([4]byte{192, 168, 244, byte(10 + index)}), CIDRs: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", index)), netip.MustParsePrefix(fmt.Sprintf("fd00:244::%x:0/112", index))}}
	if err := wire("node"+fmt.Sprint(index), "nodes", f.outer, space); err != nil {
		return nil, err
	}
	if err := f.outer.Do(func() error {
		return route(n.CIDRs[0].String(), n.Address.String(), n.CIDRs[1].String(), n.address6)
	}); err != nil {
		return nil, err
	}
	return n, space.Do(func() error {
		if err := address("eth0", n.Address.String()+"/24", n.address6+"/64"); err != nil {
			return err
		}
		if err := forward(); err != nil {
			return err
		}
		if err := bridge("pods", gateway(n.CIDRs[0])+"/24", gateway(n.CIDRs[1])+"/112"); err != nil {
			return err
		}
		return route("0.0.0.0/0", Outer, "::/0", "fd00:192::1")
	})
}

// Lead routes packets of the outer namespace for a range to a node, whose kube-proxy gives them to Pods. An error says
// what the kernel refused.
func (f *Fabric) Lead(to netip.Prefix, n *Node) error {
	by := n.Address.String()
	if to.Addr().Is6() {
		by = n.address6
	}
	return f.outer.Do(func() error { return route(to.String(), by) })
}

func gateway(p netip.Prefix) string { return p.Addr().Next().String() }

// Pod is the namespace of one Pod.
type Pod struct {
	*Space
	Addresses []netip.Addr // IPv4 and IPv6
	node      *Node
}

// Pod creates the namespace of a Pod on the node's bridge. The error reports that the node has no free address, or is
// one of those of Node.
func (n *Node) Pod() (*Pod, error) {
	last, err := n.take()
	if err != nil {
		return nil, err
	}
	space, err := New()
	if err != nil {
		n.give(last)
		return nil, err
	}
	p := &Pod{Space: space, node: n, Addresses: []netip.Addr{nth(n.CIDRs[0], last), nth(n.CIDRs[1], last)}}
	if err := wire(fmt.Sprintf("pod%d", last), "pods", n.Space, space); err != nil {
		p.Close()
		return nil, err
	}
	if err := space.Do(func() error {
		if err := address("eth0", p.Addresses[0].String()+"/24", p.Addresses[1].String()+"/112"); err != nil {
			return err
		}
		if err := sysctl("ipv4/ip_unprivileged_port_start", "0"); err != nil { // as container runtimes do
			return err
		}
		return route("0.0.0.0/0", gateway(n.CIDRs[0]), "::/0", gateway(n.CIDRs[1]))
	}); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close removes the Pod from the bridge and frees its address.
func (p *Pod) Close() {
	last := int(p.Addresses[0].As4()[3])
	_ = p.node.Do(func() error { // the link would also disappear with the namespace, but later
		link, err := netlink.LinkByName(fmt.Sprintf("pod%d", last))
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	p.Space.Close()
	p.node.give(last)
}

// take returns the next free address after the newest one, so that an address is reused as late as possible.
func (n *Node) take() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range 253 {
		if n.newest = 2 + (n.newest+1-2)%253; !n.used[n.newest] {
			n.used[n.newest] = true
			return n.newest, nil
		}
	}
	return 0, fmt.Errorf("no free address in %s", n.CIDRs[0])
}

func (n *Node) give(last int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, last)
}

func nth(p netip.Prefix, last int) netip.Addr {
	bytes := p.Addr().AsSlice()
	bytes[len(bytes)-1] = byte(last)
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// wire connects a namespace to a bridge of another by a pair of links, whose inner end is eth0.
func wire(name, bridge string, outer, inner *Space) error {
	return outer.Do(func() error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: name, MasterIndex: master.Attrs().Index})
		pair.PeerName, pair.PeerNamespace = "eth0", netlink.NsFd(inner.handle)
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("veth %s: %w", name, err)
		}
		if err := netlink.LinkSetHairpin(pair, true); err != nil { // for a Pod that calls its own Service
			return err
		}
		return up(name)
	})
}

func bridge(name string, cidrs ...string) error {
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	return address(name, cidrs...)
}

// address enables a link, with addresses that need no duplicate detection.
func address(name string, cidrs ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, cidr := range cidrs {
		a, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return fmt.Errorf("address %s of %s: %w", cidr, name, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// route adds routes: pairs of a destination and its gateway.
func route(pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		_, to, err := net.ParseCIDR(pair[0])
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(pair[1])}); err != nil {
			return fmt.Errorf("route to %s by %s: %w", pair[0], pair[1], err)
		}
	}
	return nil
}
