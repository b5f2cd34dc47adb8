package meaning

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// routeFacts compares two route configurations of one name. If old is nil, the route configuration is new. If new is
// nil, it is gone.
func routeFacts(old, new *routev3.RouteConfiguration) []Fact {
	name := nameOf(old, new)
	switch {
	case old == nil:
		return []Fact{{Area: Routes, Subject: "route configuration " + short(name), Text: "new: " + hostsText(new)}}
	case new == nil:
		return []Fact{{Area: Routes, Subject: "route configuration " + short(name), Text: "gone: " + hostsText(old)}}
	}
	return routing(name, Routes, old, new)
}

// hostsText lists the virtual hosts of a route configuration.
func hostsText(rc *routev3.RouteConfiguration) string {
	names := slices.Sorted(maps.Keys(hostsOf(rc)))
	for i := range names {
		names[i] = short(names[i])
	}
	return plural(len(names), "host") + " (" + list(names) + ")"
}

// hostsOf returns the virtual hosts of a route configuration, by name.
func hostsOf(rc *routev3.RouteConfiguration) map[string]*routev3.VirtualHost {
	all := map[string]*routev3.VirtualHost{}
	for _, vh := range rc.GetVirtualHosts() {
		all[vh.GetName()] = vh
	}
	return all
}

// hostSubject returns the subject of facts about a virtual host. The subject includes the name of the route
// configuration, unless that name is the port in the virtual host's name, or the whole name of the virtual host.
func hostSubject(configuration, host string) string {
	at := strings.LastIndexByte(host, ':')
	if at >= 0 && (configuration == host[at+1:] || configuration == host) {
		return short(host)
	}
	return short(host) + " in " + short(configuration)
}

// routing compares two route configurations of one name. All facts have the given area, and a subject.
func routing(name string, area Area, old, new *routev3.RouteConfiguration) (all []Fact) {
	before, after := hostsOf(old), hostsOf(new)
	for _, host := range bothKeys(before, after) {
		of := hostFacts(before[host], after[host])
		for i := range of {
			of[i].Area, of[i].Subject = area, hostSubject(name, host)
		}
		all = append(all, of...)
	}
	head := func(rc *routev3.RouteConfiguration) *routev3.RouteConfiguration {
		head := proto.CloneOf(rc)
		head.VirtualHosts = nil
		return head
	}
	var c change
	c.others(head(old), head(new))
	if len(c) > 0 {
		all = append(all, Fact{Area: area, Subject: "route configuration " + short(name), Text: c.String()})
	}
	return all
}

// hostFacts compares two virtual hosts of one name. The facts have no area and no subject. If old is nil, the virtual
// host is new. If new is nil, it is gone.
func hostFacts(old, new *routev3.VirtualHost) (all []Fact) {
	switch {
	case old == nil:
		return []Fact{{Text: "new: " + rulesText(new)}}
	case new == nil:
		return []Fact{{Text: "gone: " + rulesText(old)}}
	case proto.Equal(old, new):
		return nil
	}
	a, b := rulesOf(old), rulesOf(new)
	pairs := pairRules(a, b)
	for _, p := range pairs {
		switch {
		case p.old < 0:
			all = append(all, Fact{Aspect: b[p.new].match, Text: "new: " + b[p.new].to()})
		case p.new < 0:
			all = append(all, Fact{Aspect: a[p.old].match, Text: "gone: " + a[p.old].to()})
		default:
			var c change
			if a[p.old].compare(&c, b[p.new]); len(c) > 0 {
				all = append(all, Fact{Aspect: a[p.old].match, Text: c.String()})
			}
		}
	}
	for _, text := range moves(b, pairs) {
		all = append(all, Fact{Aspect: "order", Text: text})
	}
	rest := func(vh *routev3.VirtualHost) *routev3.VirtualHost {
		rest := proto.CloneOf(vh)
		rest.Routes = nil
		return rest
	}
	var c change
	for _, part := range differences(rest(old), rest(new)) {
		c = append(c, tidy(part))
	}
	if len(c) > 0 {
		all = append(all, Fact{Text: c.String()})
	}
	return all
}

// rulesOf returns the models of a virtual host's routes, in order.
func rulesOf(vh *routev3.VirtualHost) []rule {
	all := make([]rule, 0, len(vh.GetRoutes()))
	for _, r := range vh.GetRoutes() {
		all = append(all, ruleOf(r))
	}
	return all
}

// rulesText lists the rules (models of routes) of a virtual host.
func rulesText(vh *routev3.VirtualHost) string {
	all := rulesOf(vh)
	if len(all) == 0 {
		return "no rules"
	}
	texts := make([]string, 0, len(all))
	for _, r := range all {
		to := r.to()
		if r.action == "" {
			to = "to " + orNone(to)
		}
		texts = append(texts, r.match+" "+to)
	}
	return list(texts)
}

// maxOrdered is the maximum number of rules of a virtual host for which the function moves names the moved rules.
const maxOrdered = 1000

// moves returns a sentence for each rule that has moved past another rule that the same request may match. It treats as
// few rules as possible as moved: those outside of the longest sequence that keeps its order. If the order of more than
// maxOrdered rules changes, the result is a single sentence.
func moves(new []rule, pairs []paired) (all []string) {
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(p paired) bool { return p.old < 0 || p.new < 0 })
	if slices.IsSortedFunc(pairs, func(p, q paired) int { return p.old - q.old }) {
		return nil
	}
	if len(pairs) > maxOrdered {
		return []string{"the order of rules changes"}
	}
	stays := longest(pairs)
	for i, p := range pairs {
		for j, q := range pairs {
			inverted := (p.old < q.old) != (p.new < q.new)
			if stays[i] || !inverted || !stays[j] && j < i || disjoint(new[p.new].route.GetMatch(), new[q.new].route.GetMatch()) {
				continue
			}
			where := "before"
			if q.new < p.new {
				where = "after"
			}
			all = append(all, fmt.Sprintf("%s now %s %s", new[p.new].label(), where, strings.TrimPrefix(new[q.new].label(), "rule ")))
			break
		}
	}
	return all
}

// longest marks the pairs of one longest sequence that keeps its old order. The pairs must be sorted by their new
// positions.
func longest(pairs []paired) []bool {
	marks, length, from := make([]bool, len(pairs)), make([]int, len(pairs)), make([]int, len(pairs))
	best := -1
	for j := range pairs {
		length[j], from[j] = 1, -1
		for i := range j {
			if pairs[i].old < pairs[j].old && length[i]+1 > length[j] {
				length[j], from[j] = length[i]+1, i
			}
		}
		if best < 0 || length[j] > length[best] {
			best = j
		}
	}
	for i := best; i >= 0; i = from[i] {
		marks[i] = true
	}
	return marks
}
