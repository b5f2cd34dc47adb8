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

// These limit one replica's list, because users control the number and text of problems.
const (
	maxProblems = 500       // problems of one replica
	maxOfObject = 8         // problems of one object, so that one invalid object cannot fill the list
	maxText     = 512       // bytes of a field or a message; longer texts are truncated
	maxPath     = 1 << 10   // bytes of a record's path; problems of records with longer paths are left out
	maxEncoded  = 384 << 10 // bytes of the encoded list
)

// list contains the problems that one replica found, within the limits.
type list struct {
	Problems []entryJSON `json:"problems"`
	// More is the number of problems that were left out.
	More int `json:"more,omitempty"`
}

// entryJSON is the encoding of a model.Problem.
type entryJSON struct {
	Record   string           `json:"record"` // path of the record below records/
	Field    string           `json:"field,omitempty"`
	Code     problem.Code     `json:"code"`
	Analyzer problem.Analyzer `json:"analyzer,omitempty"`
	Severity problem.Severity `json:"severity"`
	Message  string           `json:"message"`
	Whole    string           `json:"whole,omitempty"`
}

// listOf returns a list within the limits. The list has each problem once. Errors precede warnings of the same
// namespace. Namespaces take turns, so that a namespace with many invalid objects leaves room for others. Equal sets of
// problems make equal lists.
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
		of int // number of earlier problems of the same namespace
		entryJSON
	}
	var turns []turn
	l, of, namespaces := list{Problems: []entryJSON{}}, map[model.Key]int{}, map[string]int{}
	for _, p := range slices.Compact(found) {
		e := entryJSON{p.Key.Path(), truncate(p.Field), p.Code, p.Analyzer, p.Severity, truncate(p.Message), truncate(p.Whole)}
		if of[p.Key]++; of[p.Key] > maxOfObject || len(e.Record) > maxPath || p.Key.Check() != nil {
			l.More++
			continue
		}
		turns = append(turns, turn{namespaces[p.Key.Namespace], e})
		namespaces[p.Key.Namespace]++
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.of, b.of) })
	for _, t := range turns[:min(len(turns), maxProblems)] {
		l.Problems = append(l.Problems, t.entryJSON)
	}
	l.More += len(turns) - len(l.Problems)
	return l
}

// truncate cuts a text to maxText bytes of valid UTF-8.
func truncate(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

// encode encodes the list. It leaves out the last problems if the encoded list would exceed maxEncoded.
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

// decode decodes another replica's list, within the limits of this build. The result more counts the problems that the
// replica left out, and the problems that are invalid, above the limits, or of a kind of record that this build does
// not know. It fails if the encoded list is too long or does not decode.
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
		if e.Analyzer.Name() == "" { // an analyzer of a newer version
			e.Analyzer = ""
		}
		found = append(found, model.Problem{Key: key, Field: truncate(e.Field), Code: problem.Code(truncate(string(e.Code))),
			Analyzer: e.Analyzer, Severity: e.Severity, Message: truncate(e.Message), Whole: truncate(e.Whole)})
	}
	return found, max(l.More, 0), nil
}
