package resolve

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// The rules are Istio's: https://istio.io/latest/docs/reference/config/networking/virtual-service/#Delegate.
// Inheritance and contradictions between matches follow Istio's pilot/pkg/model/virtualservice.go.

// These are limits of one VirtualService with its delegates. Every route may delegate to the same VirtualService, so
// the merged routes may be much larger than their sources.
const (
	maxMerged   = 1 << 20 // bytes of merged routes; the same limit holds for a stored record
	maxCompared = 100_000 // compared pairs of matches
	maxProblems = 50      // problems of one record
)

// merging is the state while the routes of delegates are merged into a VirtualService.
type merging struct {
	*unit
	root     *model.VirtualService
	routes   []*networkingv1.HTTPRoute
	bytes    int // size of the merged routes
	compared int // number of compared pairs of matches
}

// mergeDelegates merges the routes of delegates into a VirtualService. It returns the merged VirtualService and the
// problems as a unit. The result is nil if the VirtualService delegates no route, or has no hosts and so is a delegate
// itself.
func mergeDelegates(s *source, r model.Record) *unit {
	root := r.(*model.VirtualService)
	delegates := func(h *networkingv1.HTTPRoute) bool { return h.GetDelegate() != nil }
	if len(root.Spec.GetHosts()) == 0 || !slices.ContainsFunc(root.Spec.GetHttp(), delegates) {
		return nil
	}
	m := &merging{unit: &unit{}, root: root}
	for i, h := range root.Spec.GetHttp() {
		if !delegates(h) {
			m.routes = append(m.routes, h)
			continue
		}
		at := fmt.Sprintf("spec.http[%d].delegate", i)
		if delegate := m.delegate(s.Snapshot, at, h.GetDelegate()); delegate != nil {
			m.merge(at, h, delegate)
		}
	}
	spec := &networkingv1.VirtualService{Hosts: root.Spec.GetHosts(), Gateways: root.Spec.GetGateways(), Http: m.routes,
		Tls: root.Spec.GetTls(), Tcp: root.Spec.GetTcp(), ExportTo: root.Spec.GetExportTo()}
	merged, err := model.New(root.Key, root.Created, spec)
	if err != nil { // impossible: both parts were encoded before
		panic(err)
	}
	m.result = merged
	return m.unit
}

// delegate returns the VirtualService to which a route delegates. If this VirtualService cannot be used, the result is
// nil, and a problem states that the route is left out. For an empty name no problem is added, because the normaliser
// (store/normal) reports it.
func (m *merging) delegate(s *mirror.Snapshot, at string, to *networkingv1.Delegate) *model.VirtualService {
	if to.GetName() == "" {
		return nil
	}
	key := model.Key{Kind: model.KindVirtualService, Namespace: to.GetNamespace(), Name: to.GetName(), Origin: m.root.Key.Origin}
	if key.Namespace == "" {
		key.Namespace = m.root.Key.Namespace
	}
	read := set{kind: key.Kind, namespace: key.Namespace, name: key.Name}
	if !slices.ContainsFunc(m.reads, func(s set) bool { return s.key() == read.key() }) {
		m.reads = append(m.reads, read)
	}
	own := m.root.Key.Namespace
	r, _ := s.Get(key)
	switch delegate, ok := r.(*model.VirtualService); {
	case !ok && key.Namespace == own:
		m.notFound(at, "%v does not exist: the route is left out", key)
	case !ok || !exported(delegate.Spec.GetExportTo(), own): // the message must not reveal whether the object exists
		m.notFound(at, "%v is not there, or not exported to namespace %s: the route is left out", key, own)
	case len(delegate.Spec.GetHosts()) > 0:
		m.leftOut(problem.Invalid, at, "%v has hosts, so nothing can be delegated to it: the route is left out", key)
	default:
		return delegate
	}
	return nil
}

// exported reports whether an object with this exportTo is visible in a namespace. It is visible if exportTo is empty,
// or contains the namespace or "*". The normaliser has replaced "." by the namespace.
func exported(exportTo []string, to string) bool {
	return len(exportTo) == 0 || model.Exported(exportTo, "", to)
}

