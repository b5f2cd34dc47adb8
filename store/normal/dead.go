package normal

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/problem"
)

// proxyMatch is the part of http, tls and tcp matches that is about proxies.
type proxyMatch interface {
	GetGateways() []string
	GetSourceLabels() map[string]string
}

// warnDead warns of conditions of a VirtualService that no traffic can meet, although each is valid. The names of
// Gateways have to be resolved. The table of conditions on requests is deadConditions.
func warnDead(r *report, vs *networkingv1.VirtualService) {
	stated := map[string]bool{}
	for _, name := range vs.Gateways {
		stated[name] = true
	}
	delegate := len(vs.Hosts) == 0 // the VirtualService that uses the delegate states the gateways
	for i, h := range vs.Http {
		for j, m := range h.Match {
			at := fmt.Sprintf("spec.http[%d].match[%d]", i, j)
			deadForProxies(r, at, m, stated, delegate)
			for _, c := range deadConditions {
				if why := c.why(m); why != "" {
					r.warnf(problem.NoEffect, at+c.field, "%s", why)
				}
			}
		}
	}
	for i, t := range vs.Tls {
		for j, m := range t.Match {
			deadForProxies(r, fmt.Sprintf("spec.tls[%d].match[%d]", i, j), m, stated, delegate)
		}
	}
	for i, t := range vs.Tcp {
		for j, m := range t.Match {
			deadForProxies(r, fmt.Sprintf("spec.tcp[%d].match[%d]", i, j), m, stated, delegate)
		}
	}
}

// deadForProxies warns of gateways of a match that spec.gateways lacks. It also warns of sourceLabels of a match that
// only gateways read. The parameter stated has the names in spec.gateways.
func deadForProxies(r *report, at string, m proxyMatch, stated map[string]bool, delegate bool) {
	forMesh, unstated := stated["mesh"], 0
	if names := m.GetGateways(); len(names) > 0 {
		forMesh = slices.Contains(names, "mesh")
		for _, name := range names {
			if !stated[name] {
				unstated++
			}
		}
		first := slices.IndexFunc(names, func(name string) bool { return !stated[name] })
		switch {
		case delegate || unstated == 0:
		case unstated == len(names):
			r.warnf(problem.NoEffect, at+".gateways", "spec.gateways has no %q nor another name of the match: the match gets nothing",
				names[first])
		default:
			r.warnf(problem.NoEffect, at+".gateways", "spec.gateways has no %q: the name has no effect here", names[first])
		}
	} else if delegate {
		return
	}
	if len(m.GetSourceLabels()) > 0 && !forMesh {
		r.warnf(problem.NoEffect, at+".sourceLabels", "only gateways read the match, and compare these labels with those of their own "+
			"Pods: they do not know the labels of clients")
	}
}

// deadConditions lists the valid conditions of http matches that no request meets. Each has the path of its field below
// the match, and a function that returns the reason, or "" if requests may meet the condition.
//
// A condition on the header Host is not listed: Envoy compares it with :authority.
var deadConditions = []struct {
	field string
	why   func(m *networkingv1.HTTPMatchRequest) string
}{
	{".uri.exact", func(m *networkingv1.HTTPMatchRequest) string {
		t, is := m.GetUri().GetMatchType().(*networkingv1.StringMatch_Exact)
		if !is || t.Exact == "*" { // the target of OPTIONS * (RFC 9110, 7.1)
			return ""
		}
		return deadPath(t.Exact)
	}},
	{".uri.prefix", func(m *networkingv1.HTTPMatchRequest) string {
		if prefix := m.GetUri().GetPrefix(); prefix != "" && prefix != "*" {
			return deadPath(prefix)
		}
		return ""
	}},
	{".method.exact", func(m *networkingv1.HTTPMatchRequest) string {
		stated := m.GetMethod().GetExact()
		if upper := strings.ToUpper(stated); stated != upper && slices.Contains(methods, upper) {
			return fmt.Sprintf("%q: methods are compared by case, and clients send %q", stated, upper)
		}
		return ""
	}},
}

// deadPath returns the reason why no path equals a text or begins with it. It returns "" for other texts.
func deadPath(text string) string {
	switch {
	case !strings.HasPrefix(text, "/"):
		return fmt.Sprintf("%q: paths begin with /, so no request matches", text)
	case strings.Contains(text, "?"):
		return fmt.Sprintf("%q: paths are compared without the query that begins with ?, so no request matches: use queryParams", text)
	}
	return ""
}
