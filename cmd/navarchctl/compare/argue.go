package compare

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"navarch.io/navarch/deploy/fidelity"
)

// seen has facts about a proxy. Conditions (functions that judge a difference) read them in addition to the difference.
// Throughout this package, "theirs" is istiod's configuration and "ours" is Navarch's.
type seen struct {
	theirClusters map[string]bool
	ourClusters   map[string]bool
	// theirEmpty has the names of istiod's endpoint assignments (ClusterLoadAssignments) without endpoints.
	theirEmpty map[string]bool
	resource   pair // the resource that differs, in the form that clean returns
}

// conditions maps the names of conditions to their functions. The fidelity lists (files of deploy/fidelity) have a line
// for each explained kind of difference. A line that holds in any mesh names a condition. A condition checks both
// values, the messages that contain them and the proxy's clusters. A line therefore applies only to the differences
// that its row in deploy/docs/fidelity.md explains.
var conditions = map[string]func(d difference, s *seen) bool{
	// Only one side has a value.
	"ours-only":   func(d difference, _ *seen) bool { return d.theirs == nil && d.ours != nil },
	"theirs-only": func(d difference, _ *seen) bool { return d.ours == nil && d.theirs != nil },
	// Ours is true, and theirs is absent.
	"ours-true": func(d difference, _ *seen) bool { return d.theirs == nil && d.ours == true },
	// Only istiod sends tags for tracing spans. Neither side has a tracing provider, so Envoy makes no spans.
	"no-provider": func(d difference, _ *seen) bool {
		around := d.parent()
		return d.ours == nil && around.theirs["provider"] == nil && around.ours["provider"] == nil
	},
	// The cluster does not resolve DNS names.
	"no-names": func(d difference, s *seen) bool {
		return !strings.HasSuffix(text(s.resource.theirs["type"]), "_DNS") && s.resource.theirs["type"] == s.resource.ours["type"]
	},
	"names": func(d difference, s *seen) bool {
		return d.theirs == nil && (strings.HasSuffix(text(s.resource.ours["type"]), "_DNS") || s.resource.ours["cluster_type"] != nil)
	},
	// Only Navarch has metadata. The metadata contains only Navarch's digest of the endpoints without mTLS.
	"digest": func(d difference, _ *seen) bool {
		metadata, _ := d.ours.(map[string]any)
		filters, _ := metadata["filter_metadata"].(map[string]any)
		return d.theirs == nil && len(metadata) == 1 && len(filters) == 1 && filters["navarch"] != nil
	},
	"absolute-urls": func(d difference, _ *seen) bool {
		return d.ours == nil && canon(d.theirs) == `{"allow_absolute_url": true}`
	},
	"no-endpoints": func(d difference, _ *seen) bool {
		locality, is := d.theirs.(map[string]any)
		list, _ := locality["lb_endpoints"].([]any)
		return is && d.ours == nil && len(list) == 0 && len(d.around) == 1 // so the path is that of a locality
	},
	"repeated":              repeated,
	"missing-port":          missingPort,
	"missing-port-weighted": weightedPort,
	"same-json": func(d difference, _ *seen) bool {
		var a, b any
		return json.Unmarshal([]byte(text(d.theirs)), &a) == nil && json.Unmarshal([]byte(text(d.ours)), &b) == nil &&
			reflect.DeepEqual(a, b)
	},
	"of-that-route": func(d difference, s *seen) bool { return routed(d, s) },
	"terminal-last": func(d difference, _ *seen) bool { return !terminalLast(d.theirs) && terminalLast(d.ours) },
	"more-addresses": func(d difference, _ *seen) bool {
		more, _ := d.ours.([]any)
		theirs, _ := d.theirs.([]any)
		return len(theirs) == 0 && len(more) > 0 && addresses(more)
	},
	"true-there": func(d difference, _ *seen) bool { return d.theirs == true && d.ours == nil },
	"pipe": func(d difference, s *seen) bool {
		return d.ours == nil && strings.Contains(canon(s.resource.theirs), `"pipe": `)
	},
	"mark": func(d difference, _ *seen) bool { return strings.HasPrefix(d.path, " ") },
	"inspector": func(d difference, _ *seen) bool {
		filters, is := d.ours.([]any)
		if !is {
			filters = []any{d.ours}
		}
		return d.theirs == nil && len(filters) == 1 && nameOf(filters[0]) == "envoy.filters.listener.tls_inspector"
	},
	// Navarch alone has the filter grpc_web, disabled, or the setting by which a virtual host enables it.
	"grpc-web": func(d difference, _ *seen) bool {
		ours, is := d.ours.(map[string]any)
		const name = "envoy.filters.http.grpc_web"
		return is && d.theirs == nil && (nameOf(ours) == name && ours["disabled"] == true || len(ours) == 1 && ours[name] != nil)
	},
	"nowhere": nowhere,
	// Both sides name the same cluster. istiod's value is the host of the cluster, and Navarch's value is the cluster's
	// name in SNI form.
	"authority": func(d difference, _ *seen) bool {
		cluster := text(d.parent().theirs["cluster_name"])
		return cluster != "" && cluster == d.parent().ours["cluster_name"] && strings.HasSuffix(cluster, "|"+text(d.theirs)) &&
			d.ours == strings.ReplaceAll(cluster, "|", "_.")
	},
}

// destination splits the name of an outbound cluster into port, subset and host.
var destination = regexp.MustCompile(`^"?outbound\|(\d+)\|([^|]*)\|([^|"]+)"?$`)

// missingPort reports whether istiod's value names a cluster that istiod did not send, while Navarch's value names a
// cluster that both sides have. Both names must have the same host and subset, and different ports.
func missingPort(d difference, s *seen) bool {
	return otherPort(text(d.theirs), text(d.ours), s)
}

