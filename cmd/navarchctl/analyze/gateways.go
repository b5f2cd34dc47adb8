package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/store/credential"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// router is a set of Pods that the same Gateways and Services select. If no Pod of a Gateway is known, the router is
// an assumed Pod (world.assumed).
type router struct {
	name      string // of the first Pod, "" for an assumed one
	namespace string
	labels    map[string]string
	gateways  []*model.Gateway // by precedence
	services  []*model.Service // the oldest first
	workload  *model.Endpoint  // the first Pod; nil for an assumed one
	assumed   bool             // no Pod is known; services then is nil
}

// findRouters returns the routers of all Gateways with a selector.
func (w *world) findRouters() (all []*router) {
	byLabel := map[labelAt][]*model.Gateway{} // by the label of the selector whose key sorts first
	for g := range each[*model.Gateway](w, model.KindGateway) {
		if selector := g.Spec.GetSelector(); len(selector) > 0 {
			k := sorted(selector)[0]
			at := labelAt{"", k, selector[k]}
			byLabel[at] = append(byLabel[at], g)
		}
	}
	seen, used := map[string]bool{}, map[*model.Gateway]bool{}
	for l := range each[*model.Workload](w, model.KindWorkload) {
		labels := l.Spec.GetEndpoint().GetLabels()
		if !slices.ContainsFunc(slices.Collect(maps.Keys(labels)), func(k string) bool { return len(byLabel[labelAt{"", k, labels[k]}]) > 0 }) {
			continue
		}
		if r := w.router(l.Key.Namespace, labels); len(r.gateways) > 0 && !seen[r.key()] {
			seen[r.key()] = true
			r.name, r.workload = normal.SourceObject(l.Key).Name, l.Spec.GetEndpoint()
			all = append(all, r)
			for _, g := range r.gateways {
				used[g] = true
			}
		}
	}
	for g := range each[*model.Gateway](w, model.KindGateway) {
		if used[g] || len(g.Spec.GetSelector()) == 0 {
			continue
		}
		if r := w.router(w.assumed(g)); !seen[r.key()] {
			seen[r.key()] = true
			r.assumed, r.services = true, nil
			all = append(all, r)
		}
	}
	return all
}

// assumed returns the namespace and the labels of the Pods of a Gateway that selects no known Pod: those of the first
// Service whose selector has the labels of the Gateway's selector, or else the Gateway's own.
func (w *world) assumed(g *model.Gateway) (namespace string, labels map[string]string) {
	for svc := range each[*model.Service](w, model.KindService) {
		if of := svc.Spec.GetSelector(); len(of) > 0 && w.applies(g, svc.Key.Namespace, of) {
			return svc.Key.Namespace, of
		}
	}
	return g.Key.Namespace, g.Spec.GetSelector()
}

// applies reports whether a Gateway applies to Pods of a namespace with these labels.
func (w *world) applies(g *model.Gateway, namespace string, labels map[string]string) bool {
	return gateways.Selects(g, labels) && (g.Key.Namespace == namespace || !w.Normal.OwnGateways)
}

// isRouter reports whether a Gateway applies to Pods of a namespace with these labels.
func (w *world) isRouter(namespace string, labels map[string]string) bool {
	for g := range each[*model.Gateway](w, model.KindGateway) {
		if w.applies(g, namespace, labels) {
			return true
		}
	}
	return false
}

// router returns the router of Pods with these labels.
func (w *world) router(namespace string, labels map[string]string) *router {
	r := &router{namespace: namespace, labels: labels}
	for g := range each[*model.Gateway](w, model.KindGateway) {
		if w.applies(g, namespace, labels) {
			r.gateways = append(r.gateways, g)
		}
	}
	for svc := range each[*model.Service](w, model.KindService) {
		if svc.Key.Namespace == namespace && len(svc.Spec.GetSelector()) > 0 && model.Matches(svc.Spec.GetSelector(), labels) {
			r.services = append(r.services, svc)
		}
	}
	slices.SortFunc(r.gateways, gateways.Precedes)
	slices.SortFunc(r.services, func(a, b *model.Service) int { return a.Older(&b.Head) })
	return r
}

// key identifies the Gateways and Services of a router.
func (r *router) key() string {
	text := r.namespace
	for _, g := range r.gateways {
		text += " " + g.Key.Namespace + "/" + g.Key.Name
	}
	for _, svc := range r.services {
		text += " " + svc.Key.Name
	}
	return text
}

