package fleetapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/problem"
)

// Problem is one item of /api/v1/problems.
type Problem struct {
	inspect.Problem     // from the first replica by name; but Proxies is the sum of all replicas, or the maximum for a withheld version
	Replicas        int `json:"replicas"` // number of processes that report it; in the part of one process 0, which counts as 1
}

// ProblemParameters are the names of the parameters of /api/v1/problems that select problems.
var ProblemParameters = []string{"namespace", "severity", "object", "limit", "continue"}

// ProblemSelection selects the problems that match all its fields. Empty fields match all problems.
type ProblemSelection struct {
	Window
	Namespace string           // namespace of the problem's object, or the name of the Namespace itself
	Severity  problem.Severity // problem.Error or problem.Warning
	Objects   map[string]bool  // "Kind namespace/name" of objects
}

// ParseProblemSelection parses ProblemParameters. It fails if ParseWindow fails, or if the severity is unknown. The
// error names the parameter.
func ParseProblemSelection(q url.Values) (s ProblemSelection, err error) {
	if s.Window, err = ParseWindow(q); err != nil {
		return s, err
	}
	s.Namespace, s.Severity, s.Objects = q.Get("namespace"), problem.Severity(q.Get("severity")), Objects(q)
	if s.Severity != "" && s.Severity != problem.Error && s.Severity != problem.Warning {
		return s, fmt.Errorf("severity=%.20q: want %s or %s", s.Severity, problem.Error, problem.Warning)
	}
	return s, nil
}

// selects reports whether a problem matches all fields. It ignores Window.
func (s *ProblemSelection) selects(p *inspect.Problem) bool {
	_, name, _ := strings.Cut(p.Object, " ")
	return (s.Namespace == "" || strings.HasPrefix(name, s.Namespace+"/") || p.Object == "Namespace "+s.Namespace) &&
		(s.Severity == "" || p.Severity == s.Severity) && (len(s.Objects) == 0 || s.Objects[p.Object])
}

// MergeProblems lists each selected problem once, errors first, with the number of processes that report it. The order
// of parts does not matter. MergeProblems sets only Items and Next of the answer, and sorts parts in place.
func (s *ProblemSelection) MergeProblems(parts []From[[]Problem]) (a Answer[Problem]) {
	slices.SortFunc(parts, func(a, b From[[]Problem]) int { return strings.Compare(a.Replica, b.Replica) })
	at := map[string]int{}
	var all []Problem
	for _, f := range parts {
		for _, p := range f.Part {
			if !s.selects(&p.Problem) {
				continue
			}
			p.Replicas = max(p.Replicas, 1)
			key := problemKey(&p.Problem)
			i, known := at[key]
			switch {
			case !known:
				at[key] = len(all)
				all = append(all, p)
				continue
			case p.Analyzer == problem.VersionWithheld: // each replica counts the refusals of the whole fleet
				all[i].Proxies = max(all[i].Proxies, p.Proxies)
			default:
				all[i].Proxies += p.Proxies
			}
			all[i].Replicas += p.Replicas
		}
	}
	a.Items, a.Next = Cut(s.Window, all, func(p *Problem) string { return problemKey(&p.Problem) })
	return a
}

// problemKey returns a text that identifies a problem. Sorted texts put errors first, and then follow the object.
func problemKey(p *inspect.Problem) string {
	return strings.Join([]string{string(p.Severity), p.Object, p.Field, string(p.Code), p.Message}, "\x00")
}

// MergePatches lists each patch of an object once, sorted by object and index, with its largest count. The count is nil
// if all parts have nil. MergePatches sets only Items and Next of the answer.
func MergePatches(w Window, parts []From[[]inspect.Patch]) (a Answer[inspect.Patch]) {
	key := func(p *inspect.Patch) string { return fmt.Sprintf("%s\x00%09d", p.Object, p.Index) }
	at := map[string]int{}
	var all []inspect.Patch
	for _, f := range parts {
		for _, p := range f.Part {
			i, known := at[key(&p)]
			switch {
			case !known:
				at[key(&p)] = len(all)
				all = append(all, p)
			case p.Changed != nil && (all[i].Changed == nil || *p.Changed > *all[i].Changed):
				all[i].Changed = p.Changed
			}
		}
	}
	a.Items, a.Next = Cut(w, all, key)
	return a
}
