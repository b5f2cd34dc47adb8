package normal

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/util/validation"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Most rules in this file are rules of Istio's webhook. Istio documents them here:
// https://istio.io/latest/docs/reference/config/networking/virtual-service/

// checkVirtualService validates a VirtualService.
func checkVirtualService(r *report, vs *networkingv1.VirtualService) {
	delegate := len(vs.Hosts) == 0
	for i, h := range vs.Hosts {
		if wrong := wildcardHost(h); wrong != "" {
			r.errorf(fmt.Sprintf("spec.hosts[%d]", i), "%q %s", h, wrong)
		} else if !isIP(h) {
			r.hostname(fmt.Sprintf("spec.hosts[%d]", i), h)
		}
	}
	if delegate && (len(vs.Gateways) > 0 || len(vs.Tls) > 0 || len(vs.Tcp) > 0) {
		r.errorf("spec.hosts", "must not be empty (one without hosts is a delegate: http routes only, no gateways)")
	}
	hosts := indexHosts(vs.Hosts)
	checkHostsDiffer(r, vs, hosts)
	checkLabels(r, vs)
	checkGateways(r, "spec.gateways", vs.Gateways)
	if len(vs.Http)+len(vs.Tls)+len(vs.Tcp) == 0 {
		r.requiredf("spec", "at least one of http, tls and tcp is needed")
	}
	for i, h := range vs.Http {
		checkHTTPRoute(r, fmt.Sprintf("spec.http[%d]", i), h, delegate)
	}
	checkRegexCost(r, vs)
	for i, t := range vs.Tls {
		checkTLSRoute(r, fmt.Sprintf("spec.tls[%d]", i), hosts, t)
	}
	for i, t := range vs.Tcp {
		at := fmt.Sprintf("spec.tcp[%d]", i)
		for j, m := range t.Match {
			checkL4(r, fmt.Sprintf("%s.match[%d]", at, j), m.DestinationSubnets, m.Port, m.Gateways, m.SourceLabels)
		}
		checkRoutes(r, at, t.Route)
	}
	checkClaims(r, vs)
	checkUnreachable(r, vs)
	Destinations(vs, func(path string, d *networkingv1.Destination) {
		switch wrong := wildcardHost(d.Host); {
		case d.Host == "*":
			r.errorf(path+".host", "%q matches every host: want one host", d.Host)
		case wrong != "":
			r.errorf(path+".host", "%q %s", d.Host, wrong)
		default:
			r.hostname(path+".host", d.Host)
		}
		if d.Port != nil {
			r.port(path+".port.number", d.Port.Number)
		}
		if d.Subset != "" && len(validation.IsDNS1123Label(strings.ToLower(d.Subset))) > 0 {
			r.errorf(path+".subset", "%q is no valid name", d.Subset)
		}
	})
}

// mostLabels is the largest number of labels in the different hosts and destinations of a VirtualService. A label with
// dashes counts as several. The bound limits the cost of looking up the wildcards that cover a host.
const mostLabels = 65_536

// checkLabels refuses a VirtualService whose hosts and destinations exceed mostLabels.
func checkLabels(r *report, vs *networkingv1.VirtualService) {
	seen, labels := map[string]bool{}, 0
	count := func(host string) {
		if !seen[host] {
			seen[host] = true
			labels += 1 + strings.Count(host, ".") + strings.Count(host, "-")
		}
	}
	for _, h := range vs.Hosts {
		count(h)
	}
	Destinations(vs, func(_ string, d *networkingv1.Destination) { count(d.Host) })
	if labels > mostLabels {
		r.errorf("spec.hosts", "the hosts and destinations have %d labels and parts between dashes: want at most %d in different names",
			labels, mostLabels)
	}
}

// checkHostsDiffer refuses a VirtualService with equal hosts, or with a host that covers another host. It also refuses
// the host "*" in a VirtualService for sidecars. Istio's webhook does the same, but istiod applies such a
// VirtualService if it is stored.
func checkHostsDiffer(r *report, vs *networkingv1.VirtualService, hosts hostIndex) {
	mesh := len(vs.Gateways) == 0 || slices.Contains(vs.Gateways, "mesh")
	earlier := map[int]int{} // from the index of a host to that of an earlier host that overlaps it
	for i, h := range vs.Hosts {
		if j := hosts.first[hostOf(h)]; j != i {
			earlier[i] = j
		}
		for _, j := range hosts.wildcards(h) {
			earlier[max(i, j)] = min(i, j)
		}
	}
	for i, h := range vs.Hosts {
		at := fmt.Sprintf("spec.hosts[%d]", i)
		if h == "*" && mesh {
			r.refusef(problem.Invalid, at, `"*" is for gateways: sidecars have no host for everything`)
		}
		if j, is := earlier[i]; is {
			r.refusef(problem.Duplicate, at, "%q and %q stand for the same hosts", h, vs.Hosts[j])
		}
	}
}

