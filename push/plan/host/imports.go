package host

import (
	"maps"
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
	excluded []pattern // subtracted from what patterns name
	// pulls counts, by host, the VirtualServices that are seen here and send there: their destinations are seen too.
	pulls map[string]int
}

// pattern is one entry of IstioEgressListener.hosts, "namespace/host".
type pattern struct{ namespace, host string }

// selects says whether the pattern is for a namespace, "*" for any.
func (p pattern) selects(namespace string) bool {
	return p.namespace == "*" || p.namespace == namespace
}

// everything is the pattern that imports all that is exported.
var everything = pattern{"*", "*"}

// ImportAll imports all that is exported.
func ImportAll() *Imports { return &Imports{patterns: []pattern{everything}} }

// nothing is the host that imports nothing, whatever stands beside it.
const nothing = "~/*"

// ImportHosts reads the hosts of an egress listener for proxies of a namespace; port 0 means the ports of the services.
// "~" before a namespace excludes what the entry names from all that the others import, and "~/*" among them means that nothing is
// imported (IstioEgressListener.hosts in sidecar.proto).
func ImportHosts(hosts []string, namespace string, port uint32) *Imports {
	im := &Imports{port: port, pulls: map[string]int{}}
	if slices.Contains(hosts, nothing) {
		return im
	}
	for _, h := range hosts {
		h, excluded := strings.CutPrefix(h, "~")
		ns, host, ok := strings.Cut(h, "/")
		switch {
		case !ok:
			ns, host = "*", h
		case ns == "" && excluded: // "~/host" is of all namespaces
			ns = "*"
		case ns == ".":
			ns = namespace
		}
		if excluded {
			im.excluded = append(im.excluded, pattern{ns, host})
		} else {
			im.patterns = append(im.patterns, pattern{ns, host})
		}
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
	return importOf(t.imports, h.Service, h.Name, port)
}

// importOf is the first of some imports that has a port of a service at one of its hosts; nil: none has.
func importOf(all []*Imports, svc *model.Service, host string, port uint32) *Imports {
	i := slices.IndexFunc(all, func(im *Imports) bool { return im.Has(svc, host) && im.hasPort(host, port) })
	if i < 0 {
		return nil
	}
	return all[i]
}

// imported says whether one of some imports has a service at one of its hosts.
func imported(all []*Imports, svc *model.Service, host string) bool {
	return slices.ContainsFunc(all, func(im *Imports) bool { return im.Has(svc, host) })
}

// Everything reports whether all exported hosts are imported. The listener's port is not considered.
func (im *Imports) Everything() bool {
	return len(im.patterns) == 1 && im.patterns[0] == everything && len(im.excluded) == 0
}

// Fork is a copy for a copy of the table.
func (im *Imports) Fork() *Imports {
	next := *im
	next.pulls = maps.Clone(im.pulls)
	return &next
}

// names says whether the patterns name this host of this namespace, and none excludes it.
func (im *Imports) names(namespace, host string) bool {
	return !im.excludes(namespace, host) && slices.ContainsFunc(im.patterns, func(p pattern) bool {
		return p.selects(namespace) && input.Covers(p.host, host)
	})
}

// excludes says whether a host of a namespace is excluded; a wildcard is where all that it covers is.
func (im *Imports) excludes(namespace, host string) bool {
	return slices.ContainsFunc(im.excluded, func(p pattern) bool { return p.selects(namespace) && input.Covers(p.host, host) })
}

// overlaps says whether the patterns and those hosts of a VirtualService that are not excluded overlap.
func (im *Imports) overlaps(vs *model.VirtualService) bool {
	return slices.ContainsFunc(im.patterns, func(p pattern) bool {
		return p.selects(vs.Key.Namespace) && slices.ContainsFunc(vs.Spec.GetHosts(), func(h string) bool {
			return (input.Covers(p.host, h) || input.Covers(h, p.host)) && !im.excludes(vs.Key.Namespace, h)
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

// Pull adds by (1 or -1) to the counts of a VirtualService's destinations. It calls changed for each host whose count
// became or ceased to be 0, even if a pattern imports the host anyway.
func (t *Table) Pull(vs *model.VirtualService, by int, changed func(host string)) {
	if !slices.ContainsFunc(t.form.Gateways, func(gateway string) bool { return t.sees(vs, gateway) }) {
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
