//go:build experiment

package main

import (
	"fmt"
	"slices"
	"strings"
)

// controlLoops are the names of the control loops that react to the load of this machine.
var controlLoops = []string{"joins", "moves", "drain", "window", "collector"}

// loopsOff parses a comma-separated list of control loops to switch off.
func loopsOff(into *[]string) func(string) error {
	return func(v string) error {
		*into = strings.Split(v, ",")
		for _, name := range *into {
			if !slices.Contains(controlLoops, name) {
				return fmt.Errorf("%q is no control loop: want some of %s", name, strings.Join(controlLoops, ","))
			}
		}
		return nil
	}
}
