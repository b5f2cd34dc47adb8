package gateway

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// These tables intern lists of Specs (the inputs of resources). The tables are weak: a list lives as long as some Spec
// uses it.
var (
	strs    intern.Table[string]
	numbers intern.Table[uint32]
	rules   intern.Table[vhost.Rule]
)

// A route configuration that would be empty gets the virtual host blackhole, which has no routes. The colon in its id
// keeps the id different from all hosts.
const (
	blackhole   = "blackhole" // the host of this virtual host
	blackholeID = ":" + blackhole
)

// decide decides the virtual host of a domain in a route configuration again, with the rules and the redirection of the
// servers that may serve it (gateways.Owners.Guard). The virtual host is removed if there are neither rules nor a
// redirection. If other servers share the domain but must not serve it (config.shares), a domain without rules gets
// those of the wildcards that cover it.
func (f *Front) decide(c *config, domain string) {
	vh := routes.VirtualHost{ID: domain, Host: domain, Port: c.port, Domains: strs.List(domain), Bound: true}
	all, reads, found := f.collect(c, &vh, domain)
	if c.shares(domain) {
		for pattern := range model.Wildcards(domain) {
			if len(all) > 0 || vh.TLSOnly {
				break
			}
			all, reads, found = f.collect(c, &vh, pattern)
		}
	}
	vh.Kept = vh.TLSOnly
	all, costly := affordable(domain, all)
	vh.Rules, vh.Reads = rules.List(all...), view.Reads{}.With(reads).Labels
	found = slices.Concat(found, costly, f.unverified(all), f.takenOver(c, domain, vh.Rules))
	if len(all) == 0 && !vh.TLSOnly {
		f.leave(c, domain)
		f.problems.Set(takenUnit(c, domain), found)
		return
	}
	f.problems.Set(takenUnit(c, domain), found)
	if !f.routes.Has(c.Config, domain) {
		f.misdirect(c, domain)
	}
	f.routes.Enter(c.Config, vh, func() {})
	f.decideBlackhole(c)
}

// collect returns the http rules of the VirtualServices with a name, server by server, and the inputs that they read.
// The name is the domain of the virtual host, or a wildcard that covers it. collect sets GRPCWeb, HTTP3 and TLSOnly of
// the virtual host. TLSOnly means that requests without TLS are redirected.
func (f *Front) collect(c *config, vh *routes.VirtualHost, name string) (all []vhost.Rule, reads []string, found []input.Problem) {
	seen := map[vhost.Rule]bool{} // two servers of one Gateway have the same rules
	var serving []gateways.Server // the servers of the domain, in order of precedence
	decided := false              // the oldest server with rules decides whether requests may be gRPC-Web
	for _, i := range f.concerned(c, vh.Host, name) {
		s := c.servers[i]
		own := len(c.stated.by(i, name)) > 0
		bound := false
		for _, vs := range f.boundTo(c, i, name, own) {
			bound = true
			for _, r := range host.RulesFor(vs, s.Name()).All() {
				if !seen[r] {
					seen[r] = true
					all = append(all, r)
				}
			}
			reads = append(reads, virtualservice.RequestLabelKeys(vs, s.Name())...)
		}
		if bound && !decided {
			decided, vh.GRPCWeb = true, s.Protocol() == model.Protocol_PROTOCOL_GRPC_WEB
		}
		if s.QUIC {
			vh.HTTP3 = s.Spec().GetPort().GetNumber()
		}
		if !own && !bound {
			continue
		}
		if serving = append(serving, s); s.Spec().GetTls().GetHttpsRedirect() {
			lost := lostRedirect(serving, name)
			found, vh.TLSOnly = append(found, lost...), vh.TLSOnly || len(lost) == 0
		}
	}
	return all, reads, found
}

// concerned returns the ascending indices of the servers that may serve a domain and that may add rules, a redirection
// or HTTP/3 to its virtual host, for a name (collect). A server that only covers the name adds nothing unless a
// VirtualService with the name is bound to its Gateway. So the thousands of servers with "*" that a port may have are
// not visited for each domain.
func (f *Front) concerned(c *config, domain, name string) (indices []int) {
	for _, h := range c.stated[name] {
		indices = append(indices, h.server)
	}
	add := func(i int) {
		if c.stated.covers(i, domain) {
			indices = append(indices, i)
		}
	}
	if c.servers[0].QUIC { // a server with TLS has its route configuration alone
		add(0)
	}
	for gateway := range f.hosts.BoundGateways(name) {
		for _, i := range c.distinct[gateway] {
			add(i)
		}
	}
	slices.Sort(indices)
	owner, guards := c.owners.Guard(domain)
	return slices.DeleteFunc(slices.Compact(indices), func(i int) bool {
		return c.repeats[i] || guards && !owner.Admits(c.servers[i])
	})
}

