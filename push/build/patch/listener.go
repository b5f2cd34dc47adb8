package patch

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// The rules of this file and of listener_filters.go are those of
// https://istio.io/latest/docs/reference/config/networking/envoy-filter/, and where that is silent, what Istio does.

// ListenerMatches says whether a patch may change a listener of this name and port in this direction (SIDECAR_INBOUND
// or SIDECAR_OUTBOUND): what the plan puts into the listener's Spec. Only what can be told of the listener as a whole is
// looked at; its chains and filters are looked at as the patch is applied. Listeners on Unix sockets have port 0.
// Patches that add or remove whole listeners change none: see AddsListener and RemovesListener.
func ListenerMatches(p model.Patch, context networkingv1.EnvoyFilter_PatchContext, name string, port uint32) bool {
	c := p.Config()
	switch c.GetApplyTo() {
	case networkingv1.EnvoyFilter_LISTENER:
		if !merges(p) {
			return false
		}
	case networkingv1.EnvoyFilter_LISTENER_FILTER, networkingv1.EnvoyFilter_FILTER_CHAIN,
		networkingv1.EnvoyFilter_NETWORK_FILTER, networkingv1.EnvoyFilter_HTTP_FILTER:
	default:
		return false
	}
	return matchesListener(c, context, name, port)
}

// RemovesListener says whether a patch removes the listener of this name and port in this direction.
func RemovesListener(p model.Patch, context networkingv1.EnvoyFilter_PatchContext, name string, port uint32) bool {
	c := p.Config()
	return c.GetApplyTo() == networkingv1.EnvoyFilter_LISTENER &&
		c.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_REMOVE && matchesListener(c, context, name, port)
}

// AddsListener says whether a patch adds a listener to a sidecar or gateway. A patch for ANY context adds one, not one per
// direction.
func AddsListener(p model.Patch) bool {
	c := p.Config()
	return c.GetApplyTo() == networkingv1.EnvoyFilter_LISTENER &&
		c.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_ADD &&
		c.GetMatch().GetContext() != networkingv1.EnvoyFilter_WAYPOINT
}

func isVirtual(name string) bool { return name == xds.VirtualInbound || name == xds.VirtualOutbound }

// matchesListener compares context, name and port. The port of a match on the virtual listeners is that of a chain,
// except for LISTENER patches: chains are compared later.
func matchesListener(c *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch, context networkingv1.EnvoyFilter_PatchContext, name string, port uint32) bool {
	if in := c.GetMatch().GetContext(); in != context && in != networkingv1.EnvoyFilter_ANY {
		return false
	}
	m := c.GetMatch().GetListener()
	if m.GetName() != "" && m.GetName() != name {
		return false
	}
	if m.GetPortNumber() == 0 || (isVirtual(name) && c.GetApplyTo() != networkingv1.EnvoyFilter_LISTENER) {
		return true
	}
	return m.GetPortNumber() == port
}

// Listener is a copy of the listener with the patches applied in Istio's order: LISTENER, LISTENER_FILTER, then for each
// chain FILTER_CHAIN, NETWORK_FILTER and HTTP_FILTER, then the chains that are added. What does not match is passed over. A
// patch whose value does not decode is skipped, and so is one that would make the listener violate Envoy's API: Envoy
// would refuse it together with every other listener of the response. The errors are these patches, each a Left, and the names that patches state: a
// resource is known by its name, which stands.
func Listener(l *listenerv3.Listener, context networkingv1.EnvoyFilter_PatchContext, patches []model.Patch) (*listenerv3.Listener, []error) {
	left := leaving{resource: "listener " + l.Name}
	patched := keep(&left, patches, func(some []model.Patch) (*listenerv3.Listener, []error) { return applyToListener(l, context, some) })
	return patched, left.faults
}

// listenerPatches is the patches on their way through one listener.
type listenerPatches struct {
	listener *listenerv3.Listener
	context  networkingv1.EnvoyFilter_PatchContext
	patches  []model.Patch
	leaving
}

