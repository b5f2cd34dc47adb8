package main

import (
	"errors"
	"testing"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
)

// signing is a keyring with a key in force, or none, and a clock that is off, or is not.
type signing struct {
	by  *issue.Authority
	off error
}

func (s signing) State() *keyring.State { return &keyring.State{Active: s.by} }
func (s signing) ClockOff() error       { return s.off }

// Certificates are issued only while a key is in force and the clock is trusted. Otherwise no stream may end because
// its credential has expired by this clock.
func TestCanSign(t *testing.T) {
	for name, c := range map[string]struct {
		ring signing
		want bool
	}{
		"it signs":           {signing{&issue.Authority{}, nil}, true},
		"the clock is off":   {signing{&issue.Authority{}, errors.New("25h ahead")}, false},
		"no key is in force": {signing{nil, nil}, false},
	} {
		if got := canSign(c.ring); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
