package analysis

import (
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
)

// common reports whether two normalised exportTo lists have a namespace in common, apart from the ignored ones. A
// normalised list is sorted, or consists of "*" or "~".
func common(a, b []string, ignored ...string) bool {
	counts := func(namespace string) bool { return namespace != "~" && !slices.Contains(ignored, namespace) }
	for len(a) > 0 && len(b) > 0 {
		order := strings.Compare(a[0], b[0])
		switch {
		case !counts(a[0]):
			a = a[1:]
		case !counts(b[0]):
			b = b[1:]
		case order == 0 || a[0] == "*" || b[0] == "*":
			return true
		case order < 0:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return false
}

// overlap reports whether two normalised exportTo lists have a namespace in common.
func overlap(a, b []string) bool { return common(a, b) }

// elsewhere reports whether proxies of a third namespace see both services. The namespaces of the two services do not
// count, since each service has precedence in its own.
func elsewhere(a, b *model.Service) bool {
	return common(a.Spec.GetExportTo(), b.Spec.GetExportTo(), a.Key.Namespace, b.Key.Namespace)
}
