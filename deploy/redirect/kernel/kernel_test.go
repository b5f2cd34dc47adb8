package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/redirect"
)

// all returns the redirection of a stock Pod.
func all() redirect.Config {
	c := redirect.Default()
	c.Inbound, c.Outbound, c.InboundExclude = redirect.Ports{All: true}, redirect.Prefixes{All: true}, []uint16{15020, 15021, 15090}
	return c
}

// The kernel gets the same rules that a dry run prints: nft lists both alike.
func TestKernelIsGivenWhatIsPrinted(t *testing.T) {
	ours, theirs := newNetwork(t), newNetwork(t)
	files, err := filepath.Glob("../testdata/*.nft")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for name, c := range configurations() {
		ours.apply(t, c)
		load(t, theirs.pod, c.Rules().String())
		if got, want := listing(t, ours.pod), listing(t, theirs.pod); got != want {
			t.Errorf("%s: the kernel has\n%s\nand of the printed rules\n%s", name, got, want)
		}
	}
}

func configurations() map[string]redirect.Config {
	all, out := all(), map[string]redirect.Config{}
	out["all"] = all
	lists := all
	lists.Inbound, lists.InboundExclude = redirect.Ports{List: []uint16{80}}, nil
	lists.Outbound = redirect.Prefixes{List: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/9")}}
	lists.OutboundExclude = []netip.Prefix{netip.MustParsePrefix("10.1.2.3/32")}
	lists.OutboundPorts, lists.OutboundExcludePorts = []uint16{9000}, []uint16{22}
	lists.ExcludeInterfaces, lists.VirtualInterfaces, lists.OwnerGroups = []string{"net1"}, []string{"vm0"}, []uint32{7, 8}
	out["lists"] = lists
	dns := all
	dns.DNSServers, dns.DropInvalid = otherIP, true
	out["dns"] = dns
	tproxy := dns
	tproxy.Mode = redirect.TProxy
	out["tproxy"] = tproxy
	return out
}

// expectation is one connection, and the server that must answer it.
type expectation struct {
	what     string
	who      caller
	protocol string
	to       netip.Addr
	port     int
	want     string
}

func expect(t *testing.T, all []expectation) {
	t.Helper()
	for _, e := range all {
		if got := e.who.call(e.protocol, e.to, e.port); got != e.want {
			t.Errorf("%s, %s to %s port %d: %q, want %q", e.what, e.protocol, e.to, e.port, got, e.want)
		}
	}
}

// Traffic reaches Envoy in both directions and both address families, with its original destination; excluded traffic
// passes, and Envoy's own traffic does not return to it.
func TestRedirect(t *testing.T) {
	n := newNetwork(t)
	serve(t, n.pod, "envoy", 15001, 15006)
	serve(t, n.pod, "app", appPort, 15008, 15021)
	serve(t, n.other, "other", appPort, 9999, 53)
	c := all()
	c.OutboundExcludePorts = []uint16{9999}
	c.OwnerGroupsExclude = []uint32{77}
	n.apply(t, c)
	app, envoy, other := caller{n.pod, appUser, appUser, netip.Addr{}}, caller{n.pod, proxyUser, proxyUser, netip.Addr{}}, caller{n.other, 0, 0, netip.Addr{}}
	for i, pod := range podIP {
		elsewhere, loopback, magic := otherIP[i], netip.MustParseAddr([]string{"127.0.0.1", "::1"}[i]), netip.MustParseAddr([]string{"127.0.0.6", "::6"}[i])
		at := func(a netip.Addr, port int) string { return netip.AddrPortFrom(a, uint16(port)).String() }
		group := envoy
		group.uid = 4321
		inbound := envoy
		inbound.from = magic
		expect(t, []expectation{
			{"inbound", other, "tcp", pod, appPort, "envoy 15006 " + at(pod, appPort) + " " + elsewhere.String()},
			{"inbound, to a port without a listener", other, "tcp", pod, 1234, "envoy 15006 " + at(pod, 1234) + " " + elsewhere.String()},
			{"inbound, excluded", other, "tcp", pod, 15021, "app 15021 " + at(pod, 15021) + " " + elsewhere.String()},
			{"inbound, of HBONE", other, "tcp", pod, 15008, "app 15008 " + at(pod, 15008) + " " + elsewhere.String()},
			{"outbound", app, "tcp", elsewhere, appPort, "envoy 15001 " + at(elsewhere, appPort) + " " + pod.String()},
			{"outbound, excluded port", app, "tcp", elsewhere, 9999, "other 9999 " + at(elsewhere, 9999) + " " + pod.String()},
			{"outbound, excluded group", caller{n.pod, appUser, 77, netip.Addr{}}, "tcp", elsewhere, appPort, "other 8080 " + at(elsewhere, appPort) + " " + pod.String()},
			{"outbound of Envoy", envoy, "tcp", elsewhere, appPort, "other 8080 " + at(elsewhere, appPort) + " " + pod.String()},
			{"outbound of Envoy's group", group, "tcp", elsewhere, appPort, "other 8080 " + at(elsewhere, appPort) + " " + pod.String()},
			{"Envoy to its own Pod", envoy, "tcp", pod, appPort, "envoy 15006 " + at(pod, appPort) + " " + pod.String()},
			{"Envoy's inbound side to the application", inbound, "tcp", pod, appPort, "app 8080 " + at(pod, appPort) + " " + magic.String()},
			{"Envoy to loopback", envoy, "tcp", loopback, appPort, "app 8080 " + at(loopback, appPort) + " " + loopback.String()},
			{"the application to itself", app, "tcp", pod, appPort, "app 8080 " + at(pod, appPort) + " " + pod.String()},
			{"the application to loopback", app, "tcp", loopback, appPort, "app 8080 " + at(loopback, appPort) + " " + loopback.String()},
			{"UDP", app, "udp", elsewhere, appPort, "other 8080"},
			{"DNS, not captured", app, "udp", elsewhere, 53, "other 53"},
		})
	}
}

// With lists of addresses and ports, exactly the listed traffic is redirected.
func TestRedirectLists(t *testing.T) {
	n := newNetwork(t)
	serve(t, n.pod, "envoy", 15001, 15006)
	serve(t, n.pod, "app", appPort, 80)
	serve(t, n.other, "other", appPort, 9000)
	c := all()
	c.Inbound, c.InboundExclude = redirect.Ports{List: []uint16{80}}, nil
	c.Outbound = redirect.Prefixes{List: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("fd07::/16")}}
	c.OutboundPorts = []uint16{9000}
	n.apply(t, c)
	app, other := caller{n.pod, appUser, appUser, netip.Addr{}}, caller{n.other, 0, 0, netip.Addr{}}
	for i, pod := range podIP {
		elsewhere, included := otherIP[i], []string{"172.16.1.1", "fd07::1"}[i]
		expect(t, []expectation{
			{"inbound, in the list", other, "tcp", pod, 80, fmt.Sprintf("envoy 15006 %s %s", netip.AddrPortFrom(pod, 80), elsewhere)},
			{"inbound, not in the list", other, "tcp", pod, appPort, fmt.Sprintf("app 8080 %s %s", netip.AddrPortFrom(pod, appPort), elsewhere)},
			{"outbound, in the list", app, "tcp", netip.MustParseAddr(included), 1, fmt.Sprintf("envoy 15001 %s %s", netip.AddrPortFrom(netip.MustParseAddr(included), 1), pod)},
			{"outbound, port in the list", app, "tcp", elsewhere, 9000, fmt.Sprintf("envoy 15001 %s %s", netip.AddrPortFrom(elsewhere, 9000), pod)},
			{"outbound, not in the list", app, "tcp", elsewhere, appPort, fmt.Sprintf("other 8080 %s %s", netip.AddrPortFrom(elsewhere, appPort), pod)},
		})
	}
}

