package gateways

import (
	"fmt"
	"testing"
)

// Addresses and names that lead to the router's own Pod or Node are refused in each of their forms; others are not.
// Promise: security-gateways.md#publish-the-gateway-itself
func TestLocal(t *testing.T) {
	for _, address := range []string{
		"127.0.0.1", "127.9.9.9", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::FFFF:7f00:1", "0.0.0.0", "0.1.2.3", "::",
		"169.254.169.254", "::ffff:169.254.0.1", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "255.255.255.255",
		"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "localhost", "LocalHost", "localhost.",
		"a.localhost", "*.localhost", "*.a.localhost.", "localhost.localdomain", "ip6-localhost", "metadata.google.internal",
		"127.1", "2130706433", "0x7f.1", "0x7f000001", "127.000.000.001", "127.0.0.1.", "unix:///run/sds",
		"64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "::127.0.0.1", "::ffff:0:169.254.169.254", "fd00:ec2::23", "192.0.0.192", "instance-data",
		"127-0-0-1.evil.pod.cluster.local", "169-254-169-254.evil.pod.cluster.local.", "--1.evil.pod", "*.internal", "*-loopback", "*-1.evil.pod.cluster.local", "*.google.internal", "*.pod.cluster.local",
		"*.evil.pod.corp.example", "*.cluster.local", "127-0-0-1.evil.pod.corp.example", "unix://@a",
		"64:ff9b:1::127.0.0.1", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:7f00:0:100::", "64:ff9b:1:7f:0:1::", "64:ff9b:1:0:7f:0:100:0",
		"64:ff9b:1:2:a9:fea9:fe00:0", "64:ff9b:1::", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002::1", "metadata", "metadata.azure.internal",
		"loopback", "Loopback.", "host.docker.internal", "2002-7f00-1--.evil.pod.cluster.local",
	} {
		if Local(address) == "" {
			t.Errorf("%s may be an endpoint", address)
		}
	}
	for _, address := range []string{
		"10.0.0.1", "192.168.1.1", "126.255.255.255", "128.0.0.1", "169.253.0.1", "fd00::1", "2001:db8::1", "::ffff:10.0.0.1",
		"localhost.example.com", "notlocalhost", "example.com", "*.example.com", "web.shop.svc.cluster.local", "a.1x", "1.example", "",
		"64:ff9b::10.0.0.1", "10-1-0-1.evil.pod.cluster.local", "a.b.pod.example.com", "*.corp.internal", "127-0-0-1.example.com",
		"64:ff9b:1::10.0.0.1", "64:ff9b:1:a00:0:100::", "64:ff9b:2::127.0.0.1", "2002:a00:1::", "2003:7f00:1::", "metadata.shop",
	} {
		if why := Local(address); why != "" {
			t.Errorf("%s: %s", address, why)
		}
	}
	for name, want := range map[string]bool{"gw.edge.svc.cluster.local": true, "GW.edge.svc.cluster.local.": true, "gw": true, "gw.edge": true,
		"gw.edge.svc": true, "gw-1.gw.edge.svc.cluster.local": true, "g": false, "agw.edge.svc.cluster.local": false, "edge": false, "": false,
		"gw.edge.svc.cluster.local.example": false} {
		if Resolves(name, "gw.edge.svc.cluster.local") != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
	for address, want := range map[string]string{"10.1.0.1": "[10.1.0.1]", "::ffff:10.1.0.1": "[10.1.0.1]", "64:ff9b::10.1.0.1": "[10.1.0.1]",
		"2002:a01:1::": "[10.1.0.1]", "10-1-0-1.edge.pod.cluster.local.": "[10.1.0.1]", "fd00::1%eth0": "[fd00::1]", "web.test": "[]"} {
		if got := fmt.Sprint(Addresses(address)); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	for port, own := range map[uint32]bool{
		15000: true, 15001: true, 15004: true, 15006: true, 15020: true, 15021: true, 15053: true, 15090: true,
		15008: false, 80: false, 15443: false, 1 << 16: false,
	} {
		if (OwnPort(port) != "") != own {
			t.Errorf("port %d: %q", port, OwnPort(port))
		}
	}
}
