package describe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// pod describes a Pod by its proxy, and by its record in the snapshot.
func (d *describer) pod() {
	for _, w := range named[*model.Workload](d, model.KindWorkload) {
		d.out.Objects = append(d.out.Objects, d.recordOf(w))
	}
	d.proxies(d.seen(func(n view.Node, _ view.View) bool { return n.Namespace == d.Namespace && n.Name == d.Name }))
}

// workload describes the proxies of a workload. The query's name is that of a Deployment or another owner of Pods, the
// canonical name of an application, or the name of a single Pod or WorkloadEntry.
func (d *describer) workload() {
	pods := Object{Object: "Pods of " + d.Namespace + "/" + d.Name}
	named := map[string]bool{d.Name: true} // names of Pods; their proxies may state no workload
	for r := range d.snapshot.In(model.KindWorkload, d.Namespace) {
		w := r.(*model.Workload)
		switch e := w.Spec.GetEndpoint(); {
		case w.Key.Name == d.Name:
			d.out.Objects = append(d.out.Objects, d.recordOf(w))
		case e.GetWorkload() == d.Name || canonicalName(e.GetLabels()) == d.Name:
			named[w.Key.Name] = true
			text := strings.TrimSpace("account " + e.GetServiceAccount() + " " + e.GetLocality())
			pods.Facts = append(pods.Facts, Fact{e.GetAddress(), text, []string{at(w.Key, "")}})
		}
	}
	if left := len(pods.Facts) - maxPods; left > 0 {
		d.more("%d further Pods of it are not listed", left)
		pods.Facts = pods.Facts[:maxPods]
	}
	if len(pods.Facts) > 0 {
		d.out.Objects = append(d.out.Objects, pods)
	}
	d.proxies(d.seen(func(n view.Node, _ view.View) bool {
		return n.Namespace == d.Namespace && (n.Workload == d.Name || named[n.Name] || canonicalName(n.Labels) == d.Name)
	}))
}

// canonicalName returns the name of an application by the labels of its Pods, as Istio derives it. It returns ""
// without such a label.
func canonicalName(labels map[string]string) string {
	return cmp.Or(labels["service.istio.io/canonical-name"], labels["app.kubernetes.io/name"], labels["app"])
}

// recordOf describes the record of a Pod or a WorkloadEntry.
func (d *describer) recordOf(w *model.Workload) Object {
	e := w.Spec.GetEndpoint()
	by := []string{at(w.Key, "")}
	o := Object{Object: w.Key.String(), Facts: facts(by,
		"addresses", strings.Join(append([]string{e.GetAddress()}, w.Spec.GetMoreAddresses()...), ", "),
		"account", e.GetServiceAccount(), "locality", e.GetLocality(), "network", e.GetNetwork(),
		"mTLS", yes(e.GetMtls(), "it states tlsMode istio"))}
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range d.snapshot.In(kind, d.Namespace) {
			if svc := r.(*model.Service); len(svc.Spec.GetSelector()) > 0 && model.Matches(svc.Spec.GetSelector(), e.GetLabels()) {
				o.Facts = append(o.Facts, Fact{"selected by", strings.Join(svc.Spec.GetHosts(), ", "), []string{at(svc.Key, "")}})
			}
		}
	}
	return o
}

// facts returns a fact for each pair of a subject and a text that is not empty.
func facts(by []string, pairs ...string) (all []Fact) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			all = append(all, Fact{pair[0], pair[1], by})
		}
	}
	return all
}

// yes returns the text if the condition is true, otherwise "".
func yes(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// proxies describes the identity and the inbound and outbound sides of proxies.
func (d *describer) proxies(all []plan.Seen) {
	for _, s := range d.bounded(all, maxServers, "proxies") {
		o, ok := d.from.Origins(s)
		if !ok {
			continue
		}
		for i := range s.Nodes {
			one := s
			one.Nodes = s.Nodes[i : i+1]
			d.add(Itself, one, identityOf(&s.Nodes[i]))
		}
		d.add(Inbound, s, inboundOf(s, o)...)
		hosts := d.from.ScopeHosts(s)
		sections := []Section{scopeOf(s, len(hosts)), filtersOf(o.Snapshot, s.View.Scope.Filters.All())}
		if s.View.Scope.Kind == view.Router {
			sections = append(sections, listenersOf(o))
		}
		d.add(Outbound, s, append(sections, d.hostsOf(s, hosts)...)...)
	}
}

var kindNames = map[view.Kind]string{view.Sidecar: "sidecar", view.Router: "gateway", view.Proxyless: "gRPC without a proxy"}

// identityOf lists the identity that a proxy states and the identity that was authenticated. It also lists the proxy's
// version, locality, network, cluster and workload.
func identityOf(n *view.Node) Section {
	by := []string{"Pod " + n.Namespace + "/" + n.Name}
	return Section{"identity", facts(by,
		"kind", kindNames[n.Kind], "account", n.Account, "proved", identityText(n.Verified), "version", n.Version,
		"locality", n.Locality, "network", n.Network, "cluster", n.Cluster,
		"workload", cmp.Or(canonicalName(n.Labels), n.Workload))}
}

// identityText returns the service account of an authenticated identity. It returns "" if the proxy is not
// authenticated.
func identityText(i view.Identity) string {
	if i.Account == "" {
		return ""
	}
	return "account " + i.Namespace + "/" + i.Account
}

// scopeOf lists the Sidecar or the Gateways that select a proxy's hosts, and the number and size of the proxy's
// resources.
func scopeOf(s plan.Seen, hosts int) Section {
	out := Section{Name: "scope and its cost"}
	var by []string
	text := fmt.Sprint(hosts)
	switch sidecar := s.View.Scope.Sidecar; {
	case s.View.Scope.Kind == view.Router:
		for _, g := range s.View.Scope.Gateways.All() {
			by = append(by, at(g, ""))
		}
		text += " that its Gateways may lead to"
	case sidecar != model.Key{}:
		by = []string{at(sidecar, "spec.egress")}
		text += ", imported by the Sidecar"
	default:
		text += ", all that are exported to the namespace, as no Sidecar applies"
	}
	out.Facts = append(out.Facts, Fact{"hosts", text, by})
	total := 0
	for t := range xds.NumTypes {
		n, size := 0, 0
		for r := range s.Set.Types[t].All() {
			n, size = n+1, size+r.Size()
		}
		if total += size; n > 0 {
			out.Facts = append(out.Facts, Fact{t.Noun() + "s", fmt.Sprintf("%d, %s", n, sizeText(size)), by})
		}
	}
	out.Facts = append(out.Facts, Fact{"in all", sizeText(total), by})
	return out
}

// sizeText returns a size in bytes as text.
func sizeText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f kB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
