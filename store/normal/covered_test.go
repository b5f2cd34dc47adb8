package normal

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// The index agrees with a comparison of each pair.
// Promise: security-admission.md#expensive-objects
func TestHostIndex(t *testing.T) {
	covered := func(name, h string) bool {
		name, h = hostOf(name), hostOf(h)
		return h == name || h == "*" || strings.HasPrefix(h, "*") && strings.HasSuffix(strings.TrimPrefix(name, "*"), h[1:])
	}
	names := []string{"*", "a", "a.b", "*.b", "*b", "x.a.b", "*.a.b", "A.B.", "c", "*.", "", "b"}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		var hosts []string
		for range r.IntN(6) {
			hosts = append(hosts, names[r.IntN(len(names))])
		}
		x := indexHosts(hosts)
		for _, name := range names {
			want := false
			for _, h := range hosts {
				want = want || covered(name, h)
			}
			if got := x.covers(name); got != want {
				t.Fatalf("%q covers %q: %v, want %v", hosts, name, got, want)
			}
		}
		for i, name := range hosts {
			for _, j := range x.wildcards(name) {
				if i == j || !covered(name, hosts[j]) {
					t.Fatalf("%q: %q is said to cover %q", hosts, hosts[j], name)
				}
			}
		}
	}
}

// A name is compared with as many wildcards as there are lengths of them, however many there are.
func TestHostIndexLooksAtFew(t *testing.T) {
	var hosts []string
	for i := range 20_000 {
		hosts = append(hosts, fmt.Sprintf("*.%05d.example.com", i))
	}
	if n := len(indexHosts(hosts).endings); n != 1 {
		t.Errorf("%d", n)
	}
}
