package sidecar

import (
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
)

// Explain implements front.Front. It returns the Spec (the inputs of the build) of a listener or a route configuration,
// for the proxies of a variation (proxies with certain inputs, such as labels). A nil v stands for proxies without
// inputs. The Spec of a listener is followed by front.TrafficSources: one for all plain HTTP, if an egress listener of
// a Sidecar configures it, and one for each host with other traffic. The Spec of a route configuration is followed by
// the Specs of its virtual hosts, in order. The result is nil if there is no such resource, or if it has another type.
func (f *Front) Explain(of xds.Ref, v *host.Variation) []any {
	switch of.Type {
	case xds.Listener:
		if l := f.listeners.table.Get(of.Name); l != nil && l.Res != nil {
			spec := l.Spec
			if v != nil && v.Layer.Spec(of) != nil {
				spec = v.Layer.Spec(of)
			}
			return append([]any{spec}, f.listeners.sources(l)...)
		}
	case xds.Route:
		return f.routes.Explain(of.Name, v)
	case xds.Cluster, xds.Endpoint, xds.Secret, xds.Extension, xds.NumTypes:
	}
	return nil
}

// Serving implements front.Front. It returns the virtual hosts of the hosts that the predicate selects, for the proxies
// of the variation v. A nil v stands for proxies without inputs. The result is sorted by the name of the route
// configuration.
func (f *Front) Serving(named func(host string) bool, v *host.Variation) []host.Routed {
	return f.routes.Serving(named, v)
}

// Describe implements front.Front. It calls line, a function like fmt.Printf, for each decision of the front, in no
// order. Tests compare fronts by these lines.
func (f *Front) Describe(line func(format string, args ...any)) {
	for name, c := range f.entries.All() {
		line("hostEntries %s: %v %v %v", name, c.traffic, c.reads, c.routes)
		if c.reads.Len() > 0 != f.reading[name] {
			line("hostEntries %s is read wrongly", name)
		}
	}
	line("reports: %v", f.reports.spec)
	for inputs, reports := range f.reports.varied {
		line("reports of %v: %v", inputs, reports.Spec)
	}
	for name, l := range f.listeners.table.All() {
		line("listener %s: %v %p %v", name, l.Spec, l.Res, l.route)
		for _, c := range l.http {
			line("http %s: %v %d %v", name, c.route, c.hosts, c.more)
		}
		for _, b := range l.rest {
			line("rest %s: %v", name, b)
		}
	}
	f.routes.Describe(line)
}

// sources returns the traffic sources of an outbound listener. All hosts with plain HTTP have one source in common,
// which names only the Sidecar. This source is left out if no Sidecar configures the traffic.
func (ls *listeners) sources(l *outbound) (out []any) {
	http, rest, _ := l.leading()
	if http != nil {
		if from := ls.listenerOfSidecar(&http.traffic); from.Sidecar != nil {
			out = append(out, from)
		}
	}
	for _, b := range rest {
		from := ls.listenerOfSidecar(&b.traffic)
		from.Host, from.Service = b.host, b.from
		for _, e := range ls.egress {
			if e.order == b.egress {
				from.Routes = virtualServices.List(ls.hosts.Connecting(b.host, virtualservice.Mesh, e.Imports)...)
			}
		}
		out = append(out, from)
	}
	return out
}

// listenerOfSidecar returns a source that names the Sidecar and its egress listener to which the traffic t belongs. The
// source is zero if no egress listener of a Sidecar configures the traffic.
func (s *scope) listenerOfSidecar(t *traffic) front.TrafficSource {
	if t.route.kind == ofProxy || s.egress[t.egress].number == 0 {
		return front.TrafficSource{}
	}
	return front.TrafficSource{Sidecar: s.sidecar, Egress: s.egress[t.egress].number}
}
