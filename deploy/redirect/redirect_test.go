package redirect

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// stock returns the settings that Istio's injection passes.
func stock() Text {
	return Text{OutboundPort: "15001", InboundPort: "15006", ProxyUIDs: "1337", Mode: "REDIRECT", Outbound: "*", Inbound: "*", InboundExclude: "15090,15021,15020"}
}

// Each configuration has its rules in testdata, in nft's form; deploy/redirect/kernel tests that the kernel gets the
// same.
func TestRules(t *testing.T) {
	change := func(f func(*Text)) Text { x := stock(); f(&x); return x }
	for name, test := range map[string]struct {
		text Text
		more func(*Config)
	}{
		"stock":   {text: stock()},
		"nothing": {text: Text{}},
		"lists": {text: change(func(x *Text) {
			x.Inbound, x.InboundExclude, x.Outbound, x.OutboundExclude = "80, 443", "", "10.0.0.0/8,fd00::/8", "10.1.2.3/16,fd00:1::1"
			x.OutboundPorts, x.OutboundExcludePorts, x.ExcludeInterfaces, x.VirtualInterfaces = "9000", "0,22", "net1", "k6t-eth0"
		})},
		"owners":          {text: change(func(x *Text) { x.ProxyUIDs, x.ProxyGIDs, x.OwnerGroups = "1337,1338", "1337", "100,200" })},
		"owners_excluded": {text: change(func(x *Text) { x.OwnerGroupsExclude = "100" })},
		"loopback":        {text: change(func(x *Text) { x.Outbound = "127.1.2.3/32" })},
		"dns": {text: stock(), more: func(c *Config) {
			c.DNSServers = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::a")}
		}},
		"dns_all":      {text: stock(), more: func(c *Config) { c.DNSAll = true }},
		"drop_invalid": {text: stock(), more: func(c *Config) { c.DropInvalid = true }},
		"tproxy":       {text: change(func(x *Text) { x.Mode, x.ExcludeInterfaces = "TPROXY", "net1" })},
		"tproxy_ports": {text: change(func(x *Text) { x.Mode, x.Inbound, x.InboundExclude = "TPROXY", "80", "" })},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := test.text.Config()
			if err != nil {
				t.Fatal(err)
			}
			if test.more != nil {
				test.more(&c)
			}
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			golden(t, name, c.Rules().String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".nft")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("rules are not those of %s; they are\n%s", path, got)
	}
}

// Text that cannot be parsed is an error that names it: an omitted setting would let traffic pass in clear.
func TestTextThatCannotBeUnderstood(t *testing.T) {
	for why, text := range map[string]Text{
		"no port":                  {Inbound: "80,http"},
		"no range of addresses":    {Outbound: "10.0.0.0/33"},
		"excluded outbound dest":   {OutboundExclude: "*"},
		"no number of 32 bits":     {ProxyUIDs: "istio-proxy"},
		"want one of the two":      {OwnerGroups: "1", OwnerGroupsExclude: "2"},
		"mode \"NONE\"":            {Mode: "NONE"},
		"that is no name of one":   {ExcludeInterfaces: "eth0\" accept"},
		"all destinations are exc": {OutboundExclude: "0.0.0.0/0"},
		"mark 1338":                {Mode: "TPROXY", Inbound: "*", Mark: "0x53a"},
		"outbound port":            {OutboundPort: "0"},
		"at most 4096":             {Inbound: strings.TrimSuffix(strings.Repeat("80,", MaxRules+1), ",")},
	} {
		c, err := text.Config()
		if err == nil {
			err = c.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v: %v, want %q", text, err, why)
		}
	}
	none := Default()
	none.ProxyUIDs, none.ProxyGIDs = nil, nil
	if none.Validate() == nil {
		t.Error("nobody is the proxy")
	}
}

// A Pod's annotations select the redirected traffic. The proxy's container determines the proxy's user and the capture
// of DNS.
func TestPods(t *testing.T) {
	uid := func(n int64) *int64 { return &n }
	for name, pod := range map[string]Pod{
		"pod_plain": {},
		"pod_annotated": {Annotations: map[string]string{
			"traffic.sidecar.istio.io/includeInboundPorts": "*", "traffic.sidecar.istio.io/excludeInboundPorts": "9090",
			"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8", "traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.1.0.0/16",
			"traffic.sidecar.istio.io/includeOutboundPorts": "3306", "traffic.sidecar.istio.io/excludeOutboundPorts": "25",
			"traffic.sidecar.istio.io/excludeInterfaces": "net1", "istio.io/reroute-virtual-interfaces": "vm0", "status.sidecar.istio.io/port": "15999",
		}, Env: map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "1"}, UID: uid(2000), GID: uid(3000)},
		"pod_tproxy": {Annotations: map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"}, UID: uid(0), GID: uid(1337)},
	} {
		c, err := pod.Config()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		golden(t, name, c.Rules().String())
	}
	for _, bad := range []Pod{
		{Annotations: map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "all"}},
		{Env: map[string]string{"ISTIO_META_DNS_CAPTURE": "maybe"}},
		{Annotations: map[string]string{"sidecar.istio.io/interceptionMode": "SOMETIMES"}},
	} {
		if _, err := bad.Config(); err == nil {
			t.Errorf("%+v is understood", bad)
		}
	}
}