// lostRedirect returns the problem of the last server of a domain if its httpsRedirect has no effect: the first server
// is of another namespace and does not redirect. Otherwise any tenant could turn away the requests of others.
func lostRedirect(servers []gateways.Server, domain string) []input.Problem {
	first, last := servers[0], servers[len(servers)-1]
	if first.Spec().GetTls().GetHttpsRedirect() || first.Gateway.Key.Namespace == last.Gateway.Key.Namespace {
		return nil
	}
	return []input.Problem{{Key: last.Gateway.Key, Field: fmt.Sprintf("spec.servers[%d].tls.httpsRedirect", last.Index),
		Code: problem.Duplicate, Analyzer: problem.ConflictingGateways, Severity: problem.Error,
		Message: fmt.Sprintf("host %s on %s: %v (spec.servers[%d]) takes precedence and does not redirect; requests are not redirected",
			domain, last.PortText(), first.Gateway.Key, first.Index)}}
}

// leave removes the virtual host of a domain from a route configuration.
func (f *Front) leave(c *config, domain string) {
	f.problems.Set(takenUnit(c, domain), nil)
	if f.routes.Has(c.Config, domain) {
		f.routes.Leave(c.Config, domain, func() {})
		f.misdirect(c, domain)
	}
	f.decideBlackhole(c)
}

// boundTo returns the VirtualServices whose rules apply to a domain at the server with an index, sorted by precedence.
// A VirtualService that lists the domain applies if the server allows the domain for the VirtualService's namespace. If
// the server lists the domain itself (own), VirtualServices with a wildcard that covers the domain apply too.
func (f *Front) boundTo(c *config, server int, domain string, own bool) []*model.VirtualService {
	all := f.hosts.BoundTo
	if own {
		all = f.hosts.BoundOver
	}
	return slices.DeleteFunc(all(c.servers[server].Name(), domain), func(vs *model.VirtualService) bool {
		if c.stated.admits(server, vs.Key.Namespace, domain) {
			return false
		}
		lists := !own || slices.Contains(vs.Spec.GetHosts(), domain)
		return !lists || !c.stated.allows(server, vs.Key.Namespace, domain)
	})
}

// decideFixed decides the virtual hosts that a route configuration may have without any VirtualService.
func (f *Front) decideFixed(c *config) {
	for domain, by := range c.stated {
		if slices.ContainsFunc(by, func(h statedHost) bool { return c.servers[h.server].Spec().GetTls().GetHttpsRedirect() }) {
			f.decide(c, domain)
		}
	}
	for _, domain := range c.elsewhere.Shared {
		f.decide(c, domain)
	}
	f.decideBlackhole(c)
}

// decideBlackhole adds the virtual host blackhole, which answers 404, if the route configuration has no other virtual
// hosts, as istiod does. It removes the virtual host blackhole if there are others. The virtual host for misdirected
// requests is not counted.
func (f *Front) decideBlackhole(c *config) {
	others, has := f.routes.Len(c.Config), f.routes.Has(c.Config, blackholeID)
	for _, fixed := range []string{blackholeID, misdirectedID} {
		if f.routes.Has(c.Config, fixed) {
			others--
		}
	}
	switch {
	case others == 0 && !has:
		f.routes.Enter(c.Config, routes.VirtualHost{ID: blackholeID, Host: blackhole, Port: c.port,
			Domains: strs.List("*"), Bound: true, Kept: true}, func() {})
	case others > 0 && has:
		f.routes.Leave(c.Config, blackholeID, func() {})
	}
}

// CatchAll implements routes.Names: it returns the virtual host for unknown names, and true if there is one. The route
// configurations of servers have no such virtual host, so Envoy answers 404. Other route configurations are those of
// listeners that EnvoyFilters add.
func (f *Front) CatchAll(c routes.Config) (vhost.CatchAll, bool) {
	if f.configs[c.Name] != nil {
		return vhost.CatchAll{}, false
	}
	return f.Outbound.CatchAll(c)
}

// Rivals implements routes.Names: it returns ids unchanged. At gateways each domain belongs to a single virtual host,
// so virtual hosts do not compete for a domain.
func (f *Front) Rivals(_ routes.Config, _ *routes.VirtualHost, _ string, ids []string) []string {
	return ids
}

// SameRank implements routes.Names. The result is always true, because virtual hosts do not compete for a domain.
func (f *Front) SameRank(_, _ *routes.VirtualHost) bool { return true }

// Yields implements routes.Names. Both results are always false: a virtual host never yields a domain to another.
func (f *Front) Yields(_, _ *routes.VirtualHost) (yields, reported bool) { return false, false }

// Blame implements routes.Names: it returns the key of the VirtualService of the first rule. Problems of the virtual
// host are attributed to this object. Without rules the key is zero.
func (f *Front) Blame(vh *routes.VirtualHost) model.Key {
	if rules := vh.Rules.All(); len(rules) > 0 {
		return rules[0].VirtualService.Key
	}
	return model.Key{}
}
