package compare

import (
	"regexp"
	"slices"
	"strings"
)

// uncounted are the fields that "Not counted as differences" of deploy/docs/fidelity.md names, in "TYPE
// RESOURCE.path".
var uncounted = regexp.MustCompile(`shadow_rules_stat_prefix$|typed_dns_resolver_config$|initial_read_buffer_size$|track_remaining$|` +
	`cleanup_interval$|\.request_id_extension|max_connections_to_accept_per_socket_event$`)

// Fields that are not counted for sidecars; at gateways they decide.
var (
	inspector          = regexp.MustCompile(`\.listener_filters(\[envoy\.filters\.listener\.tls_inspector\])?$`)
	certificateHeaders = regexp.MustCompile(`\.(forward_client_cert_details|set_current_client_cert_details)$`)
)

// counts reports whether a difference counts. place is "TYPE RESOURCE.path".
func counts(place string, d difference, router bool) bool {
	switch {
	case uncounted.MatchString(place):
		return false
	case len(d.around) == 2 && lastField(d.path) == "name" && strings.HasPrefix(d.path, ".filter_chains["):
		return false // the name of a chain
	case router:
	case inspector.MatchString(d.path) && inspectorAlone(d):
		return false
	case certificateHeaders.MatchString(d.path) && !strings.Contains(d.path, `"transport_protocol": "tls"`) &&
		!slices.ContainsFunc(d.around, endsTLS):
		return false // a client without TLS has no certificate
	}
	return !strings.HasPrefix(place, "clusters ") || !ourTrustDomain(d)
}

// endsTLS reports whether a message is one in which TLS ends, as a filter chain.
func endsTLS(p pair) bool {
	return p.theirs["transport_socket"] != nil || p.ours["transport_socket"] != nil
}

// inspectorAlone reports whether only tls_inspector is there or not, and no chain is chosen by what it finds.
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

// byTLS finds matches of chains by what tls_inspector finds. Protocols of applications are found by http_inspector,
// too.
var byTLS = regexp.MustCompile(`"server_names": |"transport_protocol": "tls"|"application_protocols": \[[^]]*"(istio[^"]*|h2)"`)

// ourTrustDomain reports whether the difference is that ours checks that a server is of the mesh, and theirs does not.
func ourTrustDomain(d difference) bool {
	names, is := d.ours.([]any)
	return is && d.theirs == nil && strings.HasSuffix(d.path, "match_subject_alt_names") && !slices.ContainsFunc(names, func(e any) bool {
		matcher, _ := e.(map[string]any)
		prefix, _ := matcher["prefix"].(string)
		return !strings.HasPrefix(prefix, "spiffe://")
	})
}

// Marks of a router's resource, which stand for differences that would hide others.
const (
	markShared      = " shared"      // names share a virtual host
	markUnreachable = " unreachable" // routes behind one that takes all requests
	markEmpty       = " empty"       // localities without endpoints
)

// alike returns a router's resource in a form without the differences that its marks stand for. The argument changes.
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
			if reachable(host) {
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

// reachable removes the routes of a virtual host behind the first that takes all requests, and reports whether there
// were any.
func reachable(host map[string]any) bool {
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

// takesAll reports whether a match of a route takes all requests.
func takesAll(match map[string]any) bool {
	if n := len(match); n == 2 && match["case_sensitive"] == nil || n > 2 || n == 0 {
		return false
	}
	regex, _ := match["safe_regex"].(map[string]any)
	return match["prefix"] == "/" || len(regex) == 1 && regex["regex"] == ".*"
}

// perDomain returns a virtual host for each domain of one.
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
