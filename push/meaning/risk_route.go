package meaning

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
)

// manyPoints is the largest change of a cluster's share that is no risk, in percentage points.
const manyPoints = 20

// routesOf returns a message as a route configuration. For any other message it returns nil.
func routesOf(m proto.Message) *routev3.RouteConfiguration { return as[*routev3.RouteConfiguration](m) }

// hostPair is a virtual host before and after a change.
type hostPair struct {
	configuration string               // name of the route configuration
	subject       string               // subject of facts and risks
	old, new      *routev3.VirtualHost // old is nil for a new virtual host
	a, b          []rule               // models of the routes of old and new
	pairs         []paired             // pairs of rules in a and b
}

// assessHost adds the risks of a virtual host that is new or modified.
func (a *assessment) assessHost(p hostPair) {
	for _, of := range p.pairs {
		if of.new < 0 {
			continue
		}
		was := rule{}
		if of.old >= 0 {
			was = p.a[of.old]
			a.rule(p, was, p.b[of.new])
		}
		a.leadsNowhere(p, was, p.b[of.new])
	}
	a.shadows(p)
	a.lost(p)
	a.winners(p)
}

// risk adds a risk of a virtual host. It names the VirtualService of the rule r as the cause.
func (a *assessment) risk(p hostPair, r rule, code Code, level Level, format string, args ...any) {
	a.add(code, level, xds.Route, p.configuration, p.subject, object("VirtualService", r.object), format, args...)
}

// rule adds the risks of a modified rule (the model of a route).
func (a *assessment) rule(p hostPair, old, new rule) {
	if len(old.shares) > 0 && len(new.shares) > 0 && a.moved(old, new) > manyPoints {
		a.risk(p, new, WeightsMove, Medium, "%s: %s -> %s", new.label(), old.to(), new.to())
	}
	unlimited := func(t time.Duration) time.Duration {
		if t == 0 {
			return math.MaxInt64
		}
		return t
	}
	forwards := len(old.shares) > 0 && len(new.shares) > 0
	if forwards && unlimited(new.timeout) < unlimited(old.timeout) {
		a.risk(p, new, LessTime, Medium, "%s: timeout %s -> %s", new.label(), timeoutText(old), timeoutText(new))
	}
	if forwards && new.retries > old.retries {
		a.risk(p, new, LessTime, Medium, "%s: retries %d -> %d; attempts multiply along the chain of calls",
			new.label(), old.retries, new.retries)
	}
	if old.hash != "" && old.hash != new.hash {
		a.risk(p, new, SessionsMove, Medium, "%s: hash of %s -> %s: sessions move to other endpoints", new.label(), old.hash, orNone(new.hash))
	}
}

// moved returns the greatest change of a cluster's share between two rules, in percentage points.
func (a *assessment) moved(old, new rule) (most float64) {
	for _, s := range slices.Concat(old.shares, new.shares) {
		most = max(most, math.Abs(old.points(s.cluster)-new.points(s.cluster)))
	}
	return most
}

// leadsNowhere adds a risk for each destination of the new rule that does not exist. It ignores destinations that the
// old rule has too.
func (a *assessment) leadsNowhere(p hostPair, old, new rule) {
	has := func(r rule, cluster string) bool { return r.points(cluster) > 0 }
	for _, s := range new.shares {
		switch {
		case s.weight == 0 || has(old, s.cluster):
		case s.cluster == xds.BlackHole:
			a.risk(p, new, ClusterGone, High, "%s leads to a destination that does not exist: 503", new.label())
		case !special(s.cluster) && a.After.Message(xds.Cluster, s.cluster) == nil:
			a.risk(p, new, ClusterGone, High, "%s leads to cluster %s, which does not exist: 503 (NC)", new.label(), shortCluster(s.cluster))
		}
	}
}

// shadows adds the risks of the rules that the change makes unreachable.
func (a *assessment) shadows(p hostPair) {
	shadow := func(all []rule, at int) int {
		return slices.IndexFunc(all[:at], func(r rule) bool { return implies(all[at].route.GetMatch(), r.route.GetMatch()) })
	}
	for _, of := range p.pairs {
		if len(p.pairs) > maxOrdered || of.new < 0 || of.old >= 0 && shadow(p.a, of.old) >= 0 {
			continue
		}
		if at := shadow(p.b, of.new); at >= 0 {
			a.shadowed(p, p.b[of.new], p.b[at], of.old >= 0)
		}
	}
	if a.Unreachable == nil {
		return
	}
	last := slices.IndexFunc(p.b, func(r rule) bool { return matchesAll(r.route.GetMatch()) })
	if last < 0 {
		return
	}
	for _, m := range a.Unreachable(p.configuration, p.new.GetName()) {
		r := ruleOf(m)
		if slices.ContainsFunc(p.a, func(o rule) bool { return o.name == r.name && o.key == r.key }) {
			a.shadowed(p, r, p.b[last], true)
		}
	}
}

