package plan

import (
	"cmp"
	"maps"
	"slices"

	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// outbound is one outbound listener and who brings traffic to it, by the egress listener it is for. The first of those
// has it.
type outbound struct {
	unit
	name    string
	bringer map[int]*bringers
}

// bringers of plain HTTP need only be counted: at one egress listener they all bring the same.
type bringers struct {
	http   int
	sample traffic // of plain HTTP
	rest   map[string]traffic
}

// bring counts a host's traffic in or out, and marks the listener.
func (s *scope) bring(host string, t traffic, by int) {
	l := s.listeners[t.listener]
	if l == nil {
		l = &outbound{name: t.listener, bringer: map[int]*bringers{}}
		s.listeners[t.listener] = l
	}
	b := l.bringer[t.egress]
	if b == nil {
		b = &bringers{rest: map[string]traffic{}}
		l.bringer[t.egress] = b
	}
	switch {
	case t.http:
		b.http += by
		b.sample = t
	case by > 0:
		b.rest[host] = t
	default:
		delete(b.rest, host)
	}
	if b.http == 0 && len(b.rest) == 0 {
		delete(l.bringer, t.egress)
	}
	s.step.listeners[t.listener] = true
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
	if len(l.bringer) == 0 {
		delete(s.listeners, l.name)
	}
}

func (s *scope) outboundSpec(l *outbound, found *[]Problem) (listener.Outbound, bool) {
	if len(l.bringer) == 0 {
		return listener.Outbound{}, false
	}
	b := l.bringer[slices.Min(slices.Collect(maps.Keys(l.bringer)))]
	type brought struct {
		host string
		traffic
	}
	var rest []brought
	for h, t := range b.rest {
		rest = append(rest, brought{h, t})
	}
	slices.SortFunc(rest, func(a, b brought) int { return cmp.Or(a.from.Older(&b.from.Head), cmp.Compare(a.host, b.host)) })
	t := b.sample
	if b.http == 0 {
		t = rest[0].traffic
	}
	spec := listener.Outbound{Common: s.common(l.name, t.port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND), Name: l.name,
		Bind: t.bind, Port: t.port, BindToPort: t.direct}
	if s.removesListener(l.name, t.port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND) {
		return spec, false
	}
	if b.http > 0 {
		spec.Route = t.route
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
			if open && (ends || b.http > 0 && r.route == "") {
				*found = append(*found, Problem{r.from.Key, "spec.ports", "TCP at port " + xds.ListenerName(t.bind, t.port) +
					" is out of reach: another service has the port"})
				continue
			}
			ends = ends || open
			spec.Sniff = spec.Sniff || b.http > 0
			tcp = append(tcp, c)
		}
	}
	spec.TCP = chains.List(tcp...)
	if t.wildcard && !ends {
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
	return commonOf(s.world, s.key.Caps, s.patches, name, port, side)
}

func commonOf(w *world, caps xds.Caps, patches patchSet, name string, port uint32, side networkingv1.EnvoyFilter_PatchContext) listener.Common {
	return listener.Common{Mesh: w.mesh, Caps: caps, Patches: patches.matching(func(p model.Patch) bool {
		return patch.ListenerMatches(p, side, name, port)
	})}
}

func (s *scope) removesListener(name string, port uint32, side networkingv1.EnvoyFilter_PatchContext) bool {
	return s.patches.any(func(p model.Patch) bool { return patch.RemovesListener(p, side, name, port) })
}

// planVirtual plans the listener that redirected connections arrive at, unless nothing is redirected.
func (s *scope) planVirtual(found *[]Problem) {
	port := s.mesh.Spec.GetProxyListenPort()
	if port <= 0 {
		port = 15001
	}
	side := networkingv1.EnvoyFilter_SIDECAR_OUTBOUND
	if direct(s.sidecar, s.key.Mode) || s.removesListener(xds.VirtualOutbound, uint32(port), side) {
		return
	}
	s.fixed(listener.VirtualOutbound{Common: s.common(xds.VirtualOutbound, uint32(port), side), Port: uint32(port),
		Passthrough: s.passthrough(), Transparent: s.key.Mode == view.TProxy}, found)
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