// unselectedRouters removes the findings about Gateways that select no workload, unless another router is analysed: the
// Pods may be in other files.
func unselectedRouters(w *world) {
	if w.live("Pod") || slices.ContainsFunc(w.routers, func(r *router) bool { return !r.assumed }) {
		return
	}
	w.findings = slices.DeleteFunc(w.findings, func(f Finding) bool {
		return f.Code == string(problem.ReferencedResourceNotFound) && f.id.Kind == "Gateway" && f.Field == "spec.selector"
	})
}

// routers reports servers of Gateways that the router's Pods would not serve.
func routers(w *world) {
	w.routers = w.findRouters()
	for _, r := range w.routers {
		_, conflicts := gateways.Merge(gateways.Router{Gateways: r.gateways, Services: r.services})
		for _, c := range conflicts {
			if c.Analyzer == problem.GatewayPortNotDefinedOnService && len(r.services) == 0 {
				continue // the Service may come from elsewhere
			}
			w.problem(object.Problem{ID: normal.SourceObject(c.Key), Field: c.Field, Code: c.Code, Analyzer: c.Analyzer, Severity: c.Severity,
				Message: c.Message})
		}
	}
}

// certificates reports credentials of Gateways that are missing or unusable, credentials that several Gateways of a
// router name, and certificates that have ended or end soon.
func certificates(w *world) {
	for _, r := range w.routers {
		owner := map[string]*model.Gateway{}
		for _, g := range r.gateways {
			for i, server := range g.Spec.GetServers() {
				for _, name := range credentials(server) {
					field := fmt.Sprintf("spec.servers[%d].tls.credentialName", i)
					w.credential(r, g, field, name)
					switch other := owner[name]; other {
					case nil:
						owner[name] = g
					case g:
					default:
						w.foundRecord(problem.GatewayDuplicateCertificate, g, field,
							"%v has the certificate %q too: a client that reuses its connection of HTTP/2 for a host of both is answered 404, or 421 by Navarch",
							other.Key, name)
					}
				}
			}
		}
	}
	w.ends()
}

// credentials returns the names of the Secrets that a server takes its certificates from. Names with ":" or "/", which
// have another meaning, are left out.
func credentials(s *networkingv1.Server) (names []string) {
	for _, name := range append([]string{s.GetTls().GetCredentialName()}, s.GetTls().GetCredentialNames()...) {
		if name = strings.TrimPrefix(name, model.SecretCredential); name != "" && !strings.ContainsAny(name, ":/") {
			names = append(names, name)
		}
	}
	return names
}

// credential reports a credential whose Secret is missing or unusable in the router's namespace. It reports nothing
// if no Secrets were read. It also reports nothing for an assumed router, whose namespace is not known.
func (w *world) credential(r *router, g *model.Gateway, field, name string) {
	if r.assumed || !w.knows("Secret") || !w.live("Secret") && len(w.byKind[kind{"", "Secret"}]) == 0 {
		return
	}
	if w.byID[w.id("", "Secret", r.namespace, name)] == nil {
		w.foundRecord(problem.ReferencedResourceNotFound, g, field, "Secret %s/%s does not exist: the server closes its connections", r.namespace,
			name)
		return
	}
	s, is := w.byKey[model.Key{Kind: model.KindSecret, Namespace: r.namespace, Name: name, Origin: Origin}].(*model.Secret)
	if !is || len(s.Spec.GetChain()) == 0 {
		w.foundRecord(problem.InvalidGatewayCredential, g, field, "Secret %s/%s has no usable certificate with its private key", r.namespace,
			name)
	}
}

// usualSoon is the default of Config.Soon: a certificate that ends within this time is reported.
const usualSoon = 30 * 24 * time.Hour

// ending returns "has ended at TIME" or, if a certificate ends soon, "ends at TIME". It returns "" for other ends, and
// for the zero time.
func (w *world) ending(end time.Time) string {
	switch at := end.UTC().Format(time.RFC3339); {
	case end.IsZero():
	case !w.Now.Before(end):
		return "has ended at " + at
	case end.Sub(w.Now) < cmp.Or(w.Soon, usualSoon):
		return "ends at " + at
	}
	return ""
}

// ends reports certificates of Secrets that have ended or end soon.
func (w *world) ends() {
	for s := range each[*model.Secret](w, model.KindSecret) {
		switch end := w.ending(credential.Until(s.Spec.GetChain())); {
		case strings.HasPrefix(end, "has"):
			w.foundRecord(problem.CertificateEnds, s, "data", "the certificate %s: clients refuse it", end)
		case end != "":
			w.foundRecord(problem.CertificateEnds, s, "data", "the certificate %s: renew it", end)
		}
	}
}