// checkClaims warns of matches on token claims in rules for sidecars, because a sidecar routes a request before it
// verifies the token. As in Istio's webhook, a VirtualService for sidecars only is refused. A delegate gets only
// warnings, because the VirtualService that uses the delegate states the gateways.
func checkClaims(r *report, vs *networkingv1.VirtualService) {
	forMesh := func(gateways []string) bool { return len(gateways) == 0 || slices.Contains(gateways, "mesh") }
	if !forMesh(vs.Gateways) {
		return
	}
	say := r.warnf
	if len(vs.Hosts) > 0 && !slices.ContainsFunc(vs.Gateways, func(name string) bool { return name != "mesh" }) {
		say = r.refusef
	}
	for i, h := range vs.Http {
		for j, m := range h.Match {
			if !forMesh(m.GetGateways()) {
				continue
			}
			for _, of := range []struct {
				field, means string
				by           map[string]*networkingv1.StringMatch
			}{{"headers", "matches no request", m.GetHeaders()}, {"withoutHeaders", "excludes no request", m.GetWithoutHeaders()}} {
				for _, name := range sortedKeys(of.by) {
					if _, claim := model.RoutedClaim(name); claim {
						say(problem.NoEffect, fmt.Sprintf("spec.http[%d].match[%d].%s[%s]", i, j, of.field, name),
							"%s in sidecars, which do not know the claims of tokens in their workload's requests; only gateways do", of.means)
					}
				}
			}
		}
	}
}

// checkGateways validates names of Gateways.
func checkGateways(r *report, path string, names []string) {
	for i, name := range names {
		ns, rest, slashed := strings.Cut(name, "/")
		if !slashed {
			ns, rest = ".", name
		}
		bad := len(validation.IsDNS1123Subdomain(rest)) > 0 || ns != "." && len(validation.IsDNS1123Label(ns)) > 0
		switch at := fmt.Sprintf("%s[%d]", path, i); {
		case name != "mesh" && bad:
			r.errorf(at, "%q is no gateway: want mesh, name, or namespace/name", name)
		case slashed && ns == ".":
			r.refusef(problem.Invalid, at, "%q: write the VirtualService's own namespace by its name, or leave it out", name)
		case slashed:
			r.name(at, rest)
		}
	}
}

// checkHTTPRoute validates one http route. The argument delegate reports whether the VirtualService is a delegate (has
// no hosts).
func checkHTTPRoute(r *report, at string, h *networkingv1.HTTPRoute, delegate bool) {
	var actions []string
	for name, has := range map[string]bool{"route": len(h.Route) > 0, "redirect": h.Redirect != nil,
		"directResponse": h.DirectResponse != nil} {
		if has {
			actions = append(actions, name)
		}
	}
	actions = sortedSet(actions)
	switch {
	case h.Delegate != nil && delegate:
		r.errorf(at+".delegate", "a delegate cannot delegate")
	case h.Delegate != nil && len(actions) > 0:
		r.errorf(at+".delegate", "cannot be combined with %s", strings.Join(actions, ", "))
	case h.Delegate == nil && len(actions) == 0:
		r.requiredf(at, "exactly one of route, redirect and directResponse is needed")
	case len(actions) > 1:
		r.errorf(at, "exactly one of route, redirect and directResponse is needed, not %s", strings.Join(actions, " and "))
	}
	if h.Delegate != nil && h.Delegate.Name == "" {
		r.warnf(problem.NoEffect, at+".delegate.name", "is empty: no VirtualService is meant, and the rule is left out")
	}
	r.oneLine(at+".name", h.Name)
	for i, m := range h.Match {
		r.oneLine(fmt.Sprintf("%s.match[%d].name", at, i), m.GetName())
		checkHTTPMatch(r, fmt.Sprintf("%s.match[%d]", at, i), m)
	}
	checkHTTPDestinations(r, at, h)
	checkRedirect(r, at, h)
	checkDirectResponse(r, at, h)
	r.duration1ms(at+".timeout", h.Timeout, true)
	checkRetries(r, at+".retries", h.Retries)
	checkFault(r, at+".fault", h.Fault)
	checkHeaders(r, at+".headers", h.Headers, ":authority", "host")
	checkMirrors(r, at, h)
	checkRewrite(r, at+".rewrite", h.Rewrite)
	checkAuthority(r, at, h)
	checkCORS(r, at+".corsPolicy", h.CorsPolicy)
}

