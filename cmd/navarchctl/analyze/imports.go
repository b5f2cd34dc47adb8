package analyze

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/front/gateway"
	"navarch.io/navarch/push/plan/host"
	planinput "navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/problem"
)

// imports reports hosts that a Sidecar imports and that no Service, ServiceEntry or VirtualService has.
func imports(w *world) {
	hosts := map[string]map[string]bool{} // the namespaces that have a host, by host
	add := func(namespace string, all []string) {
		for _, host := range all {
			for _, in := range []string{namespace, "*"} {
				if hosts[host] == nil {
					hosts[host] = map[string]bool{}
				}
				hosts[host][in] = true
			}
		}
	}
	for _, of := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for svc := range each[*model.Service](w, of) {
			add(svc.Key.Namespace, svc.Spec.GetHosts())
		}
	}
	for vs := range each[*model.VirtualService](w, model.KindVirtualService) {
		add(vs.Key.Namespace, vs.Spec.GetHosts())
	}
	if len(hosts) == 0 {
		return // the services may be in files that are not analysed
	}
	for s := range each[*model.Sidecar](w, model.KindSidecar) {
		for i, e := range s.Spec.GetEgress() {
			for _, text := range e.GetHosts() {
				namespace, host, _ := strings.Cut(text, "/")
				if strings.HasPrefix(namespace, "~") || strings.HasPrefix(host, "*") {
					continue
				}
				if namespace == "." {
					namespace = s.Key.Namespace
					if namespace == w.rootNamespace() {
						namespace = "*"
					}
				}
				if !exists(hosts, host, namespace) {
					w.foundRecord(problem.ImportedHostNotFound, s, fmt.Sprintf("spec.egress[%d].hosts", i),
						"%q is imported, but no service in that namespace has the host", text)
				}
			}
		}
	}
}

// exists reports whether a namespace has a host, or a wildcard that covers the host.
func exists(hosts map[string]map[string]bool, host, namespace string) bool {
	for of := range model.Covering(host) {
		if hosts[of][namespace] {
			return true
		}
	}
	return false
}

// maxImports is the maximum number of entries of one egress listener that are compared with each other.
const maxImports = 200

// idleImports reports entries of a Sidecar's egress listeners that import nothing: another entry of the listener
// imports the same hosts, or no service with the host is exported to the Sidecar's namespace. Whether an application
// calls an imported host is not in the configuration (see navarchctl suggest sidecar).
func idleImports(w *world) {
	byHost := map[string][]*model.Service{}
	for _, of := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for svc := range each[*model.Service](w, of) {
			for _, host := range svc.Spec.GetHosts() {
				byHost[host] = append(byHost[host], svc)
			}
		}
	}
	for s := range each[*model.Sidecar](w, model.KindSidecar) {
		own := s.Key.Namespace
		if own == w.rootNamespace() {
			own = "." // the namespace of each proxy
		}
		for i, e := range s.Spec.GetEgress() {
			field := fmt.Sprintf("spec.egress[%d].hosts", i)
			all := parseImports(e.GetHosts()[:min(len(e.GetHosts()), maxImports)], own)
			for j, one := range all {
				if by := coveredBy(all, j); by >= 0 {
					w.foundRecord(problem.ImportWithoutEffect, s, field, "%q adds nothing: %q of the same listener imports it",
						one.text, all[by].text)
				} else if owner := one.hidden(byHost[one.host], s.Key.Namespace); owner != nil && own != "." {
					w.foundRecord(problem.ImportWithoutEffect, s, field,
						"%q imports nothing: %v is not exported to namespace %s (exportTo)", one.text, owner.Key, s.Key.Namespace)
				}
			}
		}
	}
}

// imported is one entry of an egress listener, "namespace/host".
type imported struct{ text, namespace, host string }

// parseImports parses the entries of an egress listener. The namespace own takes the place of ".". Exclusions
// (~namespace/host) are omitted.
func parseImports(hosts []string, own string) (all []imported) {
	for _, text := range hosts {
		if strings.HasPrefix(text, "~") {
			continue
		}
		namespace, host, _ := strings.Cut(text, "/")
		if namespace == "." {
			namespace = own
		}
		all = append(all, imported{text, namespace, host})
	}
	return all
}

// coveredBy returns the index of another entry that imports every host of the entry at an index, or -1. Of two equal
// entries the first counts.
func coveredBy(all []imported, at int) int {
	one := all[at]
	for i, by := range all {
		same := by.namespace == one.namespace && by.host == one.host
		if i != at && (i < at || !same) && (by.namespace == "*" || by.namespace == one.namespace) && planinput.Covers(by.host, one.host) {
			return i
		}
	}
	return -1
}

// hidden returns the first of the services with the entry's host, if no such service in the entry's namespace is
// exported to the namespace viewer. Otherwise it returns nil.
func (i imported) hidden(services []*model.Service, viewer string) (first *model.Service) {
	for _, svc := range services {
		if i.namespace != "*" && i.namespace != svc.Key.Namespace {
			continue
		}
		if svc.Key.Namespace == viewer || model.Exported(svc.Spec.GetExportTo(), svc.Key.Namespace, viewer) {
			return nil
		}
		if first == nil {
			first = svc
		}
	}
	return first
}

