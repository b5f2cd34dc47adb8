package delivered

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/status"
)

// detail is one problem of an object.
type detail struct {
	status.Message
	field, text string
}

// maxText bounds the message of a condition, in bytes.
const maxText = 1024

// remember adds the problems and refusals that replicas list now. It drops those that no replica has listed for the
// time keep.
func (o *Objects) remember(now time.Time, f Facts) {
	for _, p := range f.Found {
		o.found[p] = now
	}
	for _, r := range f.Refused {
		o.refuse[r.Object] = refusal{r.Text, now}
	}
	for p, last := range o.found {
		if over := last.Add(keep); !now.Before(over) {
			delete(o.found, p)
		} else if last != now {
			o.wake(over)
		}
	}
	for key, r := range o.refuse {
		if over := r.last.Add(keep); !now.Before(over) {
			delete(o.refuse, key)
		} else if r.last != now {
			o.wake(over)
		}
	}
}

// idOf returns the ID of the Istio object from which the record with this key is made.
func idOf(key model.Key) object.ID {
	group, kind := key.Kind.Object()
	return object.ID{Origin: key.Origin, Group: group, Kind: kind, Namespace: key.Namespace, Name: key.Name}
}

// problems returns the problems of each object, errors first, without duplicates.
func (o *Objects) problems(f Facts) map[object.ID][]detail {
	all := map[object.ID][]detail{}
	add := func(id object.ID, code problem.Code, analyzer problem.Analyzer, severity problem.Severity, field, text string) {
		all[id] = append(all[id], detail{status.Message{Code: code, Analyzer: analyzer, Severity: severity}, field, text})
	}
	for _, p := range f.Problems {
		if has(p.ID) {
			add(p.ID, p.Code, p.Analyzer, p.Severity, p.Field, p.Message)
		}
	}
	for p := range o.found {
		add(idOf(p.Key), p.Code, p.Analyzer, p.Severity, p.Field, p.Message)
	}
	for id, details := range all {
		slices.SortFunc(details, func(a, b detail) int {
			return cmp.Or(-cmp.Compare(rank(a.Severity), rank(b.Severity)),
				cmp.Compare(a.field, b.field), cmp.Compare(a.Code, b.Code), cmp.Compare(a.text, b.text))
		})
		all[id] = slices.Compact(details)
	}
	return all
}

func rank(s problem.Severity) int {
	if s == problem.Error {
		return 1
	}
	return 0
}

// messagesOf lists each distinct pair of code and severity once, errors first. If refused is true, the list includes
// the refusal by proxies.
func messagesOf(problems []detail, refused bool) (all []status.Message) {
	for _, p := range problems {
		if p.Analyzer != "" {
			p.Code = "" // Istio's code replaces it
		}
		all = append(all, p.Message)
	}
	if refused {
		all = append(all, status.Message{Code: problem.Refused, Severity: problem.Error})
	}
	slices.SortFunc(all, func(a, b status.Message) int {
		return cmp.Or(-cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Analyzer, b.Analyzer))
	})
	return slices.Compact(all)
}

// textOf joins the texts of the problems, and cuts the result to maxText bytes.
func textOf(problems []detail) string {
	var parts []string
	for _, p := range problems {
		parts = append(parts, strings.TrimPrefix(p.field+": "+p.text+p.Analyzer.Suffix(), ": "))
	}
	return cut(strings.Join(parts, "; "))
}

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-3], "") + "..."
}
