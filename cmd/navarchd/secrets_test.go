package main

import "testing"

// Which namespace an identity proves: its own, of our trust domain, and nothing else.
func TestVerified(t *testing.T) {
	for _, c := range []struct {
		identity, want string
		bad            bool
	}{
		{"spiffe://mesh.example/ns/shop/sa/gateway", "shop", false},
		{"", "", false}, // plain text
		{"spiffe://other.example/ns/shop/sa/gateway", "", true},
		{"spiffe://mesh.example/shop", "", true},
		{"spiffe://mesh.example/ns/shop", "", true},
		{"spiffe://mesh.example", "", true},
		{"https://mesh.example/ns/shop/sa/gateway", "", true},
		{"gateway.shop", "", true},
	} {
		if got, err := verified(c.identity, "mesh.example"); got != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %q %v", c.identity, got, err)
		}
	}
}

// A vault that is not there is nothing to those who are given it, not a pointer to nothing.
func TestNoVault(t *testing.T) {
	if sealerOf(nil) != nil || openerOf(nil) != nil {
		t.Error("a nil vault in an interface is not nil")
	}
	if s, err := newSealer(&config{}); s != nil || err != nil {
		t.Errorf("a sealer without a key encryption key: %v %v", s, err)
	}
	if v, err := newVault(&config{}, nil, nil); v != nil || err != nil {
		t.Errorf("a vault without a sealer: %v %v", v, err)
	}
}
