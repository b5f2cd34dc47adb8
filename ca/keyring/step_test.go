package keyring

import (
	"testing"
	"time"
)

// The rules of a rotation, without etcd or clock.
func TestStep(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rec := func(first, second Status, forced bool) *record {
		return &record{Highest: 2, Generation: 2, Epochs: []epoch{
			{Number: 1, Status: first, Roots: [][]byte{{1}}, Published: 1}, {Number: 2, Status: second, Roots: [][]byte{{2}}, Published: 2, Forced: forced}}}
	}
	leaf := func(epoch, generation uint64, left time.Duration) Issue {
		return Issue{Serial: "a", Identity: "x", Epoch: epoch, Generation: generation, NotAfter: now.Add(left)}
	}
	some := func(epoch, generation uint64, left time.Duration) Issue {
		return Issue{Identity: "x", Epoch: epoch, Generation: generation, NotAfter: now.Add(left), Many: true}
	}
	report := Issue{Serial: "a", Generation: 2, Report: true, NotAfter: now.Add(time.Hour)}
	for name, c := range map[string]struct {
		rec           *record
		journal       []Issue
		first, second Status // "": nothing changes
		generation    uint64
		allowances    []Allowance
	}{
		"nothing to do":                 {rec: rec(Retired, Active, false)},
		"nobody has a leaf":             {rec(Active, Prepared, false), nil, Retiring, Active, 2, nil},
		"a leaf without the root":       {rec: rec(Active, Prepared, false), journal: []Issue{leaf(1, 1, time.Hour)}},
		"it is reported":                {rec(Active, Prepared, false), []Issue{leaf(1, 1, time.Hour), report}, Retiring, Active, 2, nil},
		"it has ended":                  {rec(Active, Prepared, false), []Issue{leaf(1, 1, -time.Second)}, Retiring, Active, 2, nil},
		"a leaf with the root":          {rec(Active, Prepared, false), []Issue{leaf(1, 2, time.Hour)}, Retiring, Active, 2, nil},
		"forced":                        {rec(Active, Prepared, true), []Issue{leaf(1, 1, time.Hour)}, Retiring, Active, 2, nil},
		"the old one's leaf is used":    {rec: rec(Retiring, Active, false), journal: []Issue{leaf(1, 2, time.Hour)}},
		"it has ended just now":         {rec: rec(Retiring, Active, false), journal: []Issue{leaf(1, 2, -time.Minute)}},
		"it has ended for all clocks":   {rec(Retiring, Active, false), []Issue{leaf(1, 2, -clockTolerance-time.Second)}, Retired, Active, 3, nil},
		"only the new one's is used":    {rec(Retiring, Active, false), []Issue{leaf(2, 2, time.Hour)}, Retired, Active, 3, nil},
		"some without the root":         {rec: rec(Active, Prepared, false), journal: []Issue{leaf(1, 2, time.Hour), some(1, 1, time.Hour)}},
		"some with the root":            {rec(Active, Prepared, false), []Issue{some(1, 2, time.Hour)}, Retiring, Active, 2, nil},
		"some of the old one's used":    {rec: rec(Retiring, Active, false), journal: []Issue{some(1, 2, time.Hour), leaf(1, 2, -24*time.Hour)}},
		"an allowance without the root": {rec: rec(Active, Prepared, false), allowances: []Allowance{{Epoch: 1, Generation: 1, Last: now.Add(time.Hour)}}},
		"one with the root":             {rec: rec(Active, Prepared, false), allowances: []Allowance{{Epoch: 1, Generation: 2, Last: now.Add(time.Hour)}}, first: Retiring, second: Active, generation: 2},
		"one that has ended":            {rec: rec(Active, Prepared, false), allowances: []Allowance{{Epoch: 1, Generation: 1, Last: now.Add(-time.Second)}}, first: Retiring, second: Active, generation: 2},
		"one of the old epoch":          {rec: rec(Retiring, Active, false), allowances: []Allowance{{Epoch: 1, Generation: 2, Last: now.Add(-time.Minute)}}},
		"one of it that has ended":      {rec: rec(Retiring, Active, false), allowances: []Allowance{{Epoch: 1, Generation: 2, Last: now.Add(-time.Hour)}}, first: Retired, second: Active, generation: 3},
		"some that have ended":          {rec(Retiring, Active, false), []Issue{some(1, 2, -time.Hour)}, Retired, Active, 3, nil},
	} {
		census := newJournalIndex()
		for _, i := range c.journal {
			census.add(i)
		}
		census.allowances = c.allowances
		next, happened, _ := step(c.rec, now, census)
		if c.first == "" {
			if next != nil {
				t.Errorf("%s: %v", name, happened)
			}
			continue
		}
		if next == nil || next.Epochs[0].Status != c.first || next.Epochs[1].Status != c.second || next.Generation != c.generation || len(happened) != 1 {
			t.Errorf("%s: %+v, %v", name, next, happened)
		}
	}
}
