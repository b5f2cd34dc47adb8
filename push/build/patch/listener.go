package patch

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// This file and listener_filters.go follow the rules of
// https://istio.io/latest/docs/reference/config/networking/envoy-filter/. For details that the page does not specify,
// they follow Istio's code.

// ListenerMatches reports whether a patch may change a listener. The builder of the listener needs all patches for
// which the result is true. The argument context is the direction of the listener, or GATEWAY. The argument port is 0
// for a listener on a Unix socket. ListenerMatches compares only the context, the name and the port. The function
// Listener compares the filter chains and filters. ListenerMatches returns false for patches that add or remove whole
// listeners (AddsListener, RemovesListener).
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

// RemovesListener reports whether a patch removes the listener with the given context, name and port. The context is
// the direction of the listener, or GATEWAY.
func RemovesListener(p model.Patch, context networkingv1.EnvoyFilter_PatchContext, name string, port uint32) bool {
	c := p.Config()
	return c.GetApplyTo() == networkingv1.EnvoyFilter_LISTENER &&
		c.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_REMOVE &&
		matchesListener(c, context, name, port)
}

// AddsListener reports whether a patch adds a listener to sidecars or gateways (LISTENER ADD). It does not decode the
// value. For the context WAYPOINT, the result is false. The caller must compare any other context with that of the
// proxy.
func AddsListener(p model.Patch) bool {
	c := p.Config()
	return c.GetApplyTo() == networkingv1.EnvoyFilter_LISTENER &&
		c.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_ADD &&
		c.GetMatch().GetContext() != networkingv1.EnvoyFilter_WAYPOINT
}

// isVirtual reports whether a name is that of a listener for redirected connections.
func isVirtual(name string) bool { return name == xds.VirtualInbound || name == xds.VirtualOutbound }

