package kube

import (
	"testing"
	"time"
)

// Everything was emitted up to when the watch that has been silent longest said something, of those whose objects credentials name.
func TestReadUntil(t *testing.T) {
	s := newSource(Config{}, nil)
	s.emittedSynced = true
	at := func(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }
	for i, kind := range []string{"Pod", "ServiceAccount", "Namespace"} {
		if until, _ := s.ReadUntil(); !until.IsZero() {
			t.Errorf("before the watch of %ss has said anything: %v", kind, until)
		}
		s.heard.note(kindID{kind: kind}, at(i))
	}
	for _, c := range []struct {
		kind string
		want int
	}{{"Pod", 1}, {"ServiceAccount", 2}, {"Namespace", 10}} {
		s.heard.note(kindID{kind: c.kind}, at(10))
		if until, everywhere := s.ReadUntil(); !until.Equal(at(c.want)) || !everywhere {
			t.Errorf("after the watch of %ss has said something: %v (everywhere: %v), want %v", c.kind, until, everywhere, at(c.want))
		}
	}
}