// patchedImports reports hosts to which the patches of an EnvoyFilter send requests, and which a Sidecar for the
// patched proxies does not import. These proxies lack the cluster. Hosts without a service, and destinations of
// VirtualServices, which are imported with their routes, are left out.
func patchedImports(w *world) {
	routed := map[string]bool{}
	for vs := range each[*model.VirtualService](w, model.KindVirtualService) {
		normal.Destinations(vs.Spec, func(_ string, d *networkingv1.Destination) { routed[d.GetHost()] = true })
	}
	for f := range each[*model.EnvoyFilter](w, model.KindEnvoyFilter) {
		if len(f.Spec.GetTargetRefs()) > 0 {
			continue
		}
		used := usedHosts(f, routed)
		if len(used) == 0 {
			continue
		}
		for s := range each[*model.Sidecar](w, model.KindSidecar) {
			if len(s.Spec.GetEgress()) == 0 ||
				model.Contradict(s.Spec.GetWorkloadSelector().GetLabels(), f.Spec.GetWorkloadSelector().GetLabels()) {
				continue
			}
			missing := map[string]string{} // the first namespace whose proxies lack a host, by host
			for _, namespace := range w.namespacesOf(s, f) {
				all := host.ImportsOf(s, namespace)
				for name := range used {
					if missing[name] == "" && w.lacks(all, name) {
						missing[name] = namespace
					}
				}
			}
			for name, namespace := range missing {
				of := ""
				if s.Key.Namespace == w.rootNamespace() {
					of = " for proxies of namespace " + namespace
				}
				w.foundRecord(problem.UsedHostNotImported, s, "spec.egress",
					"configPatches[%d] of %v sends requests to %q, which no egress listener imports%s: proxies lack the cluster, and "+
						"these requests fail; add %q to the hosts of a listener", used[name], f.Key, name, of, "*/"+name)
			}
		}
	}
}

// namespacesOf returns the namespaces, in order, with proxies that a filter patches and that get a Sidecar. The Sidecar
// of the root namespace applies in each namespace that has no Sidecar for all of its proxies.
func (w *world) namespacesOf(s *model.Sidecar, f *model.EnvoyFilter) []string {
	root := w.rootNamespace()
	own, every := s.Key.Namespace, f.Key.Namespace == root
	if own != root || len(s.Spec.GetWorkloadSelector().GetLabels()) > 0 {
		if !every && f.Key.Namespace != own {
			return nil
		}
		return []string{own}
	}
	general := map[string]bool{}
	for other := range each[*model.Sidecar](w, model.KindSidecar) {
		if other.Key != s.Key && len(other.Spec.GetWorkloadSelector().GetLabels()) == 0 {
			general[other.Key.Namespace] = true
		}
	}
	all := []string{f.Key.Namespace}
	if every {
		all = w.patched(f)
	}
	return slices.DeleteFunc(all, func(namespace string) bool { return general[namespace] })
}

// patched returns the namespaces, in order, with sidecars that a filter of the root namespace selects. If no sidecar is
// known at all, these are the namespaces with a Service that selects workloads.
func (w *world) patched(f *model.EnvoyFilter) []string {
	all, nodes := map[string]bool{}, w.sidecars()
	for namespace, of := range nodes {
		if slices.ContainsFunc(of, func(n view.Node) bool { return model.Matches(f.Spec.GetWorkloadSelector().GetLabels(), n.Labels) }) {
			all[namespace] = true
		}
	}
	if len(nodes) == 0 {
		for svc := range each[*model.Service](w, model.KindService) {
			if len(svc.Spec.GetSelector()) > 0 {
				all[svc.Key.Namespace] = true
			}
		}
	}
	return sorted(all)
}

// usedHosts returns the hosts of outbound clusters that the patches of a filter name for sidecars, each with the index
// of the first such patch. It omits the hosts in except.
func usedHosts(f *model.EnvoyFilter, except map[string]bool) map[string]int {
	used := map[string]int{}
	for i, p := range f.Spec.GetConfigPatches() {
		if p.GetMatch().GetContext() == networkingv1.EnvoyFilter_GATEWAY {
			continue
		}
		gateway.Clusters(structpb.NewStructValue(p.GetPatch().GetValue()), func(direction, name string) {
			if _, known := used[name]; !known && direction == "outbound" && !except[name] {
				used[name] = i
			}
		})
	}
	return used
}

// lacks reports whether services have a host, and none of them is imported.
func (w *world) lacks(all []*host.Imports, name string) (is bool) {
	for _, of := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range w.known.ByHost(of, name) {
			if slices.ContainsFunc(all, func(im *host.Imports) bool { return im.Has(r.(*model.Service), name) }) {
				return false
			}
			is = true
		}
	}
	return is
}
