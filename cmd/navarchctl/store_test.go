package main

import (
	"bytes"
	"strings"
	"testing"

	"navarch.io/navarch/store/removal"
)

// What tenants and other operators wrote is text on the operator's terminal, and nothing else.
func TestHeldIsPrintable(t *testing.T) {
	evil := "x\x1b[2J\n\r\x9b0mü"
	var out bytes.Buffer
	r := heldReport{Held: &removal.Held{Digest: evil, Count: 3, Kinds: map[string]int{evil: 3}, Names: []string{evil}, Leader: evil},
		Decisions: []removal.Decision{{Approval: removal.Approval{Digest: evil, Reason: evil, OSUser: evil, Host: evil, EtcdUser: evil}, Refused: evil}, {Failed: evil}}}
	if err := r.write(&out, true); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\r\u009b") || strings.Count(got, "\n") != 8 || !strings.Contains(got, "ü") {
		t.Errorf("%q", got)
	}
}