func otherPort(theirs, ours string, s *seen) bool {
	a, b := destination.FindStringSubmatch(theirs), destination.FindStringSubmatch(ours)
	return a != nil && b != nil && a[1] != b[1] && a[2] == b[2] && a[3] == b[3] &&
		!s.theirClusters[theirs] && s.theirClusters[ours] && s.ourClusters[ours]
}

// weightedPort judges an entry of weighted clusters that only one side has. It reports whether the other side has an
// entry that differs only in the port, as missingPort describes.
func weightedPort(d difference, s *seen) bool {
	entry, others, reversed := d.theirs, d.parent().ours, false
	if entry == nil {
		entry, others, reversed = d.ours, d.parent().theirs, true
	}
	list, _ := others["clusters"].([]any)
	for _, other := range list {
		a, b := nameOf(entry), nameOf(other)
		if reversed {
			a, b = b, a
		}
		if otherPort(a, b, s) && canon(renamed(entry)) == canon(renamed(other)) {
			return true
		}
	}
	return false
}

// renamed returns a copy of a message without its name.
func renamed(v any) any {
	fields, _ := v.(map[string]any)
	out := maps.Clone(fields)
	delete(out, "name")
	return out
}

// routed reports whether the differing field is in a route with a destination that differs only in the port, as
// missingPort describes.
func routed(d difference, s *seen) bool {
	for _, p := range d.around {
		for _, theirs := range destinations(p.theirs) {
			if slices.ContainsFunc(destinations(p.ours), func(ours string) bool { return otherPort(theirs, ours, s) }) {
				return true
			}
		}
	}
	return false
}

// destinations returns the clusters in the action of a route: the single cluster (may be empty), then the weighted
// clusters.
func destinations(action map[string]any) []string {
	all := []string{text(action["cluster"])}
	weighted, _ := action["weighted_clusters"].(map[string]any)
	list, _ := weighted["clusters"].([]any)
	for _, one := range list {
		all = append(all, nameOf(one))
	}
	return all
}

// parent returns the messages that contain the field on both sides. It is zero if the difference is a whole resource.
func (d difference) parent() pair {
	if len(d.around) == 0 {
		return pair{}
	}
	return d.around[len(d.around)-1]
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// repeated reports whether both assignments have the same addresses: Navarch's has each address once, and istiod's
// has some of them several times.
func repeated(_ difference, s *seen) bool {
	theirs, ours := endpointsOf(s.resource.theirs), endpointsOf(s.resource.ours)
	more := false
	for address, n := range theirs {
		if ours[address] != 1 {
			return false
		}
		more = more || n > 1
	}
	return more && len(ours) == len(theirs)
}

// endpointsOf maps each address of an assignment to the number of its occurrences.
func endpointsOf(assignment map[string]any) map[string]int {
	all := map[string]int{}
	localities, _ := assignment["endpoints"].([]any)
	for _, l := range localities {
		locality, _ := l.(map[string]any)
		list, _ := locality["lb_endpoints"].([]any)
		for _, e := range list {
			all[key("lb_endpoints", e, 0)]++
		}
	}
	return all
}

// terminals matches the names of terminal filters, which must be last in a chain.
var terminals = regexp.MustCompile(`^envoy\.filters\.(http\.router|network\.(tcp_proxy|http_connection_manager))(~\d+)?$`)

func terminalLast(order any) bool {
	list, _ := order.([]any)
	return len(list) > 0 && terminals.MatchString(text(list[len(list)-1]))
}

// addresses reports whether all domains are IP addresses, with or without a port. The domains are JSON texts with
// quotes, because diff returns elements of sets as JSON.
func addresses(domains []any) bool {
	for _, d := range domains {
		host := strings.Trim(text(d), `"`)
		if _, err := netip.ParseAddrPort(host); err == nil {
			continue
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil {
			return false
		}
	}
	return true
}

// sent finds the names of clusters in the JSON of a filter chain.
var sent = regexp.MustCompile(`"cluster": "([^"]+)"`)

// nowhere reports whether only istiod has a filter chain, and no cluster in the chain has endpoints.
func nowhere(d difference, s *seen) bool {
	to := sent.FindAllStringSubmatch(canon(d.theirs), -1)
	for _, m := range to {
		if !s.theirEmpty[m[1]] {
			return false
		}
	}
	return d.ours == nil && len(to) > 0
}

// lists returns the lines that hold in any mesh. The first element has the lines for all proxies. The second element
// has the lines for gateways only.
var lists = sync.OnceValue(func() [][]line {
	all := make([][]line, 2)
	for i, list := range []string{fidelity.Sidecars, fidelity.Gateways} {
		lines, err := parseLines(list)
		if err != nil {
			panic(err) // cannot happen: a test parses the lists
		}
		for _, l := range lines {
			if l.mesh != nil {
				all[i] = append(all[i], l)
			}
		}
	}
	return all
})

// argued returns the first line that explains a difference, or nil. For a gateway (router), the lines for gateways are
// tried first. For other proxies they are not used. A difference of identities is never explained. The argument place
// has the form "TYPE RESOURCE.path".
func argued(place string, d difference, s *seen, router bool) *line {
	if identitiesOf(d.path, d.theirs, d.ours) != "" {
		return nil
	}
	all := lists()
	order := all[:1]
	if router {
		order = [][]line{all[1], all[0]}
	}
	for _, lines := range order {
		for i, l := range lines {
			if l.mesh.MatchString(place) && conditions[l.condition](d, s) {
				return &lines[i]
			}
		}
	}
	return nil
}