// shadowed adds the risk that the rule r is never reached, because an earlier rule matches all its requests. If existed
// is true, the rule r existed before the change.
func (a *assessment) shadowed(p hostPair, r, earlier rule, existed bool) {
	if existed && matchesAll(earlier.route.GetMatch()) {
		a.risk(p, earlier, CatchAllFirst, High, "%s matches everything and now stands before %s",
			earlier.label(), strings.TrimPrefix(r.label(), "rule "))
		return
	}
	a.risk(p, r, RuleShadowed, Medium, "%s is never reached: %s matches its requests first", r.label(), earlier.label())
}

// maxSampled is the maximum number of removed rules in a virtual host for which the method lost tries sample requests.
const maxSampled = 200

// lost adds a risk for each removed rule if a sample request of the rule has no route after the change. It tries the
// first maxSampled removed rules. A rule does not count as removed if the virtual host still has a rule with the same
// match.
func (a *assessment) lost(p hostPair) {
	kept := map[string]bool{}
	for _, r := range p.b {
		kept[r.key] = true
	}
	gone := slices.DeleteFunc(slices.Clone(p.a), func(r rule) bool { return kept[r.key] })
	for _, r := range gone[:min(len(gone), maxSampled)] {
		for _, request := range samples(r.route.GetMatch(), domainOf(p.old)) {
			if first(p.old, request) >= 0 && first(p.new, request) < 0 {
				a.risk(p, r, RouteGone, High, "requests for %s have no route any more: 404", r.match)
				break
			}
		}
	}
}

// domainOf returns a host name that the first domain of a virtual host matches. Without domains it returns "".
func domainOf(vh *routev3.VirtualHost) string {
	for _, d := range vh.GetDomains() {
		return strings.ReplaceAll(d, "*", "x")
	}
	return ""
}

// winners adds a risk for each pair of VirtualServices in which one replaces the other in a virtual host. It ignores a
// replaced VirtualService that no longer exists.
func (a *assessment) winners(p hostPair) {
	of := func(all []rule) map[string]bool {
		names := map[string]bool{}
		for _, r := range all {
			if r.object != "" {
				names[r.object] = true
			}
		}
		return names
	}
	before, after := of(p.a), of(p.b)
	for _, winner := range slices.Sorted(maps.Keys(after)) {
		for _, loser := range slices.Sorted(maps.Keys(before)) {
			if !before[winner] && !after[loser] && a.exists("VirtualService "+loser) {
				a.risk(p, rule{object: winner}, OtherObjectWins, Medium, "VirtualService %s decides now, and no longer %s", winner, loser)
			}
		}
	}
}

// served states whether a change adds or removes a host:port, separately for HTTP and TCP.
type served struct{ http, tcp int } // positive: added; negative: removed; 0: neither

// assessHosts adds the risks of hosts that disappear, and of ports whose protocol changes.
func (a *assessment) assessHosts() {
	all := map[string]served{} // by host:port
	gone := map[string]bool{}  // by host:port
	for _, p := range a.Pairs {
		switch p.Type {
		case xds.Route:
			addServed(all, a.routes(p).served)
		case xds.Listener:
			addServed(all, a.listener(p).served)
		case xds.Cluster:
			host, port, subset, ok := hostPort(p.Name)
			if ok && subset == "" && p.New == nil {
				gone[fmt.Sprintf("%s:%d", host, port)] = true
			}
		default:
		}
	}
	for at, of := range all {
		if of.http < 0 {
			gone[at] = true
		}
	}
	ports := map[string][]string{}
	for at := range gone {
		host, port := splitHost(at)
		if a.protocolsOf(a.After, a.usesAfter, host, port) == "" && a.cluster0(a.After, host, port) == nil {
			ports[host] = append(ports[host], port)
		}
	}
	for _, host := range bothKeys(ports, nil) {
		slices.Sort(ports[host])
		n, _ := strconv.Atoi(ports[host][0])
		cluster := xds.OutboundCluster(uint32(n), "", host)
		a.add(HostGone, High, xds.Cluster, cluster, short(host), a.removers(cluster),
			"the host vanishes from the proxies, at port %s", list(ports[host]))
	}
	for _, at := range bothKeys(all, nil) {
		a.protocol(at, all[at])
	}
}

// removers returns the objects that may have removed a host from the proxies. If no object of its cluster is known, the
// cause is a Gateway, if the change has exactly one.
func (a *assessment) removers(cluster string) (objects []string) {
	if a.Objects != nil {
		objects = a.Objects(xds.Cluster, cluster)
	}
	if all := a.edited(objects, ""); len(all) > 0 {
		return all
	}
	return a.edited(nil, "Gateway ")
}

