package host

import (
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// Imports describes the hosts and ports that one egress listener of a Sidecar imports. Proxies with the Sidecar may
// reach them. Only a Table changes Imports (Pull).
type Imports struct {
	port     uint32    // the listener's port; 0 means all ports of the services
	patterns []pattern // a host is imported if a pattern names it and no pattern in excluded does
	excluded []pattern
	routed   bool // all VirtualServices apply; otherwise only those that overlap the patterns do
	// pulls counts, for each host, the VirtualServices that apply to this listener and route to the host. Their
	// destinations are imported too.
	pulls map[string]int
}

// pattern is one entry of IstioEgressListener.hosts, "namespace/host".
type pattern struct{ namespace, host string }

// selects reports whether the pattern includes a namespace.
func (p pattern) selects(namespace string) bool {
	return p.namespace == "*" || p.namespace == namespace
}

// everything is the pattern that names every host.
var everything = pattern{"*", "*"}

// ImportAll returns Imports that include all hosts at all ports. A Table with these Imports still excludes hosts that
// are not exported to its proxies' namespace.
func ImportAll() *Imports { return &Imports{patterns: []pattern{everything}} }

// ImportRouted returns Imports that include the listed hosts, "namespace/host" or "host" for any namespace, at all
// ports. They also include the destinations of each VirtualService that applies to one of Form.Gateways, once
// Table.Pull was called for the VirtualService.
func ImportRouted(hosts []string) *Imports {
	im := ImportHosts(hosts, "", 0)
	im.routed = true
	return im
}

// nothing is the entry that overrides all other entries of a list. With it no host is imported.
const nothing = "~/*"

// ImportHosts parses the field hosts of an IstioEgressListener of a Sidecar, with entries "namespace/host". The
// parameter namespace is the proxies' namespace, which an entry may abbreviate as ".". An entry without a namespace
// means any namespace, as "*" does. The parameter port is the listener's port; 0 means all ports of the services. An
// entry "~namespace/host" excludes hosts that other entries import. With the entry "~/*", or without entries, no host
// is imported (hosts in sidecar.proto). The slice is not retained.
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
		case ns == "" && excluded: // "~/host" excludes the host of every namespace
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

// ImportsOf returns the Imports of each egress listener of a Sidecar, for proxies of a namespace. If the Sidecar is nil
// or has no egress listeners, the only element is ImportAll.
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

// ImportOf returns the first of the table's Imports that includes a port of a host, or nil. h must have a service.
func (t *Table) ImportOf(h *Host, port uint32) *Imports {
	return importOf(t.imports, h.Service, h.Name, port)
}

// importOf returns the first Imports of a list that include a port of a service under one of the service's hosts, or
// nil.
func importOf(all []*Imports, svc *model.Service, host string, port uint32) *Imports {
	i := slices.IndexFunc(all, func(im *Imports) bool { return im.Has(svc, host) && im.hasPort(host, port) })
	if i < 0 {
		return nil
	}
	return all[i]
}

// imported reports whether some Imports of a list include a service under one of the service's hosts.
func imported(all []*Imports, svc *model.Service, host string) bool {
	return slices.ContainsFunc(all, func(im *Imports) bool { return im.Has(svc, host) })
}

// Everything reports whether all hosts are imported, by the single entry "*/*" without exclusions. The listener's port
// is ignored.
func (im *Imports) Everything() bool {
	return len(im.patterns) == 1 && im.patterns[0] == everything && len(im.excluded) == 0
}

// Fork returns an independent copy, for a fork of the table.
func (im *Imports) Fork() *Imports {
	next := *im
	next.pulls = maps.Clone(im.pulls)
	return &next
}

// names reports whether a pattern names a host of a namespace, and no exclusion names it.
func (im *Imports) names(namespace, host string) bool {
	return !im.excludes(namespace, host) && slices.ContainsFunc(im.patterns, func(p pattern) bool {
		return p.selects(namespace) && input.Covers(p.host, host)
	})
}

// excludes reports whether an exclusion names a host of a namespace. A wildcard is excluded if one exclusion covers all
// names that the wildcard covers.
func (im *Imports) excludes(namespace, host string) bool {
	return slices.ContainsFunc(im.excluded, func(p pattern) bool {
		return p.selects(namespace) && input.Covers(p.host, host)
	})
}

// overlaps reports whether a pattern overlaps at least one host of a VirtualService. Excluded hosts do not count. If
// im.routed is set, the result is always true.
func (im *Imports) overlaps(vs *model.VirtualService) bool {
	return im.routed || slices.ContainsFunc(im.patterns, func(p pattern) bool {
		return p.selects(vs.Key.Namespace) && slices.ContainsFunc(vs.Spec.GetHosts(), func(h string) bool {
			return (input.Covers(p.host, h) || input.Covers(h, p.host)) && !im.excludes(vs.Key.Namespace, h)
		})
	})
}

// Has reports whether a service is imported under one of its hosts, by an entry or as a destination of a VirtualService
// (Table.Pull). Ports and exportTo are ignored.
func (im *Imports) Has(svc *model.Service, host string) bool {
	return im.names(svc.Key.Namespace, host) || im.pulls[host] > 0
}

// hasPort reports whether a port of an imported host is imported too.
func (im *Imports) hasPort(host string, port uint32) bool {
	return im.port == 0 || im.port == port || im.pulls[host] > 0
}

// Pull imports the destinations of a VirtualService if delta is 1, or ends their import if delta is -1. It changes all
// Imports of the table that overlap the hosts of the VirtualService, except Imports of everything. Pull ignores a
// VirtualService that does not apply to the table's proxies. Each Imports counts the VirtualServices that route to each
// destination. Pull calls the function changed for each destination whose first VirtualService was added or whose last
// one was removed. It also does so if an entry imports the destination anyway. It may call changed repeatedly for one
// name.
func (t *Table) Pull(vs *model.VirtualService, delta int, changed func(host string)) {
	if !slices.ContainsFunc(t.form.Gateways, func(gateway string) bool { return t.sees(vs, gateway) }) {
		return
	}
	for _, im := range t.imports {
		if im.Everything() || !t.overlap(im, vs) {
			continue
		}
		for h := range virtualservice.Hosts(vs) {
			before := im.pulls[h]
			if im.pulls[h] += delta; im.pulls[h] == 0 {
				delete(im.pulls, h)
			}
			if (before == 0) != (im.pulls[h] == 0) {
				changed(h)
			}
		}
	}
}