// merge appends the routes of a delegate, merged with the route that delegates to it.
func (m *merging) merge(at string, route *networkingv1.HTTPRoute, delegate *model.VirtualService) {
	for j, leaf := range delegate.Spec.GetHttp() {
		if leaf.GetDelegate() != nil {
			m.leftOut(problem.Invalid, at, "%v: spec.http[%d] delegates further, which a delegate may not: it is left out", delegate.Key, j)
			continue
		}
		m.compared += len(route.GetMatch()) * len(leaf.GetMatch())
		if m.compared > maxCompared || m.bytes+mostMerged(route, leaf) > maxMerged {
			m.leftOut(problem.NotAllowed, at, "%v: spec.http[%d] and all later routes are left out: with its delegates "+
				"a VirtualService may have %d bytes of merged routes, and %d pairs of matches to compare",
				delegate.Key, j, maxMerged, maxCompared)
			return
		}
		matches, conflict := mergeMatches(route.GetMatch(), leaf.GetMatch())
		if conflict >= 0 {
			m.leftOut(problem.NoEffect, at, "%v: spec.http[%d] is left out: its match[%d] contradicts each match of the route "+
				"that delegates to it", delegate.Key, j, conflict)
			continue
		}
		merged := inherit(route, leaf)
		merged.Match = matches
		merged.Delegate = &networkingv1.Delegate{Name: delegate.Key.Name, Namespace: delegate.Key.Namespace}
		m.bytes += proto.Size(merged) + 4
		m.routes = append(m.routes, merged)
	}
}

// mostMerged returns an upper bound for the size in bytes of a route merged with a delegate's route. Each match of one
// is combined with each match of the other.
func mostMerged(root, leaf *networkingv1.HTTPRoute) int {
	matches := func(h *networkingv1.HTTPRoute) (bytes int) {
		for _, m := range h.GetMatch() {
			bytes += proto.Size(m) + 4
		}
		return bytes
	}
	return proto.Size(root) + proto.Size(leaf) + 100 + len(leaf.GetMatch())*matches(root) + len(root.GetMatch())*matches(leaf)
}

// inherit returns a delegate's route whose unset fields are set from the route that delegates to it. The result
// shares field values with both routes, which are immutable.
func inherit(root, leaf *networkingv1.HTTPRoute) *networkingv1.HTTPRoute {
	out := &networkingv1.HTTPRoute{}
	fill(out, leaf)
	fill(out, root, "match", "route", "redirect", "delegate")
	out.Name = joinNames(root.GetName(), leaf.GetName())
	return out
}

// fill sets the unset fields of a message to those of another message of the same type, without copying the values. The
// last argument names fields that stay unset.
func fill(out, from proto.Message, but ...protoreflect.Name) {
	to := out.ProtoReflect()
	from.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !to.Has(field) && !slices.Contains(but, field.Name()) {
			to.Set(field, v)
		}
		return true
	})
}

// joinNames returns the name of a merged route or match.
func joinNames(root, leaf string) string {
	if root != "" && leaf != "" {
		return root + "-" + leaf
	}
	return root + leaf
}

// addProblem adds a problem of the unit's record, up to maxProblems.
func (u *unit) addProblem(p model.Problem) {
	if len(u.problems) < maxProblems {
		u.problems = append(u.problems, p)
	}
}

// notFound adds the problem that a route is left out because it refers to a missing object.
func (m *merging) notFound(field, format string, args ...any) {
	m.addProblem(model.Problem{Key: m.root.Key, Field: field, Code: problem.NotFound, Severity: problem.Error,
		Analyzer: problem.ReferencedResourceNotFound, Message: fmt.Sprintf(format, args...)})
}

// leftOut adds the problem that a route is left out.
func (m *merging) leftOut(code problem.Code, field, format string, args ...any) {
	m.addProblem(model.Problem{Key: m.root.Key, Field: field, Code: code, Severity: problem.Error, Message: fmt.Sprintf(format, args...)})
}
