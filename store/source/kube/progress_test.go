package kube

import (
	"testing"
	"time"
)

// ReadUntil is the oldest time of the last event of a watch, among the kinds by which credentials are checked.
func TestReadUntil(t *testing.T) {
	s := newSource(Config{}, nil)
	s.emittedSynced = true
	at := func(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }
	for i, kind := range []string{"Pod", "ServiceAccount", "Namespace"} {
		if until, _ := s.ReadUntil(); !until.IsZero() {
			t.Errorf("before the watch of %ss has said anything: %v", kind, until)
		}
		s.progress.record(kindID{kind: kind}, at(i))
	}
	for _, c := range []struct {
		kind string
		want int
	}{{"Pod", 1}, {"ServiceAccount", 2}, {"Namespace", 10}} {
		s.progress.record(kindID{kind: c.kind}, at(10))
		if until, everywhere := s.ReadUntil(); !until.Equal(at(c.want)) || !everywhere {
			t.Errorf("after the watch of %ss has said something: %v (everywhere: %v), want %v", c.kind, until, everywhere, at(c.want))
		}
	}
}

// The age counts from the beginning until everything was emitted, and then from the watch that has been silent longest;
// nothing that is not read has one.
func TestAge(t *testing.T) {
	s, began := newSource(Config{}, nil), time.Unix(1000, 0)
	if age := s.Age(began); age != 0 {
		t.Errorf("before it runs: %v", age)
	}
	s.began = began
	if age := s.Age(began.Add(time.Minute)); age != time.Minute {
		t.Errorf("before everything is emitted: %v", age)
	}
	s.emittedSynced = true
	for i, kind := range []string{"Pod", "ServiceAccount", "Namespace"} {
		s.progress.record(kindID{kind: kind}, began.Add(time.Duration(40+i)*time.Second))
	}
	if age := s.Age(began.Add(time.Minute)); age != 20*time.Second {
		t.Errorf("20 seconds after a watch has said something: %v", age)
	}
	if s.end(); s.Age(began.Add(time.Hour)) != 0 {
		t.Error("it is read no more, and has an age")
	}
}
