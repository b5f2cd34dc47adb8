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

// named is a filter of any of the three lists: listener filters, network filters, HTTP filters.
type named interface {
	proto.Message
	GetName() string
	GetTypedConfig() *anypb.Any
}

// anchor is the filter that a patch stands by.
type anchor struct {
	name   string
	stated bool
}

func networkAnchor(p model.Patch) anchor {
	f := p.Config().GetMatch().GetListener().GetFilterChain().GetFilter()
	return anchor{f.GetName(), f != nil}
}

func httpAnchor(p model.Patch) anchor {
	f := p.Config().GetMatch().GetListener().GetFilterChain().GetFilter().GetSubFilter()
	return anchor{f.GetName(), f != nil}
}

// edit applies one patch to a list of filters, all operations but those that merge. `fresh` is an empty filter, for the value;
// `ends` says which filters must be last (nil: none): what is added goes before it, where Istio would add it behind and
// Envoy refuse the listener. Without an anchor INSERT_BEFORE and INSERT_AFTER mean first and last, and REPLACE and
// REMOVE nothing. The error: the value does not decode, and the list is as it was.
func edit[F named](p model.Patch, list []F, a anchor, fresh F, ends func(F) bool) ([]F, error) {
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
		return list, nil // nothing to stand by, or no operation on lists
	}
	if err := Decode(p, fresh); err != nil {
		return list, err
	}
	if op == networkingv1.EnvoyFilter_Patch_REPLACE {
		list[at] = fresh
		return list, nil
	}
	if last := len(list) - 1; at == len(list) && last >= 0 && ends != nil && ends(list[last]) {
		at = last
	}
	return slices.Insert(list, at, fresh), nil
}

// mergeFilter applies one patch that merges to one filter. A patch that names no filter merges into those of its own type:
// configurations of two types do not merge. The error: the value does not decode, and the filter is as it was.
func mergeFilter[F named](p model.Patch, f F, a anchor) error {
	if !merges(p) || f.GetTypedConfig() == nil {
		return nil
	}
	if a.stated && f.GetName() != a.name {
		return nil
	}
	if !a.stated {
		value, err := shared[F](p)
		if err != nil {
			return err
		}
		if value.GetTypedConfig().GetTypeUrl() != f.GetTypedConfig().GetTypeUrl() {
			return nil
		}
	}
	return Merge(p, f)
}

// networkFilters applies NETWORK_FILTER and HTTP_FILTER patches to one chain.
func (s *listenerPatches) networkFilters(c *listenerv3.FilterChain) {
	for p := range s.of(networkingv1.EnvoyFilter_NETWORK_FILTER) {
		if s.matchesChain(p, c) {
			filters, err := edit(p, c.Filters, networkAnchor(p), &listenerv3.Filter{}, endsConnection)
			c.Filters = filters
			s.out(p, err)
		}
	}
	for _, f := range c.Filters {
		for p := range s.of(networkingv1.EnvoyFilter_NETWORK_FILTER) {
			if s.matchesChain(p, c) {
				s.out(p, mergeFilter(p, f, networkAnchor(p)))
			}
		}
		s.httpFilters(c, f)
	}
}

// httpFilters applies HTTP_FILTER patches to one connection manager.
func (s *listenerPatches) httpFilters(c *listenerv3.FilterChain, f *listenerv3.Filter) {
	m := &hcmv3.HttpConnectionManager{}
	var matching []model.Patch
	for p := range s.of(networkingv1.EnvoyFilter_HTTP_FILTER) {
		if a := networkAnchor(p); s.matchesChain(p, c) && (!a.stated || a.name == f.Name) {
			matching = append(matching, p)
		}
	}
	if len(matching) == 0 || !f.GetTypedConfig().MessageIs(m) || f.GetTypedConfig().UnmarshalTo(m) != nil {
		return
	}
	for _, p := range matching {
		filters, err := edit(p, m.HttpFilters, httpAnchor(p), &hcmv3.HttpFilter{}, endsRequest)
		m.HttpFilters = filters
		s.out(p, err)
	}
	for _, h := range m.HttpFilters {
		for _, p := range matching {
			s.out(p, mergeFilter(p, h, httpAnchor(p)))
		}
	}
	f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: xds.Any(m)}
}

func endsConnection(f *listenerv3.Filter) bool {
	switch f.GetTypedConfig().MessageName() {
	case "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
		"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager":
		return true
	}
	return false
}

func endsRequest(f *hcmv3.HttpFilter) bool {
	return f.GetTypedConfig().MessageName() == "envoy.extensions.filters.http.router.v3.Router"
}
