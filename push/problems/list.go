package problems

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Bounds of one replica's list. Objects are users', and so are the texts about them.
const (
	maxProblems = 500       // of one replica
	maxOfObject = 8         // of them of one object: one bad object fills no list
	maxText     = 512       // bytes of a field or a message; the rest is cut off
	maxPath     = 1 << 10   // bytes of a record's path; of longer ones nothing is shared
	maxEncoded  = 384 << 10 // bytes of the list
)

// list is what one replica found.
type list struct {
	Problems []entry `json:"problems"`
	// More is how many were left out.
	More int `json:"more,omitempty"`
}

// entry is a model.Problem as replicas write it.
type entry struct {
	Record   string           `json:"record"` // its path below records/
	Field    string           `json:"field,omitempty"`
	Code     problem.Code     `json:"code"`
	Analyzer problem.Analyzer `json:"analyzer,omitempty"`
	Severity problem.Severity `json:"severity"`
	Message  string           `json:"message"`
}

// listOf bounds what a replica found: each problem once, those that spoil something before warnings. Namespaces take turns, so that one with many bad
// objects leaves room for the others'. The same problems are the same list.
func listOf(found []model.Problem) list {
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b model.Problem) int {
		if a.Severity != b.Severity && (a.Severity == problem.Error || b.Severity == problem.Error) {
			if a.Severity == problem.Error {
				return -1
			}
			return 1
		}
		return a.Compare(b)
	})
	type turn struct {
		of int // which of its namespace
		entry
	}
	var turns []turn
	l, of, namespaces := list{Problems: []entry{}}, map[model.Key]int{}, map[string]int{}
	for _, p := range slices.Compact(found) {
		e := entry{p.Key.Path(), cut(p.Field), p.Code, p.Analyzer, p.Severity, cut(p.Message)}
		if of[p.Key]++; of[p.Key] > maxOfObject || len(e.Record) > maxPath || p.Key.Check() != nil {
			l.More++
			continue
		}
		turns = append(turns, turn{namespaces[p.Key.Namespace], e})
		namespaces[p.Key.Namespace]++
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.of, b.of) })
	for _, t := range turns[:min(len(turns), maxProblems)] {
		l.Problems = append(l.Problems, t.entry)
	}
	l.More += len(turns) - len(l.Problems)
	return l
}

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

// encode leaves out the last where the list would be too long.
func (l list) encode() ([]byte, error) {
	for {
		raw, err := json.Marshal(l)
		if err != nil || len(raw) <= maxEncoded || len(l.Problems) == 0 {
			return raw, err
		}
		gone := 1 + len(l.Problems)/8
		l.Problems, l.More = l.Problems[:len(l.Problems)-gone], l.More+gone
	}
}

// decode reads another replica's list, within the same bounds. What is not valid in it, or of a kind that this build does not know, counts
// as left out.
func decode(raw []byte) (found []model.Problem, more int, err error) {
	if len(raw) > maxEncoded {
		return nil, 0, fmt.Errorf("%d bytes, at most %d are read", len(raw), maxEncoded)
	}
	var l list
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, 0, err
	}
	for _, e := range l.Problems {
		key, err := model.ParsePath(e.Record)
		if err != nil || len(found) == maxProblems || e.Severity != problem.Error && e.Severity != problem.Warning {
			l.More++
			continue
		}
		if e.Analyzer.Name() == "" { // a newer replica's
			e.Analyzer = ""
		}
		found = append(found, model.Problem{Key: key, Field: cut(e.Field), Code: problem.Code(cut(string(e.Code))), Analyzer: e.Analyzer, Severity: e.Severity, Message: cut(e.Message)})
	}
	return found, max(l.More, 0), nil
}
