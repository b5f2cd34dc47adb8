package analysis

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/problem"
)

// ofReadyEndpoints returns the facts of an Endpoints record about readiness. If the record comes from an EndpointSlice,
// its namespace is a fact. If the record has a ready endpoint, each of its hosts is a fact.
func ofReadyEndpoints(r model.Record) iter.Seq[fact] {
	key, spec := r.Meta().Key, r.(*model.Endpoints).Spec
	ready := func(e *model.Endpoint) bool { return e.GetHealth() == model.Health_HEALTH_READY }
	return func(yield func(fact) bool) {
		if normal.SourceObject(key).Kind == "EndpointSlice" && !yield(fact{kind: knownEndpoints, namespace: key.Namespace}) ||
			!slices.ContainsFunc(spec.GetEndpoints(), ready) {
			return
		}
		for _, host := range spec.GetHosts() {
			if !yield(fact{kind: readyHost, name: host}) {
				return
			}
		}
	}
}

// unreadyDestinations warns of routes of a VirtualService to a service, or to a subset, without ready endpoints. It
// ignores mirrors. If a route has several destinations, it ignores those of weight 0. It compares the endpoints of at
// most maxCompared subsets.
func unreadyDestinations(x *examination) {
	type subset struct{ host, name string }
	unready := map[subset]bool{}
	for path, to := range routed(x.record.(*model.VirtualService).Spec) {
		if len(x.problems) == maxProblems {
			return
		}
		fails := "requests to it are answered 503"
		if !strings.HasPrefix(path, "spec.http") {
			fails = "connections to it are closed"
		}
		if x.unready(to.GetHost()) {
			x.found(problem.RouteWithoutEndpoints, problem.NotFound, path+".host", "service %q has no ready endpoint: %s",
				to.GetHost(), fails)
			continue
		}
		of := subset{to.GetHost(), to.GetSubset()}
		is, known := unready[of]
		if !known && of.name != "" && len(unready) < maxCompared {
			is = x.unreadySubset(of.host, of.name)
			unready[of] = is
		}
		if is {
			x.found(problem.RouteWithoutEndpoints, problem.NotFound, path+".subset",
				"subset %q of service %q has no ready endpoint: %s", of.name, of.host, fails)
		}
	}
}

// unready reports whether a host has services whose endpoints are known, but no ready endpoint. For an alias (a Service
// of type ExternalName), the services of the target host are examined instead.
func (x *examination) unready(host string) bool {
	services := x.services(host)
	if len(services) > 0 && services[0].Spec.GetAliasFor() != "" {
		host = services[0].Spec.GetAliasFor()
		services = x.services(host)
	}
	return !x.has(fact{kind: readyHost, name: host}) && x.countable(services, nil)
}

// unreadySubset reports whether a subset of a host has no ready endpoint, although the endpoints of the host are known.
// If several DestinationRules have a subset of this name, the result is true only if none of them selects a ready
// endpoint. The result is false if no rule has the subset.
func (x *examination) unreadySubset(host, name string) bool {
	services := x.services(host)
	found := false
	for of := range model.Covering(host) {
		for _, r := range x.with(fact{kind: ruleOfHost, name: of}) {
			all := r.(*model.DestinationRule).Spec.GetSubsets()
			at, has := subsetOf(all, name)
			if !has {
				continue
			}
			if found = true; !x.countable(services, all[at].GetLabels()) || x.readyWith(host, all[at].GetLabels()) {
				return false
			}
		}
	}
	return found
}

// readyWith reports whether a host has a ready endpoint with these labels.
func (x *examination) readyWith(host string, labels map[string]string) bool {
	return slices.ContainsFunc(x.with(fact{kind: endpointsOfHost, name: host}), func(r model.Record) bool {
		return slices.ContainsFunc(r.(*model.Endpoints).Spec.GetEndpoints(), func(e *model.Endpoint) bool {
			return e.GetHealth() == model.Health_HEALTH_READY && model.Selects(labels, e)
		})
	})
}

// countable reports whether all those endpoints of the services that have the given labels are stored as records. The
// result is false without services, and if Envoy gets the endpoints of a service in another way than by EDS. It is
// false for a Service in a namespace without any EndpointSlice, because the configuration may come from files without
// EndpointSlices. It is also false for a ServiceEntry that selects a workload with these labels, because the workload's
// endpoint is not stored.
func (x *examination) countable(services []*model.Service, labels map[string]string) bool {
	return len(services) > 0 && !slices.ContainsFunc(services[:min(len(services), maxCompared)], func(svc *model.Service) bool {
		if svc.Spec.GetResolution() != model.Resolution_RESOLUTION_EDS || svc.Spec.GetAliasFor() != "" {
			return true
		}
		if svc.Key.Kind == model.KindService {
			return !x.has(fact{kind: knownEndpoints, namespace: svc.Key.Namespace})
		}
		// selects(svc, nil) always adds a watch, which notices a change of total. With labels that contradict the
		// selector, selects adds none.
		return len(svc.Spec.GetSelector()) > 0 && (x.selects(svc, nil) && x.selects(svc, labels) || x.of.watches.total == 0)
	})
}

// routed yields the destinations to which a VirtualService sends requests, each with the path of its field. It leaves
// out wildcards. If a route has several destinations, it leaves out those of weight 0.
func routed(vs *networkingv1.VirtualService) iter.Seq2[string, *networkingv1.Destination] {
	return func(yield func(path string, to *networkingv1.Destination) bool) {
		send := func(rules string, i, j, of int, weight int32, d *networkingv1.Destination) bool {
			if d == nil || of > 1 && weight == 0 || strings.HasPrefix(d.GetHost(), "*") {
				return true
			}
			return yield(fmt.Sprintf("spec.%s[%d].route[%d].destination", rules, i, j), d)
		}
		for i, rule := range vs.GetHttp() {
			for j, to := range rule.GetRoute() {
				if !send("http", i, j, len(rule.GetRoute()), to.GetWeight(), to.GetDestination()) {
					return
				}
			}
		}
		for i, rule := range vs.GetTls() {
			for j, to := range rule.GetRoute() {
				if !send("tls", i, j, len(rule.GetRoute()), to.GetWeight(), to.GetDestination()) {
					return
				}
			}
		}
		for i, rule := range vs.GetTcp() {
			for j, to := range rule.GetRoute() {
				if !send("tcp", i, j, len(rule.GetRoute()), to.GetWeight(), to.GetDestination()) {
					return
				}
			}
		}
	}
}
