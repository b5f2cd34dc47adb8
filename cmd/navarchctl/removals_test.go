package main

import (
	"bytes"
	"strings"
	"testing"

	"navarch.io/navarch/store/removal"
)

// What tenants wrote is text on the operator's terminal, and nothing else.
func TestRemovalsArePrintable(t *testing.T) {
	evil := "x\x1b[2J\n\r\x9b0mü"
	var out bytes.Buffer
	r := heldRemovals{Leader: evil, Held: []removal.Hold{{ID: evil, Namespace: evil, Kind: evil, Count: 3, Kinds: map[string]int{evil: 3}, Names: []string{evil}}}}
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\r\u009b") || strings.Count(got, "\n") != 8 || !strings.Contains(got, "ü") || !strings.Contains(got, "and 2 more") {
		t.Errorf("%q", got)
	}
}

// A command that is gone is refused by its name, with what takes its place, whatever its arguments.
func TestReplacedCommands(t *testing.T) {
	for args, by := range map[string]string{"held --audit --data-dir x": "navarchctl removals list", "accept-removal --reason x 0123": "navarchctl removals accept ID"} {
		cmd := root()
		cmd.SetArgs(append([]string{"store"}, strings.Fields(args)...))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), by) {
			t.Errorf("store %s: %v", args, err)
		}
	}
}