// DNS for the servers of resolv.conf goes to the agent, over UDP and TCP. The agent's own queries go to the server,
// even from the source port of the application's last query.
func TestRedirectDNS(t *testing.T) {
	n := newNetwork(t)
	serve(t, n.pod, "agent", 15053)
	serve(t, n.pod, "envoy", 15001)
	serve(t, n.other, "server", 53)
	must(t, n.other.Do(func() error { return address([]netip.Addr{netip.MustParseAddr("10.9.0.7")}, nil) }))
	c := all()
	c.DNSServers = otherIP
	n.apply(t, c)
	app, agent := caller{n.pod, appUser, appUser, netip.Addr{}}, caller{n.pod, proxyUser, proxyUser, netip.Addr{}}
	for i, pod := range podIP {
		server := otherIP[i]
		expect(t, []expectation{
			{"the application", app, "udp", server, 53, "agent 15053"},
			{"the application", app, "tcp", server, 53, fmt.Sprintf("agent 15053 %s %s", netip.AddrPortFrom(server, 53), pod)},
			{"the agent", agent, "udp", server, 53, "server 53"},
			{"the agent", agent, "tcp", server, 53, fmt.Sprintf("server 53 %s %s", netip.AddrPortFrom(server, 53), pod)},
		})
		for _, who := range []struct {
			uid  int
			want string
		}{{appUser, "agent 15053"}, {proxyUser, "server 53"}, {appUser, "agent 15053"}} {
			if got := fromPort(n, who.uid, pod, server); got != who.want {
				t.Errorf("user %d from the same port to %s: %q, want %q", who.uid, server, got, who.want)
			}
		}
	}
	another := netip.MustParseAddr("10.9.0.7")
	expect(t, []expectation{{"another server", app, "tcp", another, 53, fmt.Sprintf("envoy 15001 %s %s", netip.AddrPortFrom(another, 53), podIP[0])}})
}

