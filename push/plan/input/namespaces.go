package input

import (
	"slices"

	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// AnyNamespace means all namespaces in the index of records that name one.
const AnyNamespace = ""

// namespacesOf lists the namespaces, beside a record's own, for whose proxies the record may have a special meaning.
// See Index.Naming.
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
