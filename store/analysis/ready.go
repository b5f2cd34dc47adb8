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

// ofReadyEndpoints returns the facts about the namespace of an EndpointSlice, and about the hosts of Endpoints with a
// ready endpoint.
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

// unreadyDestinations warns of routes of a VirtualService to a service without ready endpoints. Mirrors are left out,
// and so are destinations of weight 0 beside others.
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

// unready reports whether a host has services, but no ready endpoint. It is false unless Envoy gets the endpoints of
// all these services by EDS. For an alias (ExternalName) the services of its target count. A Service in a namespace
// without any EndpointSlice is not reported, because the configuration may come from files without EndpointSlices.
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

// routed yields the hosts to which a VirtualService sends requests, with the paths of their fields. Wildcards are left
// out, and so are destinations of weight 0 beside others.
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