// A Pod may run its own resolver, as the only server of its resolv.conf. The agent queries it, and the resolver's
// queries to other servers are not redirected to the agent, which would send them to the resolver again. With capture
// of all servers they are.
func TestResolverInPod(t *testing.T) {
	n := newNetwork(t)
	serve(t, n.pod, "agent", 15053)
	serve(t, n.pod, "resolver", 53)
	serve(t, n.other, "server", 53)
	const resolverUser = 4322
	app, agent, resolver := caller{n.pod, appUser, appUser, netip.Addr{}}, caller{n.pod, proxyUser, proxyUser, netip.Addr{}}, caller{n.pod, resolverUser, resolverUser, netip.Addr{}}
	for _, server := range otherIP { // wait until the neighbours of the new network are known
		for range 10 {
			if agent.call("udp", server, 53) != "silence" {
				break
			}
		}
	}
	for _, c := range []struct {
		resolvers []netip.Addr
		upstream  string // the server that answers the resolver
	}{{[]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}, "server 53"}, {nil, "agent 15053"}} {
		conf, err := redirect.Pod{Env: map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}, Resolvers: c.resolvers}.Config()
		must(t, err)
		n.apply(t, conf)
		for i, loopback := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")} {
			expect(t, []expectation{
				{"the application", app, "udp", loopback, 53, "agent 15053"},
				{"the agent", agent, "udp", loopback, 53, "resolver 53"},
				{"the agent, of another server", agent, "udp", otherIP[i], 53, "server 53"},
				{"the resolver", resolver, "udp", otherIP[i], 53, c.upstream},
			})
		}
	}
}

// fromPort sends a query over UDP from a fixed port.
func fromPort(n network, uid int, from, to netip.Addr) (said string) {
	err := as(n.pod, uid, uid, func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 40000)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 53)))
		if err != nil {
			return err
		}
		defer conn.Close()
		said, err = ask(conn)
		return err
	})
	if err != nil {
		return err.Error()
	}
	return said
}

// While Envoy is away no traffic passes in clear, and there is no moment without rules when they are applied again. A
// connection that fails within its second has not passed: on a busy machine the kernel may answer later than that.
func TestNothingPassesInClear(t *testing.T) {
	n := newNetwork(t)
	serve(t, n.pod, "app", appPort)
	serve(t, n.other, "other", appPort)
	c := all()
	n.apply(t, c)
	before := listing(t, n.pod)
	app, other := caller{n.pod, appUser, appUser, netip.Addr{}}, caller{n.other, 0, 0, netip.Addr{}}
	refused := 0
	stop := hammer(func() error {
		for i := range podIP {
			for way, said := range map[string]string{"in": other.call("tcp", podIP[i], appPort), "out": app.call("tcp", otherIP[i], appPort)} {
				switch said {
				case "refused":
					refused++
				case "silence":
				default:
					return fmt.Errorf("%s: %q", way, said)
				}
			}
		}
		return nil
	})
	for range 50 {
		n.apply(t, c)
	}
	if err := stop(); err != nil || refused == 0 {
		t.Errorf("after %d connections that were refused: %v", refused, err)
	}
	if after := listing(t, n.pod); after != before {
		t.Errorf("applied again the rules are others:\n%s\nand were\n%s", after, before)
	}
	must(t, n.pod.Do(func() error { return Clean(c) }))
	must(t, n.pod.Do(func() error { return Clean(c) }))
	if got := other.call("tcp", podIP[0], appPort); !strings.HasPrefix(got, "app ") {
		t.Errorf("after cleaning: %q", got)
	}
}

// Verify fails without redirection, as any user, and succeeds with it. If it cannot decide, it reports that.
func TestVerify(t *testing.T) {
	for _, mode := range []redirect.Mode{redirect.Redirect, redirect.TProxy} {
		n := newNetwork(t)
		serve(t, n.other, "other", ProbePort)
		c := all()
		c.Mode = mode
		verify := func(uid int) error {
			return as(n.pod, uid, uid, func() error { return Verify(c, uint32(uid), uint32(uid)) })
		}
		for _, uid := range []int{proxyUser, appUser} {
			if err := verify(uid); !errors.Is(err, ErrAbsent) {
				t.Errorf("%s, no rules, as user %d: %v", mode, uid, err)
			}
		}
		n.apply(t, c)
		for _, uid := range []int{proxyUser, appUser} {
			if err := verify(uid); err != nil {
				t.Errorf("%s, as user %d: %v", mode, uid, err)
			}
		}
		serve(t, n.pod, "envoy", 15006)
		if err := verify(proxyUser); err == nil || errors.Is(err, ErrAbsent) {
			t.Errorf("%s, where the port is taken: %v", mode, err)
		}
	}
	n := newNetwork(t)
	c := all()
	c.Outbound = redirect.Prefixes{List: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12")}}
	verify := func() error { return as(n.pod, appUser, appUser, func() error { return Verify(c, appUser, appUser) }) }
	if err := verify(); !errors.Is(err, ErrAbsent) {
		t.Errorf("a list, no rules: %v", err)
	}
	n.apply(t, c)
	if err := verify(); err != nil {
		t.Errorf("a list: %v", err)
	}
}

// Without the capability, Apply returns the kernel's error.
func TestApplyWithoutRights(t *testing.T) {
	n := newNetwork(t)
	err := n.pod.Do(func() error {
		if err := dropRights(); err != nil {
			return err
		}
		c := all()
		return Apply(c.Rules())
	})
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v", err)
	}
}
