package input

import (
	"slices"

	"navarch.io/navarch/push/virtualservice"
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
		if out = t.Spec.GetExportTo(); virtualservice.ReadsNamespace(t) {
			out = append(slices.Clone(out), AnyNamespace)
		}
	}
	return slices.DeleteFunc(slices.Clone(out), func(e string) bool { return e == "*" || e == "." || e == "~" })
}
