package normal

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Check looks at records side by side: destinations without a service, subsets without a rule, several objects for one
// host. All of it are warnings, in the order of the records' owners; Location is for the caller to fill in.
func Check(records iter.Seq[model.Record]) []object.Problem {
	w := newRecordIndex(records)
	var out []object.Problem
	for _, vs := range w.virtualServices {
		out = append(out, unknownDestinations(vs, w)...)
	}
	for _, rule := range w.rules {
		out = append(out, unknownHost(rule, w)...)
	}
	out = append(out, w.conflicts()...)
	slices.SortFunc(out, CompareProblems)
	return out
}

// CompareProblems orders problems by object, then field, then message.
func CompareProblems(a, b object.Problem) int {
	return cmp.Or(cmp.Compare(a.ID.Namespace, b.ID.Namespace), cmp.Compare(a.ID.Kind, b.ID.Kind), cmp.Compare(a.ID.Name, b.ID.Name),
		cmp.Compare(a.ID.Group, b.ID.Group), a.ID.Origin.Compare(b.ID.Origin), cmp.Compare(a.Location, b.Location), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
}

// recordIndex is the records that Check looks at, each list by age.
type recordIndex struct {
	services        map[string][]*model.Service // by host
	wildcards       []string                    // hosts of services that start with *
	virtualServices []*model.VirtualService
	rules           []*model.DestinationRule
	subsets         map[string]map[string]bool // host -> names
	wildRules       []string                   // hosts of rules that start with *
}

func newRecordIndex(records iter.Seq[model.Record]) *recordIndex {
	w := &recordIndex{services: map[string][]*model.Service{}, subsets: map[string]map[string]bool{}}
	for r := range records {
		switch t := r.(type) {
		case *model.Service:
			for _, h := range t.Spec.Hosts {
				w.services[h] = append(w.services[h], t)
				if strings.HasPrefix(h, "*") {
					w.wildcards = append(w.wildcards, h)
				}
			}
		case *model.VirtualService:
			w.virtualServices = append(w.virtualServices, t)
		case *model.DestinationRule:
			w.rules = append(w.rules, t)
			if w.subsets[t.Spec.Host] == nil {
				w.subsets[t.Spec.Host] = map[string]bool{}
				if strings.HasPrefix(t.Spec.Host, "*") {
					w.wildRules = append(w.wildRules, t.Spec.Host)
				}
			}
			for _, s := range t.Spec.Subsets {
				w.subsets[t.Spec.Host][s.Name] = true
			}
		}
	}
	slices.SortFunc(w.virtualServices, func(a, b *model.VirtualService) int { return a.Older(&b.Head) })
	slices.SortFunc(w.rules, func(a, b *model.DestinationRule) int { return a.Older(&b.Head) })
	for _, all := range w.services {
		slices.SortFunc(all, func(a, b *model.Service) int { return a.Older(&b.Head) })
	}
	return w
}

// named implements index.
func (w *recordIndex) named(host string) []*model.Service { return w.services[host] }

// known implements index.
func (w *recordIndex) known(host string) bool {
	return len(w.services[host]) > 0 || coveredBy(host, w.wildcards)
}

// subsetsOf implements index.
func (w *recordIndex) subsetsOf(host string) (map[string]bool, bool) {
	all, found := w.subsets[host]
	for _, of := range w.wildRules {
		if of == host || !coveredBy(host, []string{of}) {
			continue
		}
		merged := maps.Clone(w.subsets[of])
		maps.Copy(merged, all)
		all, found = merged, true
	}
	return all, found
}

// conflicts finds hosts that several objects claim, where one of them wins for the same clients.
func (w *recordIndex) conflicts() []object.Problem {
	var out []object.Problem
	claimed := map[string]*model.VirtualService{}
	for _, vs := range w.virtualServices {
		if len(vs.Spec.Http) == 0 {
			continue // tcp and tls rules of several are merged; which of them are hidden is told where they are planned
		}
		for _, gw := range vs.Spec.Gateways {
			if gw != "mesh" {
				continue // those are merged
			}
			for _, host := range vs.Spec.Hosts {
				first := claimed[host]
				if first == nil {
					claimed[host] = vs
				} else if overlap(first.Spec.ExportTo, vs.Spec.ExportTo) {
					out = append(out, between(vs, problem.Duplicate, "spec.hosts", "host %q is claimed by the older %v too, whose http rules win for sidecars that see both", host, first.Key))
				}
			}
		}
	}
	ruled := map[string]*model.DestinationRule{}
	for _, rule := range w.rules {
		key := rule.Key.Namespace + "/" + rule.Spec.Host
		if rule.Spec.WorkloadSelector != nil {
			continue // may stand beside a general one
		}
		if first := ruled[key]; first == nil {
			ruled[key] = rule
		} else {
			out = append(out, between(rule, problem.Duplicate, "spec.host", "host %q has the older %v too: its trafficPolicy and its subsets of the same name win", rule.Spec.Host, first.Key))
		}
	}
	for _, host := range sortedKeys(w.services) {
		out = append(out, sharedHost(host, w.services[host])...)
	}
	return out
}

// sharedHost finds what services of one host, the oldest first, have in vain because of others of their namespace.
func sharedHost(host string, services []*model.Service) (out []object.Problem) {
	first := map[string]*model.Service{}
	for i, s := range services {
		older := first[s.Key.Namespace]
		switch {
		case older == nil:
			first[s.Key.Namespace] = s
		case older.Key.Kind == s.Key.Kind && older.Key.Name == s.Key.Name: // that of another cluster is the same service
		case !model.Joins(older, s):
			out = append(out, between(s, problem.Duplicate, hostField(s), "host %q is claimed by the older %v of the same namespace too", host, older.Key))
		default:
			out = append(out, sharedPorts(host, s, services[:i])...)
		}
	}
	return out
}

// sharedPorts finds ports of a ServiceEntry that older ones of its host have, and say otherwise.
func sharedPorts(host string, s *model.Service, older []*model.Service) (out []object.Problem) {
	for _, p := range s.Spec.GetPorts() {
		for _, o := range older {
			i := slices.IndexFunc(o.Spec.GetPorts(), func(q *model.ServicePort) bool { return q.GetNumber() == p.GetNumber() })
			if i < 0 || !model.Joins(o, s) {
				continue
			}
			if q := o.Spec.GetPorts()[i]; q.GetName() != p.GetName() || q.GetProtocol() != p.GetProtocol() {
				out = append(out, between(s, problem.Duplicate, "spec.ports", "port %d of host %q is that of the older %v, with its name and protocol; endpoints of another name are not used",
					p.GetNumber(), host, o.Key))
			}
			break
		}
	}
	return out
}

func hostField(s *model.Service) string {
	if s.Key.Kind == model.KindServiceEntry {
		return "spec.hosts"
	}
	return "metadata.name"
}

// overlap says whether two exportTo lists have a namespace in common.
func overlap(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if x != "~" && y != "~" && (x == "*" || y == "*" || x == y) {
				return true
			}
		}
	}
	return false
}

func between(of model.Record, code problem.Code, field, format string, args ...any) object.Problem {
	return object.Problem{ID: SourceObject(of.Meta().Key), Field: field, Code: code, Severity: problem.Warning, Message: fmt.Sprintf(format, args...)}
}
