package compare

import (
	"regexp"
	"slices"
	"strings"
)

// uncounted matches "TYPE RESOURCE.path" for the fields that deploy/docs/fidelity.md lists in the section "Not counted
// as differences".
var uncounted = regexp.MustCompile(`shadow_rules_stat_prefix$|typed_dns_resolver_config$|initial_read_buffer_size$|track_remaining$|` +
	`cleanup_interval$|\.request_id_extension|max_connections_to_accept_per_socket_event$`)

// Fields whose differences may be harmless in sidecars. In gateways these fields have an effect.
var (
	inspector          = regexp.MustCompile(`\.listener_filters(\[envoy\.filters\.listener\.tls_inspector\])?$`)
	certificateHeaders = regexp.MustCompile(`\.(forward_client_cert_details|set_current_client_cert_details)$`)
)

// counts reports whether a difference needs an explanation. All other differences are harmless and ignored. The
// argument place has the form "TYPE RESOURCE.path". The argument router is true if the proxy is a gateway.
func counts(place string, d difference, router bool) bool {
	switch {
	case uncounted.MatchString(place):
		return false
	case len(d.around) == 2 && lastField(d.path) == "name" && strings.HasPrefix(d.path, ".filter_chains["):
		return false // the name of a filter chain
	case router:
	case inspector.MatchString(d.path) && inspectorAlone(d):
		return false
	case certificateHeaders.MatchString(d.path) && !strings.Contains(d.path, `"transport_protocol": "tls"`) &&
		!slices.ContainsFunc(d.around, endsTLS):
		return false // a client without TLS has no certificate
	}
	return !strings.HasPrefix(place, "clusters ") || !ourTrustDomain(d)
}

// endsTLS reports whether one of the two messages, such as filter chains, terminates TLS.
func endsTLS(p pair) bool {
	return p.theirs["transport_socket"] != nil || p.ours["transport_socket"] != nil
}

// inspectorAlone reports whether only one side has a value, and tls_inspector is the only filter in it. It returns
// false if a property that tls_inspector detects selects a filter chain.
func inspectorAlone(d difference) bool {
	for _, v := range []any{d.theirs, d.ours} {
		filters, is := v.([]any)
		if !is && v != nil {
			filters = []any{v}
		}
		for _, f := range filters {
			if nameOf(f) != "envoy.filters.listener.tls_inspector" {
				return false
			}
		}
	}
	chosen := canon(d.around[0].theirs["filter_chains"]) + canon(d.around[0].ours["filter_chains"])
	return (d.theirs == nil || d.ours == nil) && !byTLS.MatchString(chosen)
}

// byTLS finds the criteria of filter chains that tls_inspector detects. http_inspector detects all other application
// protocols.
var byTLS = regexp.MustCompile(`"server_names": |"transport_protocol": "tls"|"application_protocols": \[[^]]*"(istio[^"]*|h2)"`)

// ourTrustDomain reports whether only Navarch's value verifies that the server's SPIFFE ID has one of several
// prefixes.
func ourTrustDomain(d difference) bool {
	names, is := d.ours.([]any)
	return is && d.theirs == nil && strings.HasSuffix(d.path, "match_subject_alt_names") && !slices.ContainsFunc(names, func(e any) bool {
		matcher, _ := e.(map[string]any)
		prefix, _ := matcher["prefix"].(string)
		return !strings.HasPrefix(prefix, "spiffe://")
	})
}

// A mark is a text that stands for one kind of difference in a gateway's resource. A difference of this kind would hide
// other differences. The function alike therefore removes it and returns its mark.
const (
	markShared      = " shared"      // several names share a virtual host
	markUnreachable = " unreachable" // routes after one that matches all requests
	markEmpty       = " empty"       // localities without endpoints
)

// alike changes a gateway's resource and returns it. It removes the properties for which there is a mark. The second
// result has the marks of the removed properties, each once.
func alike(kind string, resource map[string]any) (map[string]any, []string) {
	var marks []string
	mark := func(m string) {
		if !slices.Contains(marks, m) {
			marks = append(marks, m)
		}
	}
	switch kind {
	case "endpoints":
		list, _ := resource["endpoints"].([]any)
		resource["endpoints"] = slices.DeleteFunc(list, func(e any) bool {
			locality, _ := e.(map[string]any)
			if some, _ := locality["lb_endpoints"].([]any); len(some) > 0 {
				return false
			}
			mark(markEmpty)
			return true
		})
	case "routes":
		hosts, _ := resource["virtual_hosts"].([]any)
		var apart []any
		for _, e := range hosts {
			host, _ := e.(map[string]any)
			if cutUnreachable(host) {
				mark(markUnreachable)
			}
			split := perDomain(host)
			if len(split) > 1 {
				mark(markShared)
			}
			apart = append(apart, split...)
		}
		slices.SortFunc(apart, func(a, b any) int { return strings.Compare(nameOf(a), nameOf(b)) })
		resource["virtual_hosts"] = apart
	}
	return resource, marks
}

// cutUnreachable removes the routes of a virtual host after the first route that matches all requests. It reports
// whether it removed any route.
func cutUnreachable(host map[string]any) bool {
	routes, _ := host["routes"].([]any)
	for i, e := range routes {
		route, _ := e.(map[string]any)
		match, _ := route["match"].(map[string]any)
		if takesAll(match) && i+1 < len(routes) {
			host["routes"] = routes[:i+1]
			return true
		}
	}
	return false
}

// takesAll reports whether a route's match accepts all requests.
func takesAll(match map[string]any) bool {
	if n := len(match); n == 2 && match["case_sensitive"] == nil || n > 2 || n == 0 {
		return false
	}
	regex, _ := match["safe_regex"].(map[string]any)
	return match["prefix"] == "/" || len(regex) == 1 && regex["regex"] == ".*"
}

// perDomain splits a virtual host into one for each of its domains, named DOMAIN:PORT. A host with one domain and the
// hosts misdirected:PORT are returned unchanged.
func perDomain(host map[string]any) []any {
	domains, _ := host["domains"].([]any)
	name := nameOf(host)
	if len(domains) == 1 || strings.HasPrefix(name, "misdirected:") {
		return []any{host}
	}
	port := name[strings.LastIndexByte(name, ':')+1:]
	var all []any
	for _, d := range domains {
		text, _ := d.(string)
		one := map[string]any{}
		for k, v := range host {
			one[k] = v
		}
		one["name"], one["domains"] = text+":"+port, []any{d}
		all = append(all, one)
	}
	return all
}

func nameOf(v any) string {
	fields, _ := v.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}
