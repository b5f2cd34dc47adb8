package plan

import (
	"cmp"
	"slices"

	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// outbound is one outbound listener and what is brought to it. What is for the first egress listener has it.
type outbound struct {
	unit
	of   *owner
	name string
	http []httpCount // by egress listener
	rest []brought   // by egress listener, then the oldest first
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
func (s *scope) listenerOf(name string) *outbound {
	l := s.listeners.get(name)
	switch {
	case l == nil:
		l = &outbound{of: s.own, name: name}
	case l.of != s.own:
		l = &outbound{of: s.own, name: name, unit: l.unit, http: slices.Clone(l.http), rest: slices.Clone(l.rest)}
	default:
		return l
	}
	s.listeners.put(name, l)
	return l
}

// bring counts a host's traffic in or out, and marks the listener.
func (s *scope) bring(host string, t traffic, by int) {
	l := s.listenerOf(t.listener)
	s.step.listeners[t.listener] = true
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

// planListener plans one outbound listener anew from what is brought to it, and says which route configurations are
// used from now on or no longer.
func (s *scope) planListener(l *outbound) {
	old := l.unit
	l.unit = unit{}
	var found []Problem
	if spec, ok := s.outboundSpec(l, &found); ok {
		l.unit, _ = s.make(spec, s.mesh.Key, &found)
	}
	s.problems.set("listener "+l.name, found)
	if old.res != l.res {
		s.drop(old.res)
		s.put(l.res)
		s.use(old.res, -1)
		s.use(l.res, 1)
	}
	if len(l.http)+len(l.rest) == 0 {
		s.listeners.put(l.name, nil)
	}
}

func (s *scope) outboundSpec(l *outbound, found *[]Problem) (listener.Outbound, bool) {
	http, rest, ok := l.first()
	if !ok {
		return listener.Outbound{}, false
	}
	t := http
	if t == nil {
		t = &rest[0].traffic
	}
	spec := listener.Outbound{Common: s.common(l.name, t.port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND), Name: l.name,
		Bind: t.bind, Port: t.port, BindToPort: t.direct}
	if s.removesListener(l.name, t.port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND) {
		return spec, false
	}
	if http != nil {
		spec.Route = http.route
	}
	var tcp []listener.Chain
	ends := false
	for _, r := range rest {
		if r.route != "" && spec.Route == "" {
			spec.Route = r.route
		}
		spec.Sniff = spec.Sniff || r.route != ""
		for _, c := range r.chains.All() {
			open := c.CIDRs.Len() == 0 && c.SNI.Len() == 0
			if open && (ends || http != nil && r.route == "") {
				*found = append(*found, warning(r.from.Key, problem.Duplicate, "spec.ports", "TCP at port "+xds.ListenerName(t.bind, t.port)+
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
		if s.passthrough() {
			spec.Fallback = xds.Passthrough
		}
	}
	return spec, true
}

// passthrough says whether unknown destinations are let pass: the Sidecar's policy, else the mesh's.
func (s *scope) passthrough() bool {
	if p := s.sidecar; p != nil && p.Spec.GetOutboundTrafficPolicy() != nil {
		return p.Spec.GetOutboundTrafficPolicy().GetMode() == networkingv1.OutboundTrafficPolicy_ALLOW_ANY
	}
	return s.mesh.Spec.GetOutboundTrafficPolicy().GetMode() == meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY
}

func (s *scope) common(name string, port uint32, side networkingv1.EnvoyFilter_PatchContext) listener.Common {
	return commonOf(s.input, s.anonymous(), s.patches, name, port, side)
}

func commonOf(w *input, caps xds.Caps, patches patchSet, name string, port uint32, side networkingv1.EnvoyFilter_PatchContext) listener.Common {
	return listener.Common{Mesh: w.mesh, Caps: caps, Patches: patches.matching(func(p model.Patch) bool {
		return patch.ListenerMatches(p, side, name, port)
	})}
}

// anonymous are the capabilities without the identity: what only clusters read makes no second listener, nor virtual host.
func (s *scope) anonymous() xds.Caps { return s.key.Caps &^ xds.CapIdentity }

func (s *scope) removesListener(name string, port uint32, side networkingv1.EnvoyFilter_PatchContext) bool {
	return s.patches.any(func(p model.Patch) bool { return patch.RemovesListener(p, side, name, port) })
}

// planVirtual plans the listener that redirected connections arrive at, unless nothing is redirected.
func (s *scope) planVirtual(found *[]Problem) {
	port := outboundPort(s.mesh)
	side := networkingv1.EnvoyFilter_SIDECAR_OUTBOUND
	if s.key.Router || direct(s.sidecar, s.key.Mode) || s.removesListener(xds.VirtualOutbound, port, side) {
		return
	}
	s.fixed(listener.VirtualOutbound{Common: s.common(xds.VirtualOutbound, port, side), Port: port,
		Passthrough: s.passthrough(), Transparent: s.key.Mode == view.TProxy}, found)
}

// The ports that redirected connections arrive at.
func outboundPort(m *model.Mesh) uint32 {
	return uint32(cmp.Or(max(m.Spec.GetProxyListenPort(), 0), 15001))
}

func inboundPort(m *model.Mesh) uint32 {
	return uint32(cmp.Or(max(m.Spec.GetProxyInboundListenPort(), 0), 15006))
}

// direct says whether nothing at all is redirected to the proxy: by its metadata, or because each ingress and egress
// listener of its Sidecar has captureMode NONE.
func direct(sidecar *model.Sidecar, mode view.Mode) bool {
	if mode == view.None {
		return true
	}
	if sidecar == nil || len(sidecar.Spec.GetEgress()) == 0 || len(sidecar.Spec.GetIngress()) == 0 {
		return false
	}
	for _, l := range sidecar.Spec.GetEgress() {
		if l.GetCaptureMode() != networkingv1.CaptureMode_NONE {
			return false
		}
	}
	for _, l := range sidecar.Spec.GetIngress() {
		if l.GetCaptureMode() != networkingv1.CaptureMode_NONE {
			return false
		}
	}
	return true
}
