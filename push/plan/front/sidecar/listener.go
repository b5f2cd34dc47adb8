package sidecar

import (
	"cmp"
	"slices"

	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/problem"
)

// outbound is one outbound listener and what is brought to it. What is for the first egress listener has it.
type outbound struct {
	layer.Unit
	of    *editor
	name  string
	route routeKey    // that it asks for
	http  []httpCount // by egress listener
	rest  []brought   // by egress listener, then the oldest first
}

// httpCount counts the hosts that bring plain HTTP: at one egress listener they all bring the same.
type httpCount struct {
	traffic
	hosts int
}

// brought is the traffic of one host.
type brought struct {
	host string
	traffic
}

func (b brought) compare(o brought) int {
	return cmp.Or(cmp.Compare(b.egress, o.egress), b.from.Older(&o.from.Head), cmp.Compare(b.host, o.host))
}

// listenerOf is a listener, or a new one of this name, that the scope may change.
func (f *Front) listenerOf(name string) *outbound {
	l := f.listeners.Get(name)
	switch {
	case l == nil:
		l = &outbound{of: f.own, name: name}
	case l.of != f.own:
		l = &outbound{of: f.own, name: name, Unit: l.Unit, route: l.route, http: slices.Clone(l.http), rest: slices.Clone(l.rest)}
	default:
		return l
	}
	f.listeners.Put(name, l)
	return l
}

// bring counts a host's traffic in or out, and marks the listener.
func (f *Front) bring(host string, t traffic, by int) {
	l := f.listenerOf(t.listener)
	f.step.listeners[t.listener] = true
	if t.http {
		i, ok := slices.BinarySearchFunc(l.http, t.egress, func(c httpCount, egress int) int { return cmp.Compare(c.egress, egress) })
		if !ok {
			l.http = slices.Insert(l.http, i, httpCount{traffic: t})
		}
		if l.http[i].hosts += by; l.http[i].hosts == 0 {
			l.http = slices.Delete(l.http, i, i+1)
		}
		return
	}
	b := brought{host, t}
	i, ok := slices.BinarySearchFunc(l.rest, b, brought.compare)
	switch {
	case by > 0 && !ok:
		l.rest = slices.Insert(l.rest, i, b)
	case by > 0:
		l.rest[i] = b
	case ok:
		l.rest = slices.Delete(l.rest, i, i+1)
	}
}

// first is what is brought for the first egress listener; false: nothing is brought at all.
func (l *outbound) first() (http *traffic, rest []brought, ok bool) {
	egress := -1
	if len(l.http) > 0 {
		egress = l.http[0].egress
	}
	if len(l.rest) > 0 && (egress < 0 || l.rest[0].egress < egress) {
		egress = l.rest[0].egress
	}
	if len(l.http) > 0 && l.http[0].egress == egress {
		http = &l.http[0].traffic
	}
	end := slices.IndexFunc(l.rest, func(b brought) bool { return b.egress != egress })
	if end < 0 {
		end = len(l.rest)
	}
	return http, l.rest[:end], egress >= 0
}

// planListener plans one outbound listener again from what is brought to it, and says which route configurations are
// used from now on or no longer.
func (f *Front) planListener(l *outbound) {
	old := *l
	l.Unit, l.route = layer.Unit{}, routeKey{}
	var found []input.Problem
	if spec, route, ok := f.outboundSpec(l, &found); ok {
		l.Unit, _ = f.in.Make(spec, f.in.Mesh.Key, &found)
		l.route = route
	}
	f.problems.Set("listener "+l.name, found)
	if old.Res != l.Res {
		f.layer.Drop(old.Res)
		f.layer.Put(l.Res)
		f.useOf(&old, -1)
		f.useOf(l, 1)
	}
	if len(l.http)+len(l.rest) == 0 {
		f.listeners.Put(l.name, nil)
	}
}

func (f *Front) outboundSpec(l *outbound, found *[]input.Problem) (spec listener.Outbound, asks routeKey, ok bool) {
	http, rest, ok := l.first()
	if !ok {
		return listener.Outbound{}, routeKey{}, false
	}
	t := http
	if t == nil {
		t = &rest[0].traffic
	}
	spec = listener.Outbound{Common: f.common(l.name, t.port), Name: l.name,
		Bind: t.bind, Port: t.port, BindToPort: t.direct}
	if f.patches.RemovesListener(l.name, t.port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND) {
		return spec, asks, false
	}
	if http != nil {
		asks = http.route
	}
	var tcp []listener.Chain
	ends := false
	for _, r := range rest {
		if r.route != (routeKey{}) && asks == (routeKey{}) {
			asks = r.route
		}
		spec.Sniff = spec.Sniff || r.route != (routeKey{})
		for _, c := range r.chains.All() {
			open := c.CIDRs.Len() == 0 && c.SNI.Len() == 0
			if open && (ends || http != nil && r.route == (routeKey{})) {
				*found = append(*found, input.Warning(r.from.Key, problem.Duplicate, "spec.ports", "TCP at port "+xds.ListenerName(t.bind, t.port)+
					" is out of reach: another service has the port"))
				continue
			}
			ends = ends || open
			spec.Sniff = spec.Sniff || http != nil
			tcp = append(tcp, c)
		}
	}
	spec.TCP = chains.List(tcp...)
	if t.wildcard && !t.direct && !ends { // what was not redirected has nowhere to pass on to
		spec.Fallback = xds.BlackHole
		if f.passthrough() {
			spec.Fallback = xds.Passthrough
		}
	}
	if asks != (routeKey{}) {
		spec.Route = asks.name()
	}
	return spec, asks, true
}

// passthrough says whether unknown destinations are let pass: the Sidecar's policy, else the mesh'f.
func (f *Front) passthrough() bool {
	if p := f.sidecar; p != nil && p.Spec.GetOutboundTrafficPolicy() != nil {
		return p.Spec.GetOutboundTrafficPolicy().GetMode() == networkingv1.OutboundTrafficPolicy_ALLOW_ANY
	}
	return f.in.Mesh.Spec.GetOutboundTrafficPolicy().GetMode() == meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY
}

func (f *Front) common(name string, port uint32) listener.Common {
	return f.in.Common(f.anonymous(), f.patches, name, port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND)
}

// anonymous are the capabilities without the identity: what only clusters read makes no second listener, nor virtual host.
func (f *Front) anonymous() xds.Caps { return f.key.Caps &^ xds.CapIdentity }

// planVirtual plans the listener that redirected connections arrive at, unless nothing is redirected.
func (f *Front) planVirtual(found *[]input.Problem) {
	port := f.in.OutboundPort()
	if f.key.Kind == view.Router || input.Direct(f.sidecar, f.key.Mode) ||
		f.patches.RemovesListener(xds.VirtualOutbound, port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND) {
		return
	}
	f.fixed(listener.VirtualOutbound{Common: f.common(xds.VirtualOutbound, port), Port: port,
		Passthrough: f.passthrough(), Transparent: f.key.Mode == view.TProxy}, found)
}
