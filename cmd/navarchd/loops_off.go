//go:build !experiment

package main

import "errors"

// loopsOff refuses a list of control loops. A build with the tag experiment switches them off.
func loopsOff(*[]string) func(string) error {
	return func(string) error {
		return errors.New("this build cannot switch off control loops: unset the variable, or build with -tags experiment (make experiment)")
	}
}
