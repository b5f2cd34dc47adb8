package view

import "testing"

// Which automatic addresses a proxy's Pod is told of: those of its family, where its agent answers its questions for names.
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
	if IPv4.Has("2001:2::1") || !IPv4.Has("240.240.0.1") || IPv6.Has("240.240.0.1") || !IPv6.Has("2001:2::1") || NoFamily.Has("240.240.0.1") || IPv4.Has("x") {
		t.Error("families are mixed up")
	}
}
