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
// https://istio.io/latest/docs/reference/config/networking/envoy-filter/, and Istio's behaviour for details that the
// page does not specify.

// ListenerMatches reports whether a patch may change the listener with a name and port in one direction
// (SIDECAR_INBOUND or SIDECAR_OUTBOUND), and so belongs into its Spec. Only properties of the whole listener are
// compared; its chains and filters are compared when the patch is applied. Listeners on Unix sockets have port 0. It
// returns false for patches that add or remove whole listeners: see AddsListener and RemovesListener.
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

// RemovesListener reports whether a patch removes the listener with a name and port in one direction.
func RemovesListener(p model.Patch, context networkingv1.EnvoyFilter_PatchContext, name string, port uint32) bool {
	c := p.Config()
	return c.GetApplyTo() == networkingv1.EnvoyFilter_LISTENER &&
		c.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_REMOVE &&
		matchesListener(c, context, name, port)
}

// AddsListener reports whether a patch adds a listener to a sidecar or gateway. A patch for the context ANY adds one
// listener, not one per direction.
func AddsListener(p model.Patch) bool {
	c := p.Config()
	return c.GetApplyTo() == networkingv1.EnvoyFilter_LISTENER &&
		c.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_ADD &&
		c.GetMatch().GetContext() != networkingv1.EnvoyFilter_WAYPOINT
}

func isVirtual(name string) bool { return name == xds.VirtualInbound || name == xds.VirtualOutbound }

// matchesListener compares context, name and port. For the virtual listeners the port of a match is the port of a
// chain, except for LISTENER patches; matchesChain compares it.
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

// Listener returns a copy of a listener with the patches that match. The order is Istio's: LISTENER, LISTENER_FILTER,
// then FILTER_CHAIN, NETWORK_FILTER and HTTP_FILTER for each chain, then the added chains. A patch that does not
// decode, or whose result violates Envoy's API, is left out: Envoy would refuse every listener of the response. The
// errors list the patches that are left out (Left), and the patches that state a name, which is ignored because it
// identifies the listener.
func Listener(
	l *listenerv3.Listener, context networkingv1.EnvoyFilter_PatchContext, patches []model.Patch,
) (*listenerv3.Listener, []error) {
	omitted := omissions{resource: "listener " + l.Name}
	patched := applyAccepted(&omitted, patches, func(some []model.Patch) (*listenerv3.Listener, []error) {
		return applyToListener(l, context, some)
	})
	return patched, omitted.faults
}

// listenerPatches is the state of applying patches to one listener.
type listenerPatches struct {
	listener *listenerv3.Listener
	context  networkingv1.EnvoyFilter_PatchContext
	patches  []model.Patch
	omissions
}

// applyToListener returns a copy of a listener with the patches, without validating the result. The errors list the
// patches that do not decode, and the names.
func applyToListener(
	l *listenerv3.Listener, context networkingv1.EnvoyFilter_PatchContext, patches []model.Patch,
) (*listenerv3.Listener, []error) {
	name := l.Name
	l = proto.Clone(l).(*listenerv3.Listener)
	s := &listenerPatches{listener: l, context: context, patches: patches, omissions: omissions{resource: "listener " + name}}
	for p := range s.matching(networkingv1.EnvoyFilter_LISTENER) {
		if merges(p) {
			s.omit(p, Merge(p, l))
			s.faults = append(s.faults, keepName(p, "listener", &l.Name, name)...)
		}
	}
	for p := range s.matching(networkingv1.EnvoyFilter_LISTENER_FILTER) {
		filter := p.Config().GetMatch().GetListener().GetListenerFilter()
		anchor := anchor{name: filter, stated: filter != ""}
		filters, err := editFilters(p, l.ListenerFilters, anchor, &listenerv3.ListenerFilter{}, nil)
		l.ListenerFilters = filters
		s.omit(p, err)
		for _, f := range l.ListenerFilters {
			s.omit(p, mergeFilter(p, f, anchor))
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
			l.FilterChains = append(l.FilterChains, c)
		}
	}
	return l, s.faults
}

// matching iterates over the patches of one kind that match the listener as a whole, in order.
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

// patchChain applies the patches that match one chain. It returns false if a patch removes the chain.
func (s *listenerPatches) patchChain(c *listenerv3.FilterChain) bool {
	for p := range s.matching(networkingv1.EnvoyFilter_FILTER_CHAIN) {
		if !s.matchesChain(p, c) {
			continue
		}
		if operation(p) == networkingv1.EnvoyFilter_Patch_REMOVE {
			return false
		}
		if merges(p) {
			s.omit(p, Merge(p, c))
		}
	}
	s.networkFilters(c)
	return true
}

// rawBuffer is the transport socket of a chain that names none.
const rawBuffer = "envoy.transport_sockets.raw_buffer"

// matchesChain reports whether the match of a patch matches a chain: its filterChain, and its port for the virtual
// listeners.
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
