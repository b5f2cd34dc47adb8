package host

import (
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Perspective selects the table's proxies with equal inputs. Inputs are properties of a proxy, such as labels, that
// some rules read. The selected proxies are those of a Variation, or the proxies without inputs.
type Perspective struct {
	Hosts  Hosts       // a Table or a Variation
	Inputs view.Inputs // zero for proxies without inputs
}

// WithoutInputs returns the Perspective of the proxies without inputs.
func (t *Table) WithoutInputs() Perspective { return Perspective{Hosts: t} }

// Of returns the perspective of the proxies of a variation. A nil variation means proxies without inputs.
func (t *Table) Of(v *Variation) Perspective {
	if v == nil {
		return t.WithoutInputs()
	}
	return Perspective{Hosts: v, Inputs: v.Inputs}
}

var destinations intern.Table[vhost.Destination]

// Routes sets the Rules and Destinations of spec, which route the requests to spec.Host at spec.Port. The parameter
// rules has the http rules for the host (RulesFor). Routes excludes their matches for other proxies or ports. If no
// rule applies, Routes only sets Destinations, to the host's own service, as Istio does. The result is false if no rule
// applies and the host has no service with the port. Routes appends problems to found. as.Hosts must contain spec.Host.
func (t *Table) Routes(spec *vhost.Spec, rules intern.List[vhost.Rule], as Perspective, found *[]input.Problem) bool {
	applying, applies := t.applying(rules, spec.Port, as.Inputs)
	if !applies {
		d, _ := t.destination(as.Hosts, virtualservice.Ref{Host: spec.Host, Port: spec.Port}, spec.Port)
		spec.Destinations = destinations.List(d)
		h := as.Hosts.Get(spec.Host)
		return h.At(spec.Port) != nil
	}
	t.resolve(spec, applying, as, false, found)
	return true
}

// resolve sets the Rules of spec, and sets Destinations to the clusters to which the rules route. The parameter bound
// states that spec is a virtual host of a gateway, at whose port requests arrive.
func (t *Table) resolve(spec *vhost.Spec, rules intern.List[vhost.Rule], as Perspective, bound bool, found *[]input.Problem) {
	spec.Rules = rules
	var list []vhost.Destination
	seen := map[virtualservice.Ref]bool{}
	for _, r := range rules.All() {
		for _, ref := range virtualservice.Routed(r.HTTP()) {
			if seen[ref] {
				continue
			}
			seen[ref] = true
			d, there := t.destination(as.Hosts, ref, spec.Port)
			if !there {
				t.reportMissing(spec, as, ref, bound, found)
			} else if t.astray(spec, as.Hosts, ref, found) || t.circular(spec, d.Cluster, ref, found) {
				d.Cluster = xds.ClusterName{}
			}
			list = append(list, d)
		}
	}
	spec.Destinations = destinations.List(list...)
}

// reportMissing appends a problem for a destination without a cluster. The problem is about the VirtualService of the
// first rule that routes to the destination.
func (t *Table) reportMissing(spec *vhost.Spec, as Perspective, ref virtualservice.Ref, bound bool, found *[]input.Problem) {
	i := slices.IndexFunc(spec.Rules.All(), func(r vhost.Rule) bool {
		return r.Applies() && virtualservice.RuleSendsTo(r.HTTP(), ref)
	})
	if i < 0 {
		return
	}
	by := spec.Rules.All()[i].VirtualService.Key
	if what := t.missing(spec, as, ref, bound, by.Namespace); what != "" {
		*found = append(*found, input.NotFound(by, "spec.http", "destination "+what+"; requests to it are answered 503"))
	}
}

// missing describes why a destination has no cluster. It returns "" if no request reaches the destination through this
// virtual host, because the host's own service does not have the virtual host's port. If the host has no service, the
// ports at which requests arrive are unknown. In this case, a destination without a port is reported only if its
// service or subset does not exist. At a gateway (bound), requests arrive at the port of the server. The text has the
// ports of the destination's service if the service is exported to the namespace reader.
func (t *Table) missing(spec *vhost.Spec, as Perspective, ref virtualservice.Ref, bound bool, reader string) string {
	h := as.Hosts.Get(spec.Host)
	served := h != nil && h.Service != nil
	if !bound && served && h.At(spec.Port) == nil {
		return ""
	}
	name := ref.Host
	if ref.Subset != "" {
		name += " subset " + ref.Subset
	}
	to := as.Hosts.Get(target(as.Hosts, ref.Host))
	if to == nil || to.Service == nil || ref.Subset != "" && !to.hasSubset(ref.Subset) {
		return name + " is not there"
	}
	if ref.Port == 0 {
		if !bound && !served {
			return ""
		}
		return fmt.Sprintf("%s states no port and has no port %d%s, to which requests to %s come", name, spec.Port, to.portsFor(reader),
			spec.Host)
	}
	return fmt.Sprintf("%s has no port %d here%s", name, ref.Port, to.portsFor(reader))
}

// mostPorts is the maximum number of ports that a message lists.
const mostPorts = 5

// portsFor returns the ports of the host's service in parentheses, for messages to readers of a namespace. It returns
// "" if the service is not exported to the namespace.
func (h *Host) portsFor(namespace string) string {
	if !model.Exported(h.Service.Spec.GetExportTo(), h.Service.Key.Namespace, namespace) {
		return ""
	}
	var texts []string
	for _, p := range h.Service.Spec.GetPorts() {
		if len(texts) == mostPorts {
			return " (it has " + strings.Join(texts, ", ") + " and others)"
		}
		texts = append(texts, fmt.Sprint(p.GetNumber()))
	}
	if len(texts) == 0 {
		return ""
	}
	return " (it has " + strings.Join(texts, ", ") + ")"
}

// hasSubset reports whether a rule of the host defines a subset.
func (h *Host) hasSubset(name string) bool {
	_, has := h.Rules.subset(name)
	return has
}

// destination resolves a destination of a VirtualService. If ref has no port, the port is chosen as in ClusterFor. The
// second result reports whether the destination has a cluster. Without a cluster, Envoys get the name that the cluster
// would have, and answer 503. gRPC clients (Form.Whole) get no cluster name, since they accept only existing clusters.
func (t *Table) destination(hosts Hosts, ref virtualservice.Ref, listenPort uint32) (d vhost.Destination, there bool) {
	d = vhost.Destination{Host: ref.Host, Subset: ref.Subset, Port: ref.Port}
	to, there := hosts.ClusterFor(ref.Host, ref.Subset, ref.Port, listenPort)
	if there || !t.form.Whole {
		d.Cluster = to.ClusterName
	}
	if !there {
		return d, false
	}
	rules := to.Known.Rules
	policy := t.Policy(rules, ref.Subset, to.Port)
	if d.Hash = policy.Balancer.GetConsistentHash(); d.Hash != nil {
		d.Rule = rules.at(ref.Subset, policy.BalancerAt)
	}
	return d, true
}

// target resolves aliases, which are Services of type ExternalName. It returns the host at the end of the chain of
// aliases that begins at name, or name itself if it is not an alias.
func target(hosts Hosts, name string) string {
	for range longestAlias {
		h := hosts.Get(name)
		if h == nil || h.alias == nil {
			return name
		}
		name = h.alias.Spec.GetAliasFor()
	}
	return name
}

// Alias returns the Service of type ExternalName that makes h an alias of another host. It returns nil if h is not an
// alias.
func (h *Host) Alias() *model.Service { return h.alias }

// longestAlias is the maximum length of a chain of aliases, which may be circular.
const longestAlias = 10

// ReroutedHosts returns the hosts whose routes may differ between the variation and the table. These are the hosts with
// different DestinationRules, and the hosts whose VirtualServices route to such a host or to one of its aliases. The
// caller owns the map, which is never nil.
func (v *Variation) ReroutedHosts() map[string]bool {
	hosts := map[string]bool{}
	routed := func(name string) {
		v.table.in.RoutesTo(name, func(vs *model.VirtualService) {
			v.table.RoutedHosts(vs, func(decided string) { hosts[decided] = true })
		})
	}
	for name, h := range v.hosts {
		if h.Rules.equal(v.table.Get(name).Rules) {
			continue
		}
		hosts[name] = true
		routed(name)
		for alias := range v.table.in.Index.Aliases(name) {
			routed(alias)
		}
	}
	return hosts
}

// ShortNames returns the names that a DNS resolver in a namespace completes to a host. domain is the DNS suffix of
// services, such as "svc.cluster.local". The host NAME.NS.svc.cluster.local has the short names NAME, NAME.NS and
// NAME.NS.svc, in this order. NAME is left out unless NS equals namespace. NAME.NS.svc is left out unless the first
// label of domain is "svc". The result is nil for all other hosts, and if NAME is "*".
func ShortNames(host, namespace, domain string) []string {
	rest, ok := strings.CutSuffix(host, "."+domain)
	name, ns, two := strings.Cut(rest, ".")
	if !ok || !two || name == "" || name == "*" || ns == "" || strings.Contains(ns, ".") {
		return nil
	}
	out := make([]string, 0, 3)
	if ns == namespace {
		out = append(out, name)
	}
	out = append(out, rest)
	if svc, _, _ := strings.Cut(domain, "."); svc == "svc" {
		out = append(out, host[:len(rest)+len(".svc")])
	}
	return out
}

// LongNames calls visit with the host to which a DNS resolver in the namespace may complete a short name (see
// ShortNames). It calls visit at most once, and not at all if name does not have the form of a short name. It does not
// test whether the host exists.
func LongNames(name, namespace, domain string, visit func(host string)) {
	switch strings.Count(name, ".") {
	case 0:
		visit(name + "." + namespace + "." + domain)
	case 1:
		visit(name + "." + domain)
	case 2:
		if short, ok := strings.CutSuffix(name, ".svc"); ok {
			visit(short + "." + domain)
		}
	}
}
