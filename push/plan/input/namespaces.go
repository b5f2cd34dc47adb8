package input

import (
	"slices"

	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// AnyNamespace is the argument of Index.Naming for records that may mean any namespace. They are the VirtualServices
// that match requests by sourceNamespace.
const AnyNamespace = ""

// namespacesOf returns the namespaces that a record's exportTo names, for Index.Naming. A VirtualService that matches
// by sourceNamespace also has AnyNamespace.
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