// checkHTTPDestinations validates the destinations of an http route and their weights.
func checkHTTPDestinations(r *report, at string, h *networkingv1.HTTPRoute) {
	total := 0
	for i, d := range h.Route {
		path := fmt.Sprintf("%s.route[%d]", at, i)
		if d.Destination == nil {
			r.requiredf(path+".destination", "must not be empty")
		}
		total += checkWeight(r, path, d.Weight)
		checkHeaders(r, path+".headers", d.Headers, ":authority", "host")
	}
	checkTotalWeight(r, at, len(h.Route), total)
}

// checkWeight validates a weight, and returns the weight as an int.
func checkWeight(r *report, path string, weight int32) int {
	if weight < 0 {
		r.errorf(path+".weight", "must not be negative")
	}
	return int(weight)
}

// checkTotalWeight validates the sum of the weights of a rule's routes.
func checkTotalWeight(r *report, at string, routes, total int) {
	if routes > 1 && total == 0 && !r.spoiled {
		r.errorf(at+".route", "the sum of the weights is 0")
	}
}

// checkRoutes validates the destinations of a tls or tcp rule, and their weights.
func checkRoutes(r *report, at string, routes []*networkingv1.RouteDestination) {
	if len(routes) == 0 {
		r.requiredf(at+".route", "must not be empty")
	}
	total := 0
	for i, d := range routes {
		path := fmt.Sprintf("%s.route[%d]", at, i)
		if d.Destination == nil {
			r.requiredf(path+".destination", "must not be empty")
		}
		total += checkWeight(r, path, d.Weight)
	}
	checkTotalWeight(r, at, len(routes), total)
}

// checkHTTPMatch validates one match of an http route.
func checkHTTPMatch(r *report, at string, m *networkingv1.HTTPMatchRequest) {
	checkPath(r, at+".uri", m.Uri)
	checkString(r, at+".scheme", m.Scheme)
	checkString(r, at+".method", m.Method)
	checkString(r, at+".authority", m.Authority)
	for _, of := range []struct {
		field string
		by    map[string]*networkingv1.StringMatch
	}{{"headers", m.Headers}, {"withoutHeaders", m.WithoutHeaders}, {"queryParams", m.QueryParams}} {
		for _, name := range sortedKeys(of.by) {
			path := fmt.Sprintf("%s.%s[%s]", at, of.field, name)
			if of.field != "queryParams" {
				checkMatchedHeader(r, path, name)
			}
			// In withoutHeaders, the regex "*" is Istio's notation for any value, and not an expression.
			if of.field != "withoutHeaders" || of.by[name].GetRegex() != "*" {
				checkString(r, path, of.by[name])
			}
		}
	}
	if m.Port != 0 {
		r.port(at+".port", m.Port)
	}
	r.labels(at+".sourceLabels", m.SourceLabels)
	if m.SourceNamespace != "" {
		r.name(at+".sourceNamespace", m.SourceNamespace)
	}
	checkGateways(r, at+".gateways", m.Gateways)
}

// checkTLSRoute validates one tls route. The argument hosts is the index of the VirtualService's hosts.
func checkTLSRoute(r *report, at string, hosts hostIndex, t *networkingv1.TLSRoute) {
	if len(t.Match) == 0 {
		r.requiredf(at+".match", "must not be empty")
	}
	for j, m := range t.Match {
		path := fmt.Sprintf("%s.match[%d]", at, j)
		if len(m.SniHosts) == 0 {
			r.requiredf(path+".sniHosts", "must not be empty")
		}
		for k, sni := range m.SniHosts {
			field := fmt.Sprintf("%s.sniHosts[%d]", path, k)
			switch wrong := wildcardHost(sni); {
			case wrong != "":
				r.errorf(field, "%q %s", sni, wrong)
			case isIP(sni):
				r.warnf(problem.NoEffect, field, "%q is an address: clients send no addresses as SNI (RFC 6066, 3)", sni)
			case !hosts.covers(sni):
				r.errorf(field, "%q is not covered by spec.hosts", sni)
			default:
				r.hostname(field, sni)
			}
		}
		checkL4(r, path, m.DestinationSubnets, m.Port, m.Gateways, m.SourceLabels)
	}
	checkRoutes(r, at, t.Route)
}

// checkL4 validates the fields that matches of tls and tcp routes have in common.
func checkL4(r *report, at string, subnets []string, port uint32, gateways []string, labels map[string]string) {
	for i, s := range subnets {
		if wrong := addressOrPrefix(s); wrong != "" {
			r.errorf(fmt.Sprintf("%s.destinationSubnets[%d]", at, i), "%q %s", s, wrong)
		}
	}
	if port != 0 {
		r.port(at+".port", port)
	}
	checkGateways(r, at+".gateways", gateways)
	r.labels(at+".sourceLabels", labels)
}
