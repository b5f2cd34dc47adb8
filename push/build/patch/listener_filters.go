package patch

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// named is a listener filter, network filter or HTTP filter.
type named interface {
	proto.Message
	GetName() string
	GetTypedConfig() *anypb.Any
}

// anchor is the filter that the match of a patch states. The patch changes this filter, or inserts the patch's value
// beside it.
type anchor struct {
	name   string
	stated bool // the match states a filter
}

// networkAnchor returns the network filter in the match of a patch.
func networkAnchor(p model.Patch) anchor {
	f := p.Config().GetMatch().GetListener().GetFilterChain().GetFilter()
	return anchor{f.GetName(), f != nil}
}

// httpAnchor returns the HTTP filter in the match of a patch.
func httpAnchor(p model.Patch) anchor {
	f := p.Config().GetMatch().GetListener().GetFilterChain().GetFilter().GetSubFilter()
	return anchor{f.GetName(), f != nil}
}

// editFilters applies one patch to a list of filters, and returns the list. Patches that merge have no effect here. The
// parameter a is the filter in the patch's match. The parameter fresh is an empty filter, into which the value is
// decoded. If the match states no filter, INSERT_BEFORE inserts at the start and INSERT_AFTER at the end, and REPLACE
// and REMOVE have no effect.
//
// The function isTerminal, which may be nil, reports whether a filter must be the last one. A value for the end of the
// list is inserted before such a last filter, because Envoy would refuse any other order. If the value does not decode,
// editFilters fails and the list is unchanged. The trace t records the patch if the list changes.
func editFilters[F named](t *Trace, p model.Patch, list []F, a anchor, fresh F, isTerminal func(F) bool) ([]F, error) {
	return tracedList(t, p, list, func() ([]F, error) { return editList(p, list, a, fresh, isTerminal) })
}

// editList returns the results of editFilters. It records nothing.
func editList[F named](p model.Patch, list []F, a anchor, fresh F, isTerminal func(F) bool) ([]F, error) {
	at := slices.IndexFunc(list, func(f F) bool { return a.stated && f.GetName() == a.name })
	op := operation(p)
	if op == networkingv1.EnvoyFilter_Patch_REMOVE {
		if !a.stated {
			return list, nil
		}
		return slices.DeleteFunc(list, func(f F) bool { return f.GetName() == a.name }), nil
	}
	switch {
	case op == networkingv1.EnvoyFilter_Patch_ADD:
		at = len(list)
	case op == networkingv1.EnvoyFilter_Patch_INSERT_FIRST:
		at = 0
	case op == networkingv1.EnvoyFilter_Patch_INSERT_BEFORE && !a.stated:
		at = 0
	case op == networkingv1.EnvoyFilter_Patch_INSERT_AFTER && !a.stated:
		at = len(list)
	case op == networkingv1.EnvoyFilter_Patch_INSERT_AFTER && at >= 0:
		at++
	case (op == networkingv1.EnvoyFilter_Patch_INSERT_BEFORE || op == networkingv1.EnvoyFilter_Patch_REPLACE) && at >= 0:
	default:
		return list, nil // the list lacks the anchor, or the operation does not change lists
	}
	if err := Decode(p, fresh); err != nil {
		return list, err
	}
	if op == networkingv1.EnvoyFilter_Patch_REPLACE {
		list[at] = fresh
		return list, nil
	}
	if last := len(list) - 1; at == len(list) && last >= 0 && isTerminal != nil && isTerminal(list[last]) {
		at = last
	}
	return slices.Insert(list, at, fresh), nil
}

// mergeFilter merges one patch into a filter if the patch matches the filter. If the match states no filter, the patch
// matches filters whose configuration has the type of the value's configuration. If the value does not decode,
// mergeFilter fails and the filter is unchanged. The trace t records the patch if the filter changes.
func mergeFilter[F named](t *Trace, p model.Patch, f F, a anchor) (err error) {
	if !merges(p) || f.GetTypedConfig() == nil {
		return nil
	}
	if a.stated && f.GetName() != a.name {
		return nil
	}
	if !a.stated {
		value, err := sharedValue[F](p)
		if err != nil {
			return err
		}
		if value.GetTypedConfig().GetTypeUrl() != f.GetTypedConfig().GetTypeUrl() {
			return nil
		}
	}
	traced(t, p, f, func(f F) F {
		err = Merge(p, f)
		return f
	})
	return err
}

// networkFilters applies the matching NETWORK_FILTER and HTTP_FILTER patches to the filters of one filter chain.
func (s *listenerPatches) networkFilters(c *listenerv3.FilterChain) {
	for p := range s.matching(networkingv1.EnvoyFilter_NETWORK_FILTER) {
		if s.matchesChain(p, c) {
			filters, err := editFilters(s.trace, p, c.Filters, networkAnchor(p), &listenerv3.Filter{}, isTerminalNetworkFilter)
			c.Filters = filters
			s.omit(p, err)
		}
	}
	for _, f := range c.Filters {
		for p := range s.matching(networkingv1.EnvoyFilter_NETWORK_FILTER) {
			if s.matchesChain(p, c) {
				s.omit(p, mergeFilter(s.trace, p, f, networkAnchor(p)))
			}
		}
		s.httpFilters(c, f)
	}
}

// httpFilters applies the matching HTTP_FILTER patches to f, a network filter of the filter chain c. If f is not an
// HTTP connection manager, httpFilters does nothing.
func (s *listenerPatches) httpFilters(c *listenerv3.FilterChain, f *listenerv3.Filter) {
	m := &hcmv3.HttpConnectionManager{}
	var matching []model.Patch
	for p := range s.matching(networkingv1.EnvoyFilter_HTTP_FILTER) {
		if a := networkAnchor(p); s.matchesChain(p, c) && (!a.stated || a.name == f.Name) {
			matching = append(matching, p)
		}
	}
	if len(matching) == 0 || !f.GetTypedConfig().MessageIs(m) || f.GetTypedConfig().UnmarshalTo(m) != nil {
		return
	}
	for _, p := range matching {
		filters, err := editFilters(s.trace, p, m.HttpFilters, httpAnchor(p), &hcmv3.HttpFilter{}, isTerminalHTTPFilter)
		m.HttpFilters = filters
		s.omit(p, err)
	}
	matching = slices.DeleteFunc(matching, func(p model.Patch) bool { return !merges(p) })
	for _, h := range m.HttpFilters {
		for _, p := range matching {
			s.omit(p, mergeFilter(s.trace, p, h, httpAnchor(p)))
		}
	}
	f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: xds.Any(m)}
}

// isTerminalNetworkFilter reports whether a network filter is the TCP proxy or the HTTP connection manager, which must
// be the last of its filter chain.
func isTerminalNetworkFilter(f *listenerv3.Filter) bool {
	switch f.GetTypedConfig().MessageName() {
	case "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
		"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager":
		return true
	}
	return false
}

// isTerminalHTTPFilter reports whether an HTTP filter is the router, which must be the last of the HTTP filters.
func isTerminalHTTPFilter(f *hcmv3.HttpFilter) bool {
	return f.GetTypedConfig().MessageName() == "envoy.extensions.filters.http.router.v3.Router"
}
