package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/plan/front/gateway"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// hostsOf describes the hosts of a proxy. The argument usable lists the hosts that the proxy may use (its scope).
// hostsOf may reorder this list. If Query.Host is set, hostsOf describes only that host, in full. If not, it lists up
// to Query.Limit hosts, with a line for each. Hosts with rules come first.
func (d *describer) hostsOf(s plan.Seen, usable []plan.HostName) []Section {
	if d.Host != "" {
		return d.hostSections(s, hostNames(d.Host, d.Namespace, s.View.Scope))
	}
	if s.View.Scope.Kind == view.Router {
		usable = nil
		for _, name := range d.from.ServedHosts(s) {
			usable = append(usable, plan.HostName{Name: name, Ruled: true})
		}
	}
	slices.SortStableFunc(usable, func(a, b plan.HostName) int {
		switch {
		case a.Ruled == b.Ruled:
			return 0
		case a.Ruled:
			return -1
		}
		return 1
	})
	if left := len(usable) - d.Limit; left > 0 {
		d.more("%d further hosts of %s.%s are not listed: --limit lists up to %d, --host describes one",
			left, s.Nodes[0].Name, s.Nodes[0].Namespace, MaxHosts)
		usable = usable[:d.Limit]
	}
	var names []string
	for _, h := range usable {
		names = append(names, h.Name)
	}
	out := Section{Name: "hosts, those with rules first"}
	for _, of := range d.from.HostOrigins(s, names) {
		out.Facts = append(out.Facts, d.lineOf(s, of))
	}
	return []Section{out}
}

// lineOf returns the summary of a host in one fact.
func (d *describer) lineOf(s plan.Seen, of plan.HostOrigins) Fact {
	f := Fact{Subject: of.Name}
	var texts []string
	add := func(keys ...model.Key) {
		for _, key := range keys {
			if name := at(key, ""); !slices.Contains(f.By, name) {
				f.By = append(f.By, name)
			}
		}
	}
	switch {
	case of.Alias != nil:
		texts = append(texts, "alias of "+of.Alias.Spec.GetAliasFor())
		add(of.Alias.Key)
	case of.Service != nil:
		texts = append(texts, portsText(of.Service))
		add(of.Service.Key)
	default:
		texts = append(texts, "no service")
	}
	if decided := deciding(of); len(decided) > 0 {
		texts = append(texts, "routed")
		add(decided...)
	}
	if len(of.Rules) > 0 {
		texts = append(texts, "policy")
		for _, rule := range of.Rules {
			add(rule.Key)
		}
	}
	if text := readyText(s, of); text != "" {
		texts = append(texts, text)
	}
	f.Text = strings.Join(texts, "; ")
	return f
}

// readyText returns the number of ready endpoints of a host, at the port with the fewest ready endpoints. Clusters of
// subsets do not count. If the host has no other clusters, the result is "".
func readyText(s plan.Seen, of plan.HostOrigins) (text string) {
	fewest := -1
	for _, spec := range of.Clusters {
		c, is := clusterSpec(spec)
		if !is || c.Subset != "" || c.BySNI {
			continue
		}
		ready, all := 0, 0
		for _, n := range endpointsOf(s.Set, c) {
			ready, all = ready+n.ready, all+n.ready+n.other
		}
		if fewest < 0 || ready < fewest {
			fewest, text = ready, fmt.Sprintf("%d of %d endpoints ready", ready, all)
		}
	}
	return text
}