// matchesListener reports whether a patch matches the context, name and port of a listener. For a virtual listener
// (isVirtual), the port in the match is the destination port of a filter chain, which matchesChain compares. In a
// LISTENER patch, the port is always the port of the listener.
func matchesListener(
	c *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch, context networkingv1.EnvoyFilter_PatchContext, name string, port uint32,
) bool {
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

// Listener returns a copy of a listener to which the matching patches are applied. The argument context is the
// direction of the listener, or GATEWAY. The order is Istio's: LISTENER, LISTENER_FILTER, then FILTER_CHAIN,
// NETWORK_FILTER and HTTP_FILTER for each chain, then the added chains. Patches that add or remove whole listeners have
// no effect. Patches may remove all chains.
//
// A patch that does not decode, or whose result violates a constraint of Envoy's API, is left out. With such a patch,
// Envoy would refuse every listener of the response. The listener keeps its name, because the name identifies it. The
// second result has at least one error (Left) for each patch that is left out. It also has an error (a model.Problem)
// for each applied patch that states a different name.
func Listener(
	l *listenerv3.Listener, context networkingv1.EnvoyFilter_PatchContext, patches []model.Patch,
) (*listenerv3.Listener, []error) {
	return (*Trace)(nil).Listener(l, context, patches, nil)
}

// Listener returns the results of the function Listener, and records the patches that change the listener in t. It
// calls the function pause, which may be nil, between the chains of the listener.
func (t *Trace) Listener(
	l *listenerv3.Listener, context networkingv1.EnvoyFilter_PatchContext, patches []model.Patch, pause func(),
) (*listenerv3.Listener, []error) {
	omitted := omissions{resource: "listener " + l.Name, trace: t, pause: pause}
	patched := applyAccepted(&omitted, patches, func(some []model.Patch) (*listenerv3.Listener, []error) {
		return applyToListener(l, context, some, omitted)
	})
	return patched, omitted.faults
}

// listenerPatches applies patches to one listener.
type listenerPatches struct {
	listener *listenerv3.Listener
	context  networkingv1.EnvoyFilter_PatchContext
	patches  []model.Patch
	omissions
}

// applyToListener returns a copy of a listener to which the matching patches are applied. It does not validate the
// copy. The errors are for patches that do not decode, and for patches that state a different name. The parameter
// settings contains the listener's description for errors, the Trace and the function pause.
func applyToListener(
	l *listenerv3.Listener, context networkingv1.EnvoyFilter_PatchContext, patches []model.Patch, settings omissions,
) (*listenerv3.Listener, []error) {
	name, t := l.Name, settings.trace
	l = cloneInPieces(l, settings.pause)
	s := &listenerPatches{listener: l, context: context, patches: patches,
		omissions: omissions{resource: settings.resource, trace: t, pause: settings.pause}}
	for p := range s.matching(networkingv1.EnvoyFilter_LISTENER) {
		if merges(p) {
			traced(t, p, l, func(l *listenerv3.Listener) *listenerv3.Listener {
				s.omit(p, Merge(p, l))
				s.faults = append(s.faults, keepName(p, "listener", &l.Name, name)...)
				return l
			})
		}
	}
	for p := range s.matching(networkingv1.EnvoyFilter_LISTENER_FILTER) {
		filter := p.Config().GetMatch().GetListener().GetListenerFilter()
		anchor := anchor{name: filter, stated: filter != ""}
		filters, err := editFilters(t, p, l.ListenerFilters, anchor, &listenerv3.ListenerFilter{}, nil)
		l.ListenerFilters = filters
		s.omit(p, err)
		for _, f := range l.ListenerFilters {
			s.omit(p, mergeFilter(t, p, f, anchor))
		}
	}
	l.FilterChains = slices.DeleteFunc(l.FilterChains, func(c *listenerv3.FilterChain) bool { return !s.patchChain(c) })
	if l.DefaultFilterChain != nil && !s.patchChain(l.DefaultFilterChain) {
		l.DefaultFilterChain = nil
	}
	for p := range s.matching(networkingv1.EnvoyFilter_FILTER_CHAIN) {
		if operation(p) != networkingv1.EnvoyFilter_Patch_ADD {
			continue
		}
		if c := (&listenerv3.FilterChain{}); !s.omit(p, Decode(p, c)) {
			t.mark(p)
			l.FilterChains = append(l.FilterChains, c)
		}
	}
	return l, s.faults
}

// matching iterates over the patches with one applyTo that match the listener's context, name and port, in order.
func (s *listenerPatches) matching(kind networkingv1.EnvoyFilter_ApplyTo) iter.Seq[model.Patch] {
	return func(yield func(model.Patch) bool) {
		for _, p := range s.patches {
			port := s.listener.GetAddress().GetSocketAddress().GetPortValue()
			if p.Config().GetApplyTo() == kind && matchesListener(p.Config(), s.context, s.listener.Name, port) && !yield(p) {
				return
			}
		}
	}
}

// patchChain applies the matching patches to one filter chain and its filters. It returns false if a patch removes the
// filter chain.
func (s *listenerPatches) patchChain(c *listenerv3.FilterChain) bool {
	if s.pause != nil {
		s.pause()
	}
	for p := range s.matching(networkingv1.EnvoyFilter_FILTER_CHAIN) {
		if !s.matchesChain(p, c) {
			continue
		}
		if operation(p) == networkingv1.EnvoyFilter_Patch_REMOVE {
			s.trace.mark(p)
			return false
		}
		if merges(p) {
			traced(s.trace, p, c, func(c *listenerv3.FilterChain) *listenerv3.FilterChain {
				s.omit(p, Merge(p, c))
				return c
			})
		}
	}
	s.networkFilters(c)
	return true
}

// rawBuffer is Envoy's transport socket for a filter chain that states no transport socket.
const rawBuffer = "envoy.transport_sockets.raw_buffer"

// matchesChain reports whether a filter chain has the properties in a patch's match.listener.filterChain. For virtual
// listeners (isVirtual) it also compares the port of the match with the filter chain's destination port.
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
