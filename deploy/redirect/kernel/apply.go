// Package kernel applies the rules of deploy/redirect to the network namespace of the calling thread, and verifies that
// traffic is redirected.
//
// Owns: the nftables table "navarch"; in mode TPROXY one policy rule and one route table of each address family, and
// the loopback address ::6. Reads: nothing else. Never: changes other tables, rules or addresses; runs a program.
//
// If that thread is in another namespace than the process, the caller must lock its goroutine to the thread.
package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"navarch.io/navarch/deploy/redirect"
)

// Apply replaces the rules that Apply made before by a set. Repeated calls change nothing. The rules of both directions
// and both address families are applied in one transaction, after the policy routes and addresses that they need. After
// an error the previous rules stay. The error is the kernel's, for example that the capability NET_ADMIN is missing.
func Apply(s redirect.Set) error {
	if s.Len() > redirect.MaxRules {
		return fmt.Errorf("%d rules; at most %d", s.Len(), redirect.MaxRules)
	}
	families := []int{netlink.FAMILY_V4}
	if hasIPv6() {
		families = append(families, netlink.FAMILY_V6)
		if err := addInboundSource(); err != nil {
			return err
		}
	}
	if s.Transparent.Mark != 0 {
		for _, family := range families {
			if err := deliverLocally(s.Transparent, family); err != nil {
				return err
			}
		}
	}
	if err := replaceTable(s); err != nil {
		return fmt.Errorf("rules of nftables: %w", err)
	}
	return nil
}

// Clean removes everything that Apply made with a configuration; absent parts are no error. Errors are the kernel's,
// for example that NET_ADMIN is missing. If the table cannot be deleted, nothing else is removed.
func Clean(c redirect.Config) error {
	if err := deleteTable(); err != nil {
		return fmt.Errorf("rules of nftables: %w", err)
	}
	t := redirect.Transparent{Mark: c.Mark, Table: c.RouteTable}
	var errs []error
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		errs = append(errs, ignore(netlink.RuleDel(ruleOf(t, family)), unix.ENOENT, unix.EAFNOSUPPORT),
			ignore(netlink.RouteDel(routeOf(t, family, loopbackIndex)), unix.ESRCH, unix.EAFNOSUPPORT, unix.ENETDOWN))
	}
	return errors.Join(errs...)
}

// loopbackIndex is the index of lo in every namespace: the kernel creates lo first (net/core/net_namespace.c).
const loopbackIndex = 1

// hasIPv6 reports whether the kernel has IPv6, and this namespace has not disabled it.
func hasIPv6() bool {
	if _, err := os.Stat("/proc/thread-self/net/if_inet6"); err != nil {
		return false
	}
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
	return err != nil || len(off) == 0 || off[0] != '1'
}

// addInboundSource adds the loopback address from which Envoy connects to addresses without a listener. IPv4's
// 127.0.0.6 always exists.
func addInboundSource() error {
	lo, err := netlink.LinkByIndex(loopbackIndex)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("::6"), Mask: net.CIDRMask(128, 128)}}
	if err := ignore(netlink.AddrAdd(lo, address), unix.EEXIST); err != nil {
		return fmt.Errorf("address ::6 of loopback: %w", err)
	}
	return nil
}

// deliverLocally makes the kernel deliver packets with a mark to sockets of this namespace, whatever their destination.
func deliverLocally(t redirect.Transparent, family int) error {
	if err := ignore(netlink.RuleAdd(ruleOf(t, family)), unix.EEXIST); err != nil {
		return fmt.Errorf("policy rule for mark %d: %w", t.Mark, err)
	}
	if err := netlink.RouteReplace(routeOf(t, family, loopbackIndex)); err != nil {
		return fmt.Errorf("route table %d: %w", t.Table, err)
	}
	return nil
}

// ruleOf and routeOf have fixed priorities, so that adding them again yields a known error.
func ruleOf(t redirect.Transparent, family int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Mark, r.Table, r.Priority = family, t.Mark, int(t.Table), 13370
	return r
}

func routeOf(t redirect.Transparent, family, link int) *netlink.Route {
	dst := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if family == netlink.FAMILY_V6 {
		dst = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{Family: family, LinkIndex: link, Table: int(t.Table), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Dst: dst}
}

// ignore returns nil for the listed errors, which mean that there is nothing to do.
func ignore(err error, those ...syscall.Errno) error {
	for _, e := range those {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// In calls f on a thread of its own in the network namespace of a path (/proc/PID/ns/net, or a bind mount of such a
// file). The error reports that the namespace cannot be entered, or is that of f.
func In(path string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // stays locked: the thread ends with the goroutine
		space, err := netns.GetFromPath(path)
		if err == nil {
			defer space.Close()
			err = netns.Set(space)
		}
		if err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", path, err)
			return
		}
		done <- f()
	}()
	return <-done
}
