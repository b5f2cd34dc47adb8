package main

import "testing"

// --address overrides the address, the port or both, of either family.
func TestAddressOfARequest(t *testing.T) {
	for at, want := range map[string]struct {
		address string
		port    uint32
	}{
		"": {"", 80}, ":8080": {"", 8080}, ":": {"", 80}, "10.0.0.1": {"10.0.0.1", 80}, "10.0.0.1:8080": {"10.0.0.1", 8080},
		"::1": {"::1", 80}, "::": {"::", 80}, "2001:db8::1": {"2001:db8::1", 80}, "[::1]:8080": {"::1", 8080},
	} {
		r, err := requestOf([]string{"http://web.shop/"}, at)
		if err != nil || r.Address != want.address || r.Port != want.port {
			t.Errorf("%q: %q, port %d, %v", at, r.Address, r.Port, err)
		}
	}
	for _, at := range []string{"x", ":x", ":0", ":::x", "[::1]"} {
		if r, err := requestOf([]string{"http://web.shop/"}, at); err == nil {
			t.Errorf("%q: %+v", at, r)
		}
	}
}
