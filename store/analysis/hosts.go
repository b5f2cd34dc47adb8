package analysis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/problem"
)

// services returns the services with exactly this host, the oldest first. A wildcard equals only the same wildcard.
func (x *examination) services(host string) (all []*model.Service) {
	for _, r := range x.with(fact{kind: serviceOfHost, name: host}) {
		all = append(all, r.(*model.Service))
	}
	return all
}

// hasService reports whether a service has the host itself, or a wildcard that covers the host.
func (x *examination) hasService(host string) bool {
	for of := range model.Covering(host) {
		if len(x.with(fact{kind: serviceOfHost, name: of})) > 0 {
			return true
		}
	}
	return false
}

// hasSubset reports whether a DestinationRule for the host, or for a wildcard that covers the host, has the named
// subset. The second result reports whether there is any such rule. The subsets of a record are sorted by name.
func (x *examination) hasSubset(host, name string) (is, found bool) {
	for of := range model.Covering(host) {
		for _, r := range x.with(fact{kind: ruleOfHost, name: of}) {
			_, has := subsetOf(r.(*model.DestinationRule).Spec.GetSubsets(), name)
			is, found = is || has, true
		}
	}
	return is, found
}

// subsetOf returns the index of the named subset. The result has is false if there is no such subset. The subsets must
// be sorted by name.
func subsetOf(all []*networkingv1.Subset, name string) (at int, has bool) {
	return slices.BinarySearchFunc(all, name, func(s *networkingv1.Subset, name string) int { return strings.Compare(s.GetName(), name) })
}

// unknownHost warns of a DestinationRule if no service has its host. Rules for wildcards are not checked.
func unknownHost(x *examination) {
	host := x.record.(*model.DestinationRule).Spec.GetHost()
	if !strings.HasPrefix(host, "*") && !x.hasService(host) {
		x.found(problem.UnknownDestinationRuleHost, problem.NotFound, "spec.host", "no service has host %q", host)
	}
}

// unknownDestinations warns of destinations of a VirtualService whose host, port or subset does not exist.
func unknownDestinations(x *examination) {
	normal.Destinations(x.record.(*model.VirtualService).Spec, func(path string, d *networkingv1.Destination) {
		if len(x.problems) == maxProblems {
			return
		}
		missing := func(field, format string, args ...any) {
			x.found(problem.ReferencedResourceNotFound, problem.NotFound, path+field, format, args...)
		}
		if !x.hasService(d.GetHost()) {
			missing(".host", "no service has host %q: requests to it fail", d.GetHost())
			return
		}
		services := x.services(d.GetHost())
		if d.GetPort() == nil && len(services) > 0 && len(services[0].Spec.GetPorts()) == 0 {
			missing(".port", "service %q has no ports", d.GetHost())
		} else if d.GetPort() != nil && len(services) > 0 && !hasPort(services, d.GetPort().GetNumber()) {
			missing(".port.number", "service %q has no port %d", d.GetHost(), d.GetPort().GetNumber())
		}
		if d.GetSubset() == "" {
			return
		}
		has, found := x.hasSubset(d.GetHost(), d.GetSubset())
		switch {
		case !found:
			missing(".subset", "subset %q: no DestinationRule for host %q", d.GetSubset(), d.GetHost())
		case !has:
			missing(".subset", "no DestinationRule for host %q has a subset %q", d.GetHost(), d.GetSubset())
		}
	})
}

// hasPort reports whether one of the services has a port with this number.
func hasPort(services []*model.Service, number uint32) bool {
	return slices.ContainsFunc(services, func(s *model.Service) bool { return portOf(s, number) != nil })
}

// emptySubsets warns of a subset if no endpoint of the host has the subset's labels. It does not warn for a wildcard
// host or a host without endpoints. If a service has a selector, the workloads that match the selector count as
// endpoints.
func emptySubsets(x *examination) {
	spec := x.record.(*model.DestinationRule).Spec
	if strings.HasPrefix(spec.GetHost(), "*") || len(spec.GetSubsets()) == 0 {
		return
	}
	endpoints := x.with(fact{kind: endpointsOfHost, name: spec.GetHost()})
	services := x.services(spec.GetHost())
	services = services[:min(len(services), maxCompared)]
	reached := func(labels map[string]string) bool {
		for _, r := range endpoints {
			for _, e := range r.(*model.Endpoints).Spec.GetEndpoints() {
				if model.Selects(labels, e) {
					return true
				}
			}
		}
		for _, svc := range services {
			if len(svc.Spec.GetSelector()) > 0 && x.selects(svc, labels) {
				return true
			}
		}
		return false
	}
	if !reached(nil) {
		return
	}
	for i, s := range spec.GetSubsets()[:min(len(spec.GetSubsets()), maxCompared)] {
		if len(s.GetLabels()) > 0 && !reached(s.GetLabels()) {
			x.found(problem.DestinationRuleSubsetNotSelectPods, problem.NotFound, fmt.Sprintf("spec.subsets[%d].labels", i),
				"no endpoint of host %q has the labels %s: requests to subset %q fail", spec.GetHost(), text(s.GetLabels()), s.GetName())
		}
	}
}

// selects reports whether the selector of a service matches a workload that has the labels of a subset. Labels for the
// endpoint's place, such as the locality, are not compared.
func (x *examination) selects(svc *model.Service, labels map[string]string) bool {
	own := maps.Clone(labels)
	maps.DeleteFunc(own, func(key, _ string) bool { return model.PlaceLabel(key) })
	all, ok := union(svc.Spec.GetSelector(), own)
	return ok && x.watch(svc.Key.Namespace, all).count > 0
}

// union returns a selector that matches exactly the workloads that match both a and b. It returns false if a and b need
// different values of one label.
func union(a, b map[string]string) (map[string]string, bool) {
	if model.Contradict(a, b) {
		return nil, false
	}
	all := make(map[string]string, len(a)+len(b))
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all, true
}
