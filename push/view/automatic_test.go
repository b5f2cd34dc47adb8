package view

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// A proxy receives the automatic addresses of its Pod's IP family if its agent resolves the Pod's DNS queries
// (DNS_CAPTURE), and none otherwise.
func TestAutomatic(t *testing.T) {
	for name, c := range map[string]struct {
		captures  string
		kind      Kind
		addresses []string
		want      Family
	}{
		"it says nothing":     {"", Sidecar, []string{"10.1.0.7"}, NoFamily},
		"it does not":         {"false", Sidecar, []string{"10.1.0.7"}, NoFamily},
		"it says neither":     {"perhaps", Sidecar, []string{"10.1.0.7"}, NoFamily},
		"IPv4":                {"true", Sidecar, []string{"10.1.0.7"}, IPv4},
		"IPv6":                {"true", Sidecar, []string{"fd00::7"}, IPv6},
		"both":                {"1", Sidecar, []string{"fd00::7", "10.1.0.7"}, IPv4},
		"not known":           {"true", Sidecar, nil, IPv4},
		"a gateway":           {"true", Router, []string{"10.1.0.7"}, NoFamily},
		"gRPC's own resolver": {"true", Proxyless, []string{"10.1.0.7"}, NoFamily},
	} {
		n := web()
		n.Kind, n.Addresses, n.Metadata["DNS_CAPTURE"] = c.kind, c.addresses, c.captures
		if got := Of(snapshot(), n).Scope.Automatic; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	byName := snapshot(rec(t, model.KindMesh, "/mesh", "{rootNamespace: istio-system, outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}}"))
	for name, c := range map[string]struct {
		captures, stated string
		addresses        []string
		want             string
	}{
		"it answers nothing":       {"", "127.0.0.9:53", nil, ""},
		"it says no place":         {"true", "", []string{"10.1.0.7"}, "127.0.0.1:15053"},
		"it says no place, IPv6":   {"true", "", []string{"fd00::7"}, "[::1]:15053"},
		"it says the usual":        {"true", "localhost:15053", []string{"fd00::7"}, "[::1]:15053"},
		"another port":             {"true", "localhost:5353", []string{"fd00::7"}, "[::1]:5353"},
		"another place":            {"true", "127.0.0.9:5353", []string{"10.1.0.7"}, "127.0.0.9:5353"},
		"a name, which nobody has": {"true", "dns.example.com:53", []string{"10.1.0.7"}, "127.0.0.1:15053"},
		"what is no place":         {"true", "53", []string{"10.1.0.7"}, "127.0.0.1:15053"},
		"a port that is none":      {"true", "127.0.0.9:0", []string{"10.1.0.7"}, "127.0.0.1:15053"},
	} {
		n := web()
		n.Addresses, n.Metadata["DNS_CAPTURE"], n.Metadata["DNS_PROXY_ADDR"] = c.addresses, c.captures, c.stated
		s := Of(byName, n).Scope
		if other := Of(snapshot(), n).Scope.Resolver; other != "" {
			t.Errorf("%s: a scope of its own where the mesh has no proxy resolve names: %s", name, other)
		}
		if got := s.NameServer(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if usual := c.stated != "" && strings.HasSuffix(c.want, ":15053"); usual && s.Resolver != "" {
			t.Errorf("%s: a scope of its own", name)
		}
	}
	if IPv4.Has("2001:2::1") || !IPv4.Has("240.240.0.1") || IPv6.Has("240.240.0.1") || !IPv6.Has("2001:2::1") || NoFamily.Has("240.240.0.1") || IPv4.Has("x") {
		t.Error("families are mixed up")
	}
}
