package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/jwks"
	"navarch.io/navarch/store/normal"
)

// The lists of isolation are read as hosts in lower case and ranges; whatever cannot be read is refused with the
// flag's name.
func TestIsolationFlags(t *testing.T) {
	for text, want := range map[string]string{
		"*.Pay.Example.com.=pay, web.example.com=navarch.io/tenant=web": "map[*.pay.example.com:pay web.example.com:navarch.io/tenant=web]",
		"":                            "map[]",
		"pay.example.com":             "--tenant-hosts: \"pay.example.com\"; want HOST=TENANT",
		"=pay":                        "want HOST=TENANT",
		"pay.example.com=":            "want HOST=TENANT",
		"a.example=pay,A.example=web": "--tenant-hosts: a.example is listed twice",
	} {
		i := isolated{given: strings.FieldsFunc(text, func(r rune) bool { return r == ',' })}
		got := fmt.Sprint(i.read(), " ", i.settings.Given)
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	i := isolated{ranges: []string{"10.96.0.0/12", "10.300.0.0/16"}}
	if err := i.read(); err == nil || !strings.HasPrefix(err.Error(), "--cluster-ranges: ") {
		t.Errorf("ranges: %v", err)
	}
}

// Without --jwks-cluster key sets are fetched from no address in --cluster-ranges, whether a Service has it or not.
// Promise: security-tenants.md#key-sets
func TestOrInRanges(t *testing.T) {
	i := isolated{ranges: []string{"10.96.0.0/12", "fd00:10::/108"}}
	if err := i.read(); err != nil {
		t.Fatal(err)
	}
	blocked := i.orInRanges(func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.7") })
	fetcher := jwks.NewFetcher(jwks.FetcherConfig{Cluster: blocked})
	for address, want := range map[string]bool{"10.96.7.7": true, "10.111.0.1": true, "fd00:10::7": true,
		"192.0.2.7": true, "10.112.0.1": false, "192.0.2.8": false} {
		if got := blocked(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is the cluster's: %v", address, got)
		}
	}
	for _, host := range []string{"10.96.7.7", "[fd00:10::7]", "[::ffff:10.96.7.7]", "[64:ff9b::a60:707]"} {
		_, err := fetcher.Fetch(t.Context(), normal.KeySource{URI: "http://" + host + "/keys", Timeout: 10 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "which only --jwks-cluster allows") {
			t.Errorf("%s: %v", host, err)
		}
	}
}
