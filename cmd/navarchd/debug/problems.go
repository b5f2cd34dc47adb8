package debug

import (
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Problems returns all problems of this process that are visible, that is, in a namespace that the caller may see. It
// returns the problems of Reported and the problems that planning found. While this process leads, it adds the problems
// that other replicas found. The number of listed planning problems is bounded for each namespace. Calls may be
// expensive, because the planner first completes its list of problems. The result is never nil.
func (p *Pages) Problems(sees authz.Visible) []inspect.Problem {
	all, own := p.Reported(sees), map[model.Problem]bool{}
	if p.Proxies != nil {
		planned := p.Proxies.Planner.Problems()
		for _, one := range planned {
			own[one] = true
		}
		all = append(all, planning(planned, sees)...)
	}
	if p.Objects == nil {
		return all
	}
	return append(all, p.Objects.found(sees, own)...)
}

// problemOf converts a record's problem for the pages. The message has the names of all objects only for callers who
// see everything.
func problemOf(p model.Problem, sees authz.Visible) inspect.Problem {
	return inspect.Problem{Object: p.Key.String(), Field: p.Field,
		Code: p.Code, Analyzer: p.Analyzer, Severity: p.Severity, Message: messageFor(sees, p.Message, p.Full())}
}

// messageFor selects one of two messages. The argument whole is the message for callers who see everything. The
// argument shown is the message for callers who see only some namespaces.
func messageFor(sees authz.Visible, shown, whole string) string {
	if sees == nil {
		return whole
	}
	return shown
}

// planning returns the visible problems that planning found, bounded by problem.Bound.
func planning(found []model.Problem, sees authz.Visible) (all []inspect.Problem) {
	found = slices.DeleteFunc(slices.Clone(found), func(p model.Problem) bool { return !sees.Of(p.Key.Namespace) })
	listed, left := problem.Bound(found, func(p model.Problem) (string, model.Key) { return p.Key.Namespace, p.Key })
	for _, one := range listed {
		all = append(all, problemOf(one, sees))
	}
	more, namespaces := 0, slices.Sorted(maps.Keys(left))
	for i, namespace := range namespaces {
		if more += left[namespace]; i < problem.MostOfNamespace {
			more = 0
			all = append(all, inspect.Problem{Object: "Namespace " + namespace,
				Location: "plan", Code: problem.NotAllowed, Severity: problem.Warning,
				Message: fmt.Sprintf("%d more problems that planning found are not listed here", left[namespace])})
		}
	}
	if more > 0 {
		all = append(all, inspect.Problem{Object: "other namespaces", Location: "plan", Code: problem.NotAllowed, Severity: problem.Warning,
			Message: fmt.Sprintf("%d more problems that planning found are not listed here", more)})
	}
	return all
}

// Count counts the problems of Reported for a caller who sees everything. It includes problems of objects that Reported
// does not list because there are too many. While this process leads, Count also counts the problems in the lists that
// replicas last wrote. Problems that replicas left out of their lists count as warnings.
func (p *Pages) Count() (n problem.Count) {
	for _, one := range p.Reported(nil) {
		n.Add(one.Severity, 1)
	}
	if p.Objects == nil {
		return n
	}
	for _, listed := range p.Objects.Loop() {
		n.Add(listed.Severity, -1)
	}
	all := p.Objects.Total()
	n.Errors, n.Warnings = n.Errors+all.Errors, n.Warnings+all.Warnings
	found, more := p.Objects.Found.All()
	for _, one := range found {
		n.Add(one.Severity, 1)
	}
	n.Warnings += more // few of them are errors, because errors come first in each list
	return n
}

// found returns the problems that other replicas found, while this process leads. It leaves out the problems in own,
// which planning found in this process.
func (o *Objects) found(sees authz.Visible, own map[model.Problem]bool) (all []inspect.Problem) {
	found, more := o.Found.All()
	for _, one := range found {
		if own[one.Problem] || !sees.Of(one.Key.Namespace) {
			continue
		}
		at := "replica " + one.First
		if one.Replicas > 1 {
			at += fmt.Sprintf(" and %d more", one.Replicas-1)
		}
		p := problemOf(one.Problem, sees)
		p.Location = at
		all = append(all, p)
	}
	if more > 0 && sees.Of("") {
		all = append(all, inspect.Problem{Object: "replicas", Location: "etcd", Code: problem.NotAllowed, Severity: problem.Warning,
			Message: fmt.Sprintf("%d problems that replicas found are not listed here: /debug/problems of each replica lists its own", more)})
	}
	return all
}

// Reported returns the visible problems without those that planning found. They are problems of sources and objects,
// problems of the store and its records, and refusals by proxies. Reported is cheap. The result is never nil.
func (p *Pages) Reported(sees authz.Visible) []inspect.Problem {
	all := []inspect.Problem{}
	if p.Objects != nil {
		all = append(all, p.Objects.reported(sees)...)
	}
	if p.Proxies != nil {
		all = append(all, p.Proxies.unreadable(sees)...)
	}
	if p.Store != nil && sees.Of("") {
		all = append(all, p.Store()...)
	}
	if p.Proxies != nil {
		all = append(all, p.Proxies.reported(sees)...)
	}
	return all
}

// reported returns the visible problems of the sources and their objects.
func (o *Objects) reported(sees authz.Visible) (all []inspect.Problem) {
	for _, list := range [][]object.Problem{o.Sources(), o.Loop()} {
		for _, one := range list {
			if !sees.Of(ingest.NamespaceOf(one)) {
				continue
			}
			all = append(all, inspect.Problem{Object: Named(one.ID), Location: one.Location,
				Field: one.Field, Code: one.Code, Analyzer: one.Analyzer, Severity: one.Severity,
				Message: messageFor(sees, one.Message, one.Full())})
		}
	}
	return all
}

// unreadable returns a problem for each visible record that cannot be decoded.
func (p *Proxies) unreadable(sees authz.Visible) (all []inspect.Problem) {
	for _, one := range p.Mirror.Status().Problems {
		if key, _ := model.ParsePath(one.Path); !sees.Of(key.Namespace) {
			continue
		}
		all = append(all, inspect.Problem{Object: "records/" + one.Path,
			Location: "etcd", Code: problem.Unreadable, Severity: severity(one.Kept), Message: one.String()})
	}
	return all
}

// reported returns the visible problems of the records as a whole, and of records that are not planned. It also returns
// a problem for each refused or withheld version of a resource.
func (p *Proxies) reported(sees authz.Visible) (all []inspect.Problem) {
	if sees.Of("") {
		all = append(all, contentsProblems(p.Mirror.Status())...)
	}
	for _, one := range p.Mirror.Status().Unknown {
		if sees.Of(one.Namespace) {
			all = append(all, inspect.Problem{Object: "records/" + one.Path,
				Location: "etcd", Code: problem.NotSupported, Severity: severity(!one.Closing), Message: one.String()})
		}
	}
	for _, one := range p.Planner.SetAside() {
		if sees.Of(one.Key.Namespace) {
			all = append(all, problemOf(one, sees))
		}
	}
	all = append(all, refused(p.Server.RefusalsOf(sees.Of))...)
	return append(all, withheld(p.Server.Withheld(), sees)...)
}

// contentsProblems returns the problems of the store and of the stored records as a whole.
func contentsProblems(s mirror.Status) (all []inspect.Problem) {
	if s.Alarm != nil {
		all = append(all, inspect.Problem{Object: "head", Location: "etcd",
			Code: problem.Held, Severity: problem.Error, Message: s.Alarm.Error()})
	}
	for _, one := range s.Held {
		all = append(all, inspect.Problem{Object: "records/" + one.Kind,
			Location: "etcd", Code: problem.Held, Severity: problem.Error, Message: one.String()})
	}
	if s.Unchecked != "" {
		all = append(all, inspect.Problem{Object: "head", Location: "etcd", Code: problem.Unreadable,
			Severity: problem.Warning, Message: "changes of the store by processes other than the leader are not detected: " + s.Unchecked})
	}
	return all
}
