package netns

import (
	"fmt"
	"net/netip"
	"os/exec"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// linkName is the name of both ends of a link between two clusters.
const linkName = "link"

// linkEnds are the addresses of both ends, of both families.
var linkEnds = [2][2]string{{"192.168.247.1", "fd00:247::1"}, {"192.168.247.2", "fd00:247::2"}}

// OfProcess returns the namespace of a process. The error is that of the kernel.
func OfProcess(pid int) (*Space, error) {
	handle, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	return &Space{handle}, nil
}

// Link connects the outer namespaces of two clusters. From each the other's ranges are reached, and nothing else of the
// other: both clusters use the same addresses, so packets leave under the address of their end of the link. The error
// names the link, address, route or rule that the kernel refused.
func Link(spaces [2]*Space, ranges [2][]netip.Prefix) error {
	if err := spaces[0].Do(func() error {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: linkName})
		pair.PeerName, pair.PeerNamespace = linkName, netlink.NsFd(spaces[1].handle)
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("veth %s: %w", linkName, err)
		}
		return nil
	}); err != nil {
		return err
	}
	for i, space := range spaces {
		if err := space.Do(func() error { return linkEnd(linkEnds[i], linkEnds[1-i], ranges[1-i]) }); err != nil {
			return err
		}
	}
	return nil
}

// linkEnd configures one end of a link in the namespace of this thread.
func linkEnd(own, other [2]string, ranges []netip.Prefix) error {
	if err := address(linkName, own[0]+"/30", own[1]+"/126"); err != nil {
		return err
	}
	for _, r := range ranges {
		by := other[0]
		if r.Addr().Is6() {
			by = other[1]
		}
		if err := route(r.String(), by); err != nil {
			return err
		}
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, rule := range [][]string{
			{"-t", "nat", "-A", "POSTROUTING", "-o", linkName, "-j", "MASQUERADE"},
			{"-A", "INPUT", "-i", linkName, "-p", "tcp", "--syn", "-j", "DROP"}, // the API server listens at all addresses
		} {
			if out, err := exec.Command(program, append([]string{"-w"}, rule...)...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s %v: %w %s", program, rule, err, out)
			}
		}
	}
	return nil
}
