package input

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// AnyNamespace stands for all namespaces in the index of records that name one.
const AnyNamespace = ""

// namespacesOf are the namespaces, beside its own, for whose proxies a record may mean something else than for others.
func namespacesOf(r model.Record) []string {
	var out []string
	switch t := r.(type) {
	case *model.Service:
		out = t.Spec.GetExportTo()
	case *model.DestinationRule:
		out = t.Spec.GetExportTo()
	case *model.VirtualService:
		if out = t.Spec.GetExportTo(); readsNamespace(t) {
			out = append(slices.Clone(out), AnyNamespace)
		}
	}
	return slices.DeleteFunc(slices.Clone(out), func(e string) bool { return e == "*" || e == "." || e == "~" })
}

// readsNamespace says whether any match of a VirtualService has a sourceNamespace.
func readsNamespace(vs *model.VirtualService) bool {
	for _, r := range vs.Spec.GetHttp() {
		if slices.ContainsFunc(r.GetMatch(), func(m *networkingv1.HTTPMatchRequest) bool { return m.GetSourceNamespace() != "" }) {
			return true
		}
	}
	for _, r := range vs.Spec.GetTcp() {
		if slices.ContainsFunc(r.GetMatch(), func(m *networkingv1.L4MatchAttributes) bool { return m.GetSourceNamespace() != "" }) {
			return true
		}
	}
	for _, r := range vs.Spec.GetTls() {
		if slices.ContainsFunc(r.GetMatch(), func(m *networkingv1.TLSMatchAttributes) bool { return m.GetSourceNamespace() != "" }) {
			return true
		}
	}
	return false
}
