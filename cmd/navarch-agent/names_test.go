package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resolver "github.com/miekg/dns"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/store/loopback"
)

// testCapture has startAgent capture DNS.
const testCapture = "AGENT_TEST_DNS_CAPTURE"

// An agent that captures DNS is ready once it has the names of the mesh, and answers with them.
func TestAgentAnswersDNS(t *testing.T) {
	t.Setenv(testCapture, "true")
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 192.0.2.53\nsearch shop.svc.cluster.local svc.cluster.local\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ads := newFakeADS(t, loopback.For(t), "127.0.0.1:1")
	withTable := newFakeADS(t, loopback.For(t), "127.0.0.1:1")
	for name, r := range ads.resources {
		withTable.resources[name] = r
	}
	table := agentapi.AppendName(nil, agentapi.Name{Host: "web.shop.svc.cluster.local", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Registry: agentapi.RegistryKubernetes, Shortname: "web", Namespace: "shop"})
	withTable.resources[agentapi.NameTableURL] = &discoveryv3.Resource{Version: "1", Resource: &anypb.Any{TypeUrl: agentapi.NameTableURL, Value: table}}
	addr, without := ads.start(t, "127.0.0.1:0")
	at := loopback.For(t)
	p := startAgent(t, addr, "--xds-plaintext", "--dns-addr", at, "--resolv-conf", conf)
	p.until("not ready without names", func(d debugPage) bool {
		return d.NotReady == "the control plane has not sent the names for the Pod's DNS yet"
	})
	ask := func(name string) string {
		m := new(resolver.Msg)
		m.SetQuestion(name, resolver.TypeA)
		reply, _, err := (&resolver.Client{Timeout: deadline}).Exchange(m, at)
		if err != nil {
			return err.Error()
		}
		out := resolver.RcodeToString[reply.Rcode]
		for _, r := range reply.Answer {
			if a, is := r.(*resolver.A); is {
				out += " " + a.A.String()
			}
		}
		return out
	}
	if got := ask("web."); got != "SERVFAIL" {
		t.Errorf("without names: %s", got)
	}
	without.Stop()
	withTable.start(t, addr)
	p.until("ready", func(d debugPage) bool { return d.Ready })
	for _, name := range []string{"web.", "web.shop.", "WEB.shop.svc.cluster.local.", "web.shop.svc.cluster.local.shop.svc.cluster.local."} {
		if got := ask(name); got != "NOERROR 10.0.0.1" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// These variables and files determine the DNS settings.
func TestDNSConfiguration(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 10.96.0.10\nnameserver fd00::a\nnameserver 127.0.0.1\nsearch Shop.svc.cluster.local. x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	made := func(capture, addr, resolv string) (listen, servers []string, err error) {
		id, err := identify("sidecar", sources{}, []string{"POD_NAME=a", "POD_NAMESPACE=shop", "INSTANCE_IP=10.1.0.1", "ISTIO_META_DNS_CAPTURE=" + capture})
		if err != nil {
			t.Fatal(err)
		}
		if namespaceOf(id) != "shop" || domainOf(id) != "svc.cluster.local" {
			t.Errorf("%s %s", namespaceOf(id), domainOf(id))
		}
		o := &options{dnsAddr: addr, resolvConf: resolv}
		cfg, err := o.dnsConfig(id, nil)
		if err != nil || cfg == nil {
			return nil, nil, err
		}
		if cfg.Place.Search != "shop.svc.cluster.local" {
			t.Errorf("search domain %q", cfg.Place.Search)
		}
		return cfg.Listen, cfg.Servers, nil
	}
	for _, off := range []string{"", "false"} {
		if listen, _, err := made(off, "x", "/nowhere"); listen != nil || err != nil {
			t.Errorf("%q: %v %v", off, listen, err)
		}
	}
	listen, servers, err := made("true", "localhost:53", conf)
	if !slices.Equal(listen, []string{"127.0.0.1:53", "[::1]:53"}) || !slices.Equal(servers, []string{"10.96.0.10:53", "[fd00::a]:53"}) || err != nil {
		t.Errorf("listens at %v, asks %v: %v", listen, servers, err)
	}
	for why, bad := range map[string][3]string{"DNS_CAPTURE": {"perhaps", "localhost:53", conf}, "want host:port": {"true", "15053", conf}, "DNS servers": {"true", "localhost:53", "/nowhere"}} {
		if _, _, err := made(bad[0], bad[1], bad[2]); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// Names of Services are in the cluster's domain (--domain, as in Istio's template).
func TestDomainOfTheCluster(t *testing.T) {
	for given, want := range map[string]string{"": "svc.cluster.local", "shop.svc.example.org": "svc.example.org"} {
		id, err := identify("sidecar", sources{domain: given}, []string{"POD_NAME=a", "POD_NAMESPACE=shop", "INSTANCE_IP=10.1.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		if got := domainOf(id); got != want || id.node.Id != "sidecar~10.1.0.1~a.shop~shop."+want {
			t.Errorf("%q: %s, and the node is %s", given, got, id.node.Id)
		}
	}
}
