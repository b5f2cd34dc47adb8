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

// unreadyDestinations warns of routes of a VirtualService to a service without ready endpoints. It ignores mirrors. If
// a route has several destinations, it ignores those of weight 0.
func unreadyDestinations(x *examination) {
	for path, host := range routed(x.record.(*model.VirtualService).Spec) {
		if len(x.problems) == maxProblems {
			return
		}
		if x.unready(host) {
			fails := "requests to it are answered 503"
			if !strings.HasPrefix(path, "spec.http") {
				fails = "connections to it are closed"
			}
			x.found(problem.RouteWithoutEndpoints, problem.NotFound, path, "service %q has no ready endpoint: %s", host, fails)
		}
	}
}

// unready reports whether a host has services, but no ready endpoint. The result is false if Envoy does not get the
// endpoints of each such service by EDS. For an alias (a Service of type ExternalName), the services of the target host
// are examined instead. A Service in a namespace without any EndpointSlice is not reported, because the configuration
// may come from files without EndpointSlices.
func (x *examination) unready(host string) bool {
	services := x.services(host)
	if len(services) > 0 && services[0].Spec.GetAliasFor() != "" {
		host = services[0].Spec.GetAliasFor()
		services = x.services(host)
	}
	if len(services) == 0 || x.has(fact{kind: readyHost, name: host}) {
		return false
	}
	return !slices.ContainsFunc(services[:min(len(services), maxCompared)], func(svc *model.Service) bool {
		if svc.Spec.GetResolution() != model.Resolution_RESOLUTION_EDS || svc.Spec.GetAliasFor() != "" {
			return true
		}
		if svc.Key.Kind == model.KindService {
			return !x.has(fact{kind: knownEndpoints, namespace: svc.Key.Namespace})
		}
		return len(svc.Spec.GetSelector()) > 0 && (x.watch(svc.Key.Namespace, svc.Spec.GetSelector()).count > 0 || x.of.watches.total == 0)
	})
}

// routed yields the hosts to which a VirtualService sends requests, each after the path of its field. It leaves out
// wildcards. If a route has several destinations, it leaves out those of weight 0.
func routed(vs *networkingv1.VirtualService) iter.Seq2[string, string] {
	return func(yield func(path, host string) bool) {
		send := func(rules string, i, j, of int, weight int32, d *networkingv1.Destination) bool {
			if d == nil || of > 1 && weight == 0 || strings.HasPrefix(d.GetHost(), "*") {
				return true
			}
			return yield(fmt.Sprintf("spec.%s[%d].route[%d].destination.host", rules, i, j), d.GetHost())
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
