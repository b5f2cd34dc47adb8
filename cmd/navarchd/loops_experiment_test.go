//go:build experiment

package main

import (
	"strings"
	"testing"
)

// Control loops are switched off by name, and an unknown name is an error.
func TestControlLoopsThatAreOff(t *testing.T) {
	for value, off := range map[string]string{"": "", "joins": "joins", "moves,drain,window,collector": "moves drain window collector", "joints": "error"} {
		var e environment
		err := e.read(func(name string) (string, bool) { return value, name == "NAVARCH_EXPERIMENT_OFF" })
		var got []string
		for _, one := range controlLoops {
			if e.off(one) {
				got = append(got, one)
			}
		}
		if (err != nil) != (off == "error") || err == nil && strings.Join(got, " ") != off {
			t.Errorf("%q: off are %q, %v", value, got, err)
		}
	}
}