func applyToListener(l *listenerv3.Listener, context networkingv1.EnvoyFilter_PatchContext, patches []model.Patch) (*listenerv3.Listener, []error) {
	name := l.Name
	l = proto.Clone(l).(*listenerv3.Listener)
	s := &listenerPatches{listener: l, context: context, patches: patches, leaving: leaving{resource: "listener " + name}}
	for p := range s.of(networkingv1.EnvoyFilter_LISTENER) {
		if merges(p) {
			s.out(p, Merge(p, l))
			s.faults = append(s.faults, keepName(p, "listener", &l.Name, name)...)
		}
	}
	for p := range s.of(networkingv1.EnvoyFilter_LISTENER_FILTER) {
		anchor := anchor{p.Config().GetMatch().GetListener().GetListenerFilter(), p.Config().GetMatch().GetListener().GetListenerFilter() != ""}
		filters, err := edit(p, l.ListenerFilters, anchor, &listenerv3.ListenerFilter{}, nil)
		l.ListenerFilters = filters
		s.out(p, err)
		for _, f := range l.ListenerFilters {
			s.out(p, mergeFilter(p, f, anchor))
		}
	}
	l.FilterChains = slices.DeleteFunc(l.FilterChains, func(c *listenerv3.FilterChain) bool { return !s.chain(c) })
	if l.DefaultFilterChain != nil && !s.chain(l.DefaultFilterChain) {
		l.DefaultFilterChain = nil
	}
	for p := range s.of(networkingv1.EnvoyFilter_FILTER_CHAIN) {
		if operation(p) != networkingv1.EnvoyFilter_Patch_ADD {
			continue
		}
		if c := (&listenerv3.FilterChain{}); !s.out(p, Decode(p, c)) {
			l.FilterChains = append(l.FilterChains, c)
		}
	}
	return l, s.faults
}

// of is the patches of one kind that match the listener as a whole, in order.
func (s *listenerPatches) of(kind networkingv1.EnvoyFilter_ApplyTo) iter.Seq[model.Patch] {
	return func(yield func(model.Patch) bool) {
		for _, p := range s.patches {
			port := s.listener.GetAddress().GetSocketAddress().GetPortValue()
			if p.Config().GetApplyTo() == kind && matchesListener(p.Config(), s.context, s.listener.Name, port) && !yield(p) {
				return
			}
		}
	}
}

// chain applies what matches one chain to it; false: it is removed.
func (s *listenerPatches) chain(c *listenerv3.FilterChain) bool {
	for p := range s.of(networkingv1.EnvoyFilter_FILTER_CHAIN) {
		if !s.matchesChain(p, c) {
			continue
		}
		if operation(p) == networkingv1.EnvoyFilter_Patch_REMOVE {
			return false
		}
		if merges(p) {
			s.out(p, Merge(p, c))
		}
	}
	s.networkFilters(c)
	return true
}

// rawBuffer is the transport socket of a chain that names none.
const rawBuffer = "envoy.transport_sockets.raw_buffer"

// matchesChain compares a match's port (on the virtual listeners) and filterChain with a chain.
func (s *listenerPatches) matchesChain(p model.Patch, c *listenerv3.FilterChain) bool {
	m, has := p.Config().GetMatch().GetListener(), c.GetFilterChainMatch()
	port := has.GetDestinationPort().GetValue()
	if isVirtual(s.listener.Name) && m.GetPortNumber() != 0 && m.GetPortNumber() != port {
		return false
	}
	want := m.GetFilterChain()
	if want.GetName() != "" && want.GetName() != c.Name ||
		want.GetSni() != "" && !slices.Contains(has.GetServerNames(), want.GetSni()) ||
		want.GetTransportProtocol() != "" && want.GetTransportProtocol() != has.GetTransportProtocol() ||
		want.GetDestinationPort() != 0 && want.GetDestinationPort() != port ||
		want.GetTransportSocket() != "" && want.GetTransportSocket() != cmp.Or(c.GetTransportSocket().GetName(), rawBuffer) {
		return false
	}
	if want.GetApplicationProtocols() == "" {
		return true
	}
	for protocol := range strings.SplitSeq(want.GetApplicationProtocols(), ",") {
		if !slices.Contains(has.GetApplicationProtocols(), strings.TrimSpace(protocol)) {
			return false
		}
	}
	return true
}