// deciding returns the VirtualServices whose rules determine the routes of a host, each once.
func deciding(of plan.HostOrigins) (keys []model.Key) {
	for _, r := range of.Routed {
		for _, rule := range r.Spec.Rules.All() {
			if key := rule.VirtualService.Key; !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	for _, vs := range of.Connecting {
		if !slices.Contains(keys, vs.Key) {
			keys = append(keys, vs.Key)
		}
	}
	return keys
}

// hostNames returns the full names that a host name may mean in a scope, in order of precedence. First comes the name
// itself, then the completed name, then the wildcards that cover these names. A name with a dot is completed by the
// domain. A name without a dot is completed by the namespace and the domain.
func hostNames(name, namespace string, scope view.Scope) (names []string) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	domain := strings.TrimPrefix(scope.Domain, scope.Namespace+".")
	names = append(names, name)
	if strings.Contains(name, ".") {
		names = append(names, name+"."+domain)
	}
	if namespace == "" {
		namespace = scope.Namespace
	}
	if !strings.Contains(name, ".") {
		names = append(names, name+"."+namespace+"."+domain)
	}
	for _, full := range slices.Clone(names) {
		names = slices.AppendSeq(names, model.Wildcards(full))
	}
	return names
}

// hostSections describes one host in full. The host is the first element of names that the view's proxies know as a
// host. If they know no name, the result is nil.
func (d *describer) hostSections(s plan.Seen, names []string) []Section {
	all := d.from.HostOrigins(s, names)
	if len(all) == 0 {
		return nil
	}
	return d.hostInFull(s, all[0])
}

// hostInFull describes the service, the routes, the rules that do not apply, the policy and the endpoints of a host.
func (d *describer) hostInFull(s plan.Seen, of plan.HostOrigins) []Section {
	is := Section{Name: "host " + of.Name}
	switch {
	case of.Alias != nil:
		is.Facts = append(is.Facts, Fact{"alias", "of " + of.Alias.Spec.GetAliasFor(), []string{at(of.Alias.Key, "spec.externalName")}})
	case of.Service == nil:
		is.Facts = append(is.Facts, Fact{Subject: "service", Text: "none: rules alone name the host", By: keysText(deciding(of))})
	default:
		for _, svc := range append([]*model.Service{of.Service}, of.Joined...) {
			is.Facts = append(is.Facts, Fact{"service", portsText(svc), []string{at(svc.Key, "")}})
		}
	}
	return []Section{is, routesOf(s, of), d.passedOf(s, of), policyOf(of), endpointsSection(s, of)}
}

// routesOf lists the routes of a host in their order.
func routesOf(s plan.Seen, of plan.HostOrigins) Section {
	out := Section{Name: "routes, the first that matches wins"}
	for _, r := range of.Routed {
		subject := fmt.Sprintf("port %d", r.Spec.Port)
		if len(r.Servers) > 0 {
			subject = r.Config
		}
		vh, err := inspect.VirtualHost(s.Set.Types[xds.Route].Get(r.Config), xds.VirtualHost(r.Spec.Host, r.Spec.Port))
		if err != nil || vh == nil {
			continue // the planned set does not contain the virtual host yet
		}
		if r.Spec.TLSOnly {
			const text = "without TLS -> 301 to https; the other routes are for x-forwarded-proto: https of a trusted proxy"
			out.Facts = append(out.Facts, Fact{subject, text, serversText(r)})
		}
		rules := meaning.Rules(vh)
		by := rulePlaces(r, len(rules), of)
		for i, rule := range rules {
			text := rule.Match + " -> " + rule.To
			if rule.Name != "" {
				text = fmt.Sprintf("%q: %s", rule.Name, text)
			}
			if rule.Also != "" {
				text += "; " + rule.Also
			}
			out.Facts = append(out.Facts, Fact{subject, text, by[i]})
		}
	}
	for _, vs := range of.Connecting {
		text := fmt.Sprintf("%d tls and %d tcp rules, merged with those of others", len(vs.Spec.GetTls()), len(vs.Spec.GetTcp()))
		out.Facts = append(out.Facts, Fact{"connections", text, []string{at(vs.Key, "spec")}})
	}
	return out
}

// rulePlaces returns, for each of the n routes of a virtual host, the objects that cause the route. A rule makes one
// route for each of its matches that applies. If the number of routes differs, for example because of EnvoyFilters,
// each route gets all objects of the virtual host.
func rulePlaces(r host.Routed, n int, of plan.HostOrigins) [][]string {
	var each [][]string
	for _, rule := range r.Spec.Rules.All() {
		if !rule.Applies() {
			continue
		}
		by := rulePlace(rule)
		for range max(len(rule.HTTP().GetMatch())-rule.Excluded.Len(), 1) {
			each = append(each, append(slices.Clone(by), serversText(r)...))
		}
	}
	if len(each) == n {
		return each
	}
	by := keysText(deciding(plan.HostOrigins{Routed: []host.Routed{r}}))
	for _, p := range r.Spec.Patches.All() {
		by = append(by, patchAt(p))
	}
	if len(by) == 0 && of.Service != nil {
		by = append(by, at(of.Service.Key, ""))
	}
	return slices.Repeat([][]string{append(by, serversText(r)...)}, n)
}

// rulePlace returns the object and field of a rule. For a rule of a delegate VirtualService it returns the delegate,
// then the VirtualService that delegates.
func rulePlace(rule vhost.Rule) []string {
	key := rule.VirtualService.Key
	if d := rule.HTTP().GetDelegate(); d != nil {
		delegate := model.Key{Kind: model.KindVirtualService, Namespace: d.GetNamespace(), Name: d.GetName(), Origin: key.Origin}
		return []string{at(delegate, ""), at(key, "spec.http")}
	}
	if slices.ContainsFunc(rule.VirtualService.Spec.GetHttp(), func(h *networkingv1.HTTPRoute) bool { return h.GetDelegate() != nil }) {
		return []string{at(key, "spec.http")} // rules of delegates shift the indices of its own rules
	}
	return []string{at(key, fmt.Sprintf("spec.http[%d]", rule.Index))}
}

// serversText returns the servers of Gateways that use a virtual host; nil if the proxy is not a gateway.
func serversText(r host.Routed) (names []string) {
	for _, server := range r.Servers {
		names = append(names, server.String())
	}
	return names
}

// passedOf lists the visible VirtualServices and DestinationRules of a host that do not apply, with the reasons. A
// gateway merges all VirtualServices that list the host and that a server admits, so age and name are no reasons there.
func (d *describer) passedOf(s plan.Seen, of plan.HostOrigins) Section {
	out := Section{Name: "rules that do not apply"}
	decided := deciding(of)
	won := slices.IndexFunc(of.Claims, func(c host.Claim) bool { return slices.Contains(decided, c.VirtualService.Key) })
	for i, c := range of.Claims {
		if vs := c.VirtualService; !slices.Contains(decided, vs.Key) && d.sees(vs.Key.Namespace) {
			why := whyPassed(of.Claims, won, i)
			if s.View.Scope.Kind == view.Router && (won < 0 || of.Claims[won].Name == c.Name) {
				why = fmt.Sprintf("no server of its Gateways admits the host for namespace %s, or its rules are for other Gateways", vs.Key.Namespace)
			}
			out.Facts = append(out.Facts, Fact{"VirtualService", why, []string{at(vs.Key, "spec.hosts")}})
		}
	}
	for _, rule := range of.Passed {
		if d.sees(rule.Key.Namespace) {
			out.Facts = append(out.Facts, Fact{"DestinationRule", whyRulePassed(rule, of), []string{at(rule.Key, "spec.host")}})
		}
	}
	return out
}

// whyPassed returns the reason why the VirtualService claims[i] does not determine the routes of a host. A claim is a
// VirtualService that lists the host. The argument won is the index of the claim that determines the routes. It is
// negative if no claim determines them.
func whyPassed(claims []host.Claim, won, i int) string {
	if won < 0 {
		return "its rules are not for these clients, or the clients import no HTTP port of the host"
	}
	winner, c := claims[won], claims[i]
	name := at(winner.VirtualService.Key, "")
	switch {
	case winner.Name != c.Name && won < i:
		return fmt.Sprintf("its host %s is less specific than %s of %s", c.Name, winner.Name, name)
	case winner.Reach != c.Reach && won < i:
		return name + " is exported to fewer namespaces, and goes first"
	case won < i && winner.VirtualService.Created != c.VirtualService.Created:
		return name + " is older"
	case won < i:
		return name + " goes first by its name"
	}
	return "the Sidecar does not import the VirtualService for the ports of the host"
}

// whyRulePassed returns the reason why a DestinationRule does not apply to a host.
func whyRulePassed(rule *model.DestinationRule, of plan.HostOrigins) string {
	if len(of.Rules) == 0 {
		return "it is hidden by a rule of a nearer namespace, or by one whose workloadSelector does not match"
	}
	first := at(of.Rules[0].Key, "")
	switch {
	case of.Rules[0].Key.Namespace != rule.Key.Namespace:
		return "rules of namespace " + of.Rules[0].Key.Namespace + " go first"
	case of.Rules[0].Spec.GetHost() != rule.Spec.GetHost():
		return fmt.Sprintf("its host %s is less specific than %s of %s", rule.Spec.GetHost(), of.Rules[0].Spec.GetHost(), first)
	case rule.Spec.GetWorkloadSelector() != nil:
		return "its workloadSelector does not match, or an older rule's does"
	}
	return first + " states all of its settings, or cannot be merged with it"
}

// listenersOf lists the filter chains of a gateway, with the servers that made them.
func listenersOf(o plan.Origins) Section {
	out := Section{Name: "listeners"}
	for _, name := range slices.Sorted(maps.Keys(o.Listeners)) {
		for _, spec := range o.Listeners[name] {
			c, is := spec.(gateway.Chain)
			if !is {
				continue
			}
			f := Fact{Subject: name}
			texts := []string{"every name"}
			if c.Names.Len() > 0 {
				texts = []string{"SNI " + strings.Join(c.Names.All(), ", ")}
			}
			if c.Route != "" {
				texts = append(texts, "routes "+c.Route)
			}
			if c.Secrets.Len() > 0 {
				texts = append(texts, "secrets "+strings.Join(c.Secrets.All(), ", "))
			}
			for _, server := range c.Servers.All() {
				f.By = append(f.By, server.String())
			}
			if c.VirtualService != (model.Place{}) {
				f.By = append(f.By, c.VirtualService.String())
			}
			if c.Service != nil {
				f.By = append(f.By, at(c.Service.Key, ""))
			}
			f.Text = strings.Join(texts, "; ")
			out.Facts = append(out.Facts, f)
		}
	}
	return out
}
