package guard

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// services are the names of so many, from the n-th on.
func services(from, to int) (names []string) {
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprint("s", i))
	}
	return names
}

// Losses under one process and under the next are added up, where the next one knows of the first: two fifths, and two fifths of what
// there was, are more than half. What is too long ago counts for nothing, and what comes from a clock that is ahead was now.
func TestLossesAreAddedUpOverProcesses(t *testing.T) {
	at := time.Unix(1000, 0)
	first := newObjects()
	first.step(at, "Service", services(0, 25)...)
	first.step(at, "Service", services(10, 25)...)
	if held := first.guard.Held(); len(held) > 0 {
		t.Fatalf("two fifths: %d are held", len(held))
	}
	sums := first.guard.memory.Sums(at)
	for name, c := range map[string]struct {
		recalled []Sum
		at       time.Time
		held     int
	}{
		"at once":             {sums, at.Add(time.Second), 6},
		"nothing is recalled": {nil, at.Add(time.Second), 0},
		"ten minutes later":   {sums, at.Add(sumFor), 0},
		"its clock was ahead": {[]Sum{{Kind: "Service", At: at.Add(time.Hour), Before: 25}}, at, 6},
		"of another cluster":  {[]Sum{{Cluster: "east", Kind: "Service", At: at, Before: 25}}, at, 0},
		"of a few":            {[]Sum{{Kind: "Service", At: at, Before: sumFrom - 1}}, at, 0},
	} {
		second := newObjects()
		second.step(c.at, "Service", services(10, 25)...)
		second.guard.memory.Recall(c.at, c.recalled)
		second.guard.memory.Recall(c.at, c.recalled) // as a process does that remembers it itself
		second.step(c.at, "Service", services(16, 25)...)
		if held := second.guard.Held(); len(held) != c.held {
			t.Errorf("%s: %d are held, want %d", name, len(held), c.held)
		}
	}
}

// What is stored of losses is bounded, whatever kinds there are and however often something vanishes, and says the same twice.
func TestStoredLossesAreBounded(t *testing.T) {
	var m Memory
	at := time.Unix(1000, 0)
	for i := range 600 {
		for k := range 100 {
			m.Note(at, object.ID{Origin: origin.New("east", origin.Kube), Kind: fmt.Sprint("Kind", k)}, 100+k)
		}
		m.Note(at, object.ID{Kind: "Small"}, sumFrom-1)
		m.Note(at, object.ID{Kind: string(make([]byte, longKind+1))}, 1000)
		at = at.Add(time.Second)
		if i == 0 {
			at = at.Add(-time.Second) // twice in one second is once
		}
	}
	sums := m.Sums(at)
	if len(sums) != mostSums || !reflect.DeepEqual(sums, m.Sums(at)) {
		t.Errorf("%d are stored, want %d, and the same ones again", len(sums), mostSums)
	}
	each := map[string]int{}
	for _, s := range sums {
		if each[s.Kind]++; s.Before < 100 || s.Cluster != "east" || s.Source != origin.Kube {
			t.Fatalf("%+v", s)
		}
	}
	if n := each["Kind99"]; n != int(sumFor/sumEach) {
		t.Errorf("%d of one kind, want one in each %v", n, sumEach)
	}
	var other Memory
	other.Recall(at, append(sums, sums...))
	if n := len(other.Sums(at)); n > mostSums {
		t.Errorf("%d are recalled", n)
	}
	if rest := m.Sums(at.Add(sumFor)); len(rest) > 0 {
		t.Errorf("%d stay", len(rest))
	}
}
