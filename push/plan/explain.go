package plan

import (
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Bringer is what brings traffic to a listener. The listener's Spec has the addresses, ports and clusters that came of it, so
// that services which bring the same share it, and not the objects.
type Bringer struct {
	Host    string
	Service *model.Service
	Route   *model.VirtualService // whose tcp or tls routes the host has; nil: none
	Sidecar *model.Sidecar        // whose ingress or egress listeners these are; nil: none
}

// Explain gives the Specs that made a resource of a proxy: its own first; then, of a route configuration, those of its
// virtual hosts in order, and of a listener, the Bringers of what is no plain HTTP outbound. Together they name the
// objects that decided it. Nil: the proxy has no such resource.
func (p *Planner) Explain(h *Handle, t xds.Type, name string) []any {
	pl := h.planned.Load()
	ref := xds.Ref{Type: t, Name: name}
	if h.Set().Types[t].Get(name) == nil {
		return nil
	}
	if spec, ok := pl.workload.specs[ref]; ok {
		return append([]any{spec}, pl.workload.bringers(spec)...)
	}
	s := pl.scope
	if spec, ok := s.specs[ref]; ok {
		return []any{spec}
	}
	switch t {
	case xds.Cluster, xds.Endpoint:
		_, _, _, host, _ := xds.ParseCluster(name)
		if at := s.hosts.get(host); at != nil {
			for _, u := range append(units(at.clusters), at.endpoints...) {
				if u.res.Type == t && u.res.Name == name {
					return []any{u.spec}
				}
			}
		}
	case xds.Listener:
		if l := s.listeners.get(name); l != nil && l.res != nil {
			return append([]any{l.spec}, s.bringers(l)...)
		}
	case xds.Secret:
		if subs := pl.subscriptions; subs != nil && subs.asked[name] != nil && subs.asked[name].spec != nil {
			return []any{subs.asked[name].spec}
		}
	case xds.Route:
		return s.explainRoute(pl, name)
	}
	return nil
}

// bringers are those of an outbound listener.
func (s *scope) bringers(l *outbound) (out []any) {
	_, rest, _ := l.first()
	for _, b := range rest {
		from := Bringer{Host: b.host, Service: b.from}
		for _, e := range s.egress {
			if vs := s.virtualServiceFor(b.host, e); e.order == b.egress && vs != nil && len(vs.Spec.GetTcp())+len(vs.Spec.GetTls()) > 0 {
				from.Route = vs
			}
		}
		if s.sidecar != nil && len(s.sidecar.Spec.GetEgress()) > 0 {
			from.Sidecar = s.sidecar
		}
		out = append(out, from)
	}
	return out
}

// bringers are those of a listener of the inbound side.
func (wl *workload) bringers(spec any) (out []any) {
	switch spec.(type) {
	case listener.VirtualInbound, listener.Ingress:
	default:
		return nil
	}
	var ingress *model.Sidecar
	if wl.sidecar != nil && len(wl.sidecar.Spec.GetIngress()) > 0 {
		ingress = wl.sidecar
	}
	for _, svc := range wl.services {
		out = append(out, Bringer{Host: svc.Spec.GetHosts()[0], Service: svc, Sidecar: ingress})
	}
	if len(out) == 0 && ingress != nil {
		out = append(out, Bringer{Sidecar: ingress})
	}
	return out
}

func (s *scope) explainRoute(pl *planned, name string) []any {
	rc := s.routes[name]
	if rc == nil || rc.res == nil {
		return nil
	}
	out := []any{rc.spec}
	var proxyInputs []string
	if pl.variant != nil {
		if own, ok := pl.variant.specs[xds.Ref{Type: xds.Route, Name: name}]; ok {
			out[0], proxyInputs = own, pl.variant.proxyInputs.All()
		}
	}
	for _, c := range rc.runs {
		for _, host := range c.hosts {
			var found []Problem
			if spec, ok := s.specOf(rc, rc.entries.get(host), proxyInputs, &found); ok {
				out = append(out, spec)
			}
		}
	}
	for _, t := range rc.tail {
		if t.frag != nil {
			out = append(out, t.spec)
		}
	}
	return out
}