// splitHost splits a text of the form host:port. The text must contain a colon.
func splitHost(at string) (host, port string) {
	i := strings.LastIndexByte(at, ':')
	return at[:i], at[i+1:]
}

// cluster0 returns the outbound cluster of a host and a port, without a subset. It returns nil if the set lacks this
// cluster.
func (a *assessment) cluster0(s Set, host, port string) *clusterv3.Cluster {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil
	}
	return as[*clusterv3.Cluster](s.Message(xds.Cluster, xds.OutboundCluster(uint32(n), "", host)))
}

// protocolsOf returns the protocol of host:port: "HTTP", "TCP" or "detected". If the set does not serve host:port, the
// result is "". A port whose protocol is detected has a route configuration of its own.
func (a *assessment) protocolsOf(s Set, of func() uses, host, port string) string {
	name := host + ":" + port
	switch {
	case a.virtualHosts(s, name)[name] != nil:
		return "detected"
	case a.virtualHosts(s, port)[name] != nil:
		return "HTTP"
	}
	n, _ := strconv.ParseUint(port, 10, 16)
	if slices.ContainsFunc(of()[xds.OutboundCluster(uint32(n), "", host)], func(u use) bool { return u.tcp }) {
		return "TCP"
	}
	return ""
}

// virtualHosts returns the virtual hosts of a route configuration, by name. It caches the map, because a change may
// affect many hosts of one configuration. If the set lacks the route configuration, the result is nil.
func (a *assessment) virtualHosts(s Set, configuration string) map[string]*routev3.VirtualHost {
	rc := routesOf(s.Message(xds.Route, configuration))
	if rc == nil {
		return nil
	}
	all, is := a.serves[rc]
	if !is {
		all = hostsOf(rc)
		a.serves[rc] = all
	}
	return all
}

// addServed adds the numbers in the second map to the numbers in the first map.
func addServed(all, of map[string]served) {
	for name, one := range of {
		all[name] = served{all[name].http + one.http, all[name].tcp + one.tcp}
	}
}

// servedHTTP returns the virtual hosts that are new or gone, by name. It considers only names of the form host:port. A
// removed virtual host does not count as gone if another virtual host now serves its first domain.
func servedHTTP(old, new *routev3.RouteConfiguration) map[string]served {
	before, after, all := hostsOf(old), hostsOf(new), map[string]served{}
	var gone []string
	for _, name := range bothKeys(before, after) {
		switch {
		case !strings.Contains(name, ":") || strings.HasPrefix(name, "blackhole:"):
		case before[name] == nil:
			all[name] = served{http: 1}
		case after[name] == nil && len(before[name].GetDomains()) > 0:
			gone = append(gone, name)
		}
	}
	if gone == nil {
		return all
	}
	domains := map[string]bool{}
	for _, vh := range after {
		for _, d := range vh.GetDomains() {
			domains[d] = true
		}
	}
	for _, name := range gone {
		if !domains[before[name].GetDomains()[0]] {
			all[name] = served{http: -1}
		}
	}
	return all
}

// servedTCP returns each host:port to which TCP chains lead only before the change, or only after the change.
func servedTCP(old, new []chain) map[string]served {
	hosts := func(chains []chain) map[string]bool {
		names := map[string]bool{}
		for _, c := range chains {
			for _, s := range c.shares.shares {
				if host, port, subset, ok := hostPort(s.cluster); ok && subset == "" {
					names[fmt.Sprintf("%s:%d", host, port)] = true
				}
			}
		}
		return names
	}
	before, after, all := hosts(old), hosts(new), map[string]served{}
	for _, name := range bothKeys(before, after) {
		if before[name] != after[name] {
			all[name] = served{tcp: map[bool]int{true: 1, false: -1}[after[name]]}
		}
	}
	return all
}

// protocol adds a risk if a host:port changes its protocol. The outbound cluster of the host:port must exist before and
// after the change.
func (a *assessment) protocol(at string, of served) {
	host, port := splitHost(at)
	if of == (served{}) || a.cluster0(a.Before, host, port) == nil || a.cluster0(a.After, host, port) == nil {
		return
	}
	n, _ := strconv.ParseUint(port, 10, 16)
	name := xds.OutboundCluster(uint32(n), "", host)
	before, after := a.protocolsOf(a.Before, a.usesBefore, host, port), a.protocolsOf(a.After, a.usesAfter, host, port)
	if before != "" && after != "" && before != after {
		a.add(ProtocolChanges, High, xds.Cluster, name, short(host)+":"+port, nil, "protocol %s -> %s", before, after)
	}
}
