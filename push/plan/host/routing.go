package host

import (
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Seen is the hosts as certain proxies see them, and the inputs of these.
type Seen struct {
	Hosts  Hosts
	Inputs view.Inputs
}

// Plain is how proxies without inputs see the hosts.
func (t *Table) Plain() Seen { return Seen{Hosts: t} }

// Of is how the proxies of a variation see the hosts; nil: as Plain.
func (t *Table) Of(v *Variation) Seen {
	if v == nil {
		return t.Plain()
	}
	return Seen{Hosts: v, Inputs: v.Inputs}
}

var destinations intern.Table[vhost.Destination]

// Routes fills in how requests to a host are routed: by those of the http rules (RulesFor) that are for the proxies,
// with the clusters of their destinations. If no rule is for them, the host's service alone decides: a virtual host
// without routes would answer 404 (Istio does the same). False: no service has the host at the port.
func (t *Table) Routes(spec *vhost.Spec, rules intern.List[vhost.Rule], as Seen, found *[]input.Problem) bool {
	applying, applies := t.applying(rules, spec.Port, as.Inputs)
	if !applies {
		d, _ := t.destination(as.Hosts, virtualservice.Ref{Host: spec.Host, Port: spec.Port}, spec.Port)
		spec.Destinations = destinations.List(d)
		h := as.Hosts.Get(spec.Host)
		return h.At(spec.Port) != nil
	}
	spec.Rules = applying
	var list []vhost.Destination
	seen := map[virtualservice.Ref]bool{}
	for _, r := range applying.All() {
		for _, ref := range virtualservice.Routed(r.HTTP()) {
			if seen[ref] {
				continue
			}
			seen[ref] = true
			d, there := t.destination(as.Hosts, ref, spec.Port)
			if !there {
				t.reportMissing(spec, as, ref, found)
			}
			list = append(list, d)
		}
	}
	spec.Destinations = destinations.List(list...)
	return true
}

// reportMissing reports a destination without a cluster, for the first rule that sends requests there.
func (t *Table) reportMissing(spec *vhost.Spec, as Seen, ref virtualservice.Ref, found *[]input.Problem) {
	i := slices.IndexFunc(spec.Rules.All(), func(r vhost.Rule) bool { return r.Applies() && virtualservice.RuleSendsTo(r.HTTP(), ref) })
	if i < 0 {
		return
	}
	if what := t.missing(spec, as, ref); what != "" {
		by := spec.Rules.All()[i].VirtualService.Key
		*found = append(*found, input.NotFound(by, "spec.http", "destination "+what+"; requests to it are answered 503"))
	}
}

// missing describes why a destination has no cluster; empty: no request reaches the destination by this virtual host.
// No request reaches a port that the host's own services do not have. Whether requests come to a port of a host
// without a service is not known: there a destination without a port is missing only where it would be at every port.
func (t *Table) missing(spec *vhost.Spec, as Seen, ref virtualservice.Ref) string {
	h := as.Hosts.Get(spec.Host)
	served := h != nil && h.Service != nil
	if served && h.At(spec.Port) == nil {
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
		if !served {
			return ""
		}
		return fmt.Sprintf("%s states no port and has no port %d, to which requests to %s come", name, spec.Port, spec.Host)
	}
	return fmt.Sprintf("%s has no port %d here", name, ref.Port)
}

// hasSubset says whether a rule of the host has a subset.
func (h *Host) hasSubset(name string) bool {
	_, has := h.Rules.subset(name)
	return has
}

// destination resolves a destination of a VirtualService. False: there is no such cluster; Envoy answers 503 for a
// cluster that is not there, and gRPC's client has to be given one that is.
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

// target is the host that a name stands for: itself, unless it is an alias (a Service of type ExternalName).
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

// Alias is the Service by which it is another name of a host (of type ExternalName); nil: it is none.
func (h *Host) Alias() *model.Service { return h.alias }

// longestAlias bounds chains of aliases, which may go in a circle.
const longestAlias = 10

// Reached are the hosts that the rules of the variation decide otherwise: those with other rules, and those that are
// routed to them, or to other names of them.
func (v *Variation) Reached() map[string]bool {
	hosts := map[string]bool{}
	routed := func(name string) {
		v.table.in.RoutesTo(name, func(vs *model.VirtualService) {
			v.table.Decided(vs, func(decided string) { hosts[decided] = true })
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

// ShortNames are the names under which a resolver finds name.namespace.svc.domain: from its own namespace also `name`.
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

// LongNames calls visit with each host that may have a name among its ShortNames.
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
