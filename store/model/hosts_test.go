package model

import "testing"

// Covers says of each pair what Wildcards yields.
func TestCovers(t *testing.T) {
	hosts := []string{"*", "*.com", "*.a.com", "*-b.com", "a.com", "x.a.com", "xa.com", "x-b.com",
		"y.x.a.com", ".com", "*a.com", "", "com", "*."}
	for _, wildcard := range hosts {
		for _, host := range hosts {
			want := false
			for one := range Wildcards(host) {
				want = want || one == wildcard
			}
			if got := Covers(wildcard, host); got != want {
				t.Errorf("%q covers %q: %t", wildcard, host, got)
			}
		}
	}
}
