package host

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// Imports is what one egress listener of a Sidecar imports, or everything, where no Sidecar applies.
type Imports struct {
	port     uint32 // the listener's; 0: the ports of the services
	patterns []pattern
	// pulls counts, by host, the VirtualServices that are seen here and send there: their destinations are seen too.
	pulls map[string]int
}

// pattern is one entry of IstioEgressListener.hosts, "namespace/host".
type pattern struct{ namespace, host string }

// everything is the pattern that imports all that is exported.
var everything = pattern{"*", "*"}

// ImportAll imports all that is exported.
func ImportAll() *Imports { return &Imports{patterns: []pattern{everything}} }

// ImportHosts reads the hosts of an egress listener for proxies of a namespace; port 0 means the ports of the services.
// "~/*" (no namespace) among them means that nothing is imported, whatever stands beside it, as in Istio's control plane
// (IstioEgressListener.hosts in sidecar.proto).
func ImportHosts(hosts []string, namespace string, port uint32) *Imports {
	im := &Imports{port: port, pulls: map[string]int{}}
	for _, h := range hosts {
		ns, host, ok := strings.Cut(h, "/")
		if !ok {
			ns, host = "*", h
		}
		if ns == "." {
			ns = namespace
		}
		im.patterns = append(im.patterns, pattern{ns, host})
	}
	if slices.ContainsFunc(im.patterns, func(p pattern) bool { return p.namespace == "~" }) {
		im.patterns = nil
	}
	return im
}

// ImportsOf are those of a Sidecar's egress listeners for proxies of a namespace; everything where there is none, or no Sidecar (nil).
func ImportsOf(sidecar *model.Sidecar, namespace string) (out []*Imports) {
	if sidecar != nil {
		for _, l := range sidecar.Spec.GetEgress() {
			out = append(out, ImportHosts(l.GetHosts(), namespace, l.GetPort().GetNumber()))
		}
	}
	if len(out) == 0 {
		out = append(out, ImportAll())
	}
	return out
}

// ImportOf is the first of the scope's imports that has a port of a host; nil: none has.
func (t *Table) ImportOf(h *Host, port uint32) *Imports {
	i := slices.IndexFunc(t.imports, func(im *Imports) bool { return im.Has(h.Service, h.Name) && im.hasPort(h.Name, port) })
	if i < 0 {
		return nil
	}
	return t.imports[i]
}

// Everything says whether all that is exported is imported.
func (im *Imports) Everything() bool { return len(im.patterns) == 1 && im.patterns[0] == everything }

// names says whether the patterns name this host of this namespace.
func (im *Imports) names(namespace, host string) bool {
	return slices.ContainsFunc(im.patterns, func(p pattern) bool {
		return (p.namespace == "*" || p.namespace == namespace) && input.Covers(p.host, host)
	})
}

// overlaps says whether the patterns and the hosts of a VirtualService overlap.
func (im *Imports) overlaps(vs *model.VirtualService) bool {
	return slices.ContainsFunc(im.patterns, func(p pattern) bool {
		return (p.namespace == "*" || p.namespace == vs.Key.Namespace) && slices.ContainsFunc(vs.Spec.GetHosts(), func(h string) bool {
			return input.Covers(p.host, h) || input.Covers(h, p.host)
		})
	})
}

// Has says whether a service of the scope is seen at one of its hosts.
func (im *Imports) Has(svc *model.Service, host string) bool {
	return im.names(svc.Key.Namespace, host) || im.pulls[host] > 0
}

// hasPort says whether a port of a host that is seen is seen too.
func (im *Imports) hasPort(host string, port uint32) bool {
	return im.port == 0 || im.port == port || im.pulls[host] > 0
}

// Pull counts the destinations of a VirtualService in (by 1) or out (by -1), and reports the hosts that are seen from now on or no
// longer.
func (t *Table) Pull(vs *model.VirtualService, by int, changed func(host string)) {
	if !t.sees(vs) {
		return
	}
	for _, im := range t.imports {
		if im.Everything() || !t.overlap(im, vs) {
			continue
		}
		for h := range virtualservice.Hosts(vs) {
			before := im.pulls[h]
			if im.pulls[h] += by; im.pulls[h] == 0 {
				delete(im.pulls, h)
			}
			if (before == 0) != (im.pulls[h] == 0) {
				changed(h)
			}
		}
	}
}
