package analyze

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// suppression is the annotation that lists codes, separated by commas. These codes are not reported for the annotated
// object. * stands for all codes.
const suppression = "galley.istio.io/analyze-suppress"

// suppressed reports whether the annotation of the finding's object suppresses it.
func (w *world) suppressed(f Finding) bool {
	o := w.byID[f.id]
	if o == nil {
		return false
	}
	stated := strings.Split(o.Annotations[suppression], ",")
	return slices.ContainsFunc(stated, func(code string) bool {
		code = strings.TrimSpace(code)
		return code == "*" || code == f.Code
	})
}

// Suppression selects findings that are not reported, in istioctl's form CODE=KIND NAME.NAMESPACE. Code and object are
// patterns of path.Match. The zero value selects no finding. ParseSuppression makes a Suppression.
type Suppression struct{ code, object string }

// ParseSuppression parses CODE=KIND NAME.NAMESPACE, for example "IST0102=Namespace *", or CODE=* for all objects. The
// name of an object without a namespace has no ".NAMESPACE". Errors: another form, or an invalid pattern.
func ParseSuppression(text string) (Suppression, error) {
	code, object, is := strings.Cut(text, "=")
	kind, name, named := strings.Cut(object, " ")
	if !is || code == "" || kind == "" && object != "*" || !named && object != "*" || named && name == "" {
		return Suppression{}, fmt.Errorf("%q: want CODE=KIND NAME.NAMESPACE, for example "+
			"'IST0102=Namespace shop' or 'NAV1001=VirtualService *.shop'", text)
	}
	for _, pattern := range []string{code, object} {
		if _, err := path.Match(pattern, ""); err != nil {
			return Suppression{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	return Suppression{code, object}, nil
}

// Covers reports whether the suppression selects a finding.
func (s Suppression) Covers(f Finding) bool {
	name := f.id.Kind + " " + f.id.Name
	if f.id.Namespace != "" {
		name += "." + f.id.Namespace
	}
	code, _ := path.Match(s.code, f.Code)
	object, _ := path.Match(s.object, strings.ReplaceAll(name, "/", "."))
	return code && (object || s.object == "*")
}

// Suppressed removes the findings that a suppression selects, and returns the remaining findings. The result reuses the
// array of the first argument, whose content changes.
func Suppressed(all []Finding, by []Suppression) []Finding {
	return slices.DeleteFunc(all, func(f Finding) bool {
		return slices.ContainsFunc(by, func(s Suppression) bool { return s.Covers(f) })
	})
}

// Of returns the findings about a namespace: about objects in the namespace, and about cluster-wide objects with the
// namespace's name, such as the Namespace itself. The result reuses the array of the first argument, whose content
// changes.
func Of(all []Finding, namespace string) []Finding {
	return slices.DeleteFunc(all, func(f Finding) bool {
		return f.id.Namespace != namespace && (f.id.Namespace != "" || f.id.Name != namespace)
	})
}

// Known prepares a finding that does not come from Run for Compare, Of and Suppression.Covers, and returns it. f.Object
// must be "Kind namespace/name", or "Kind name" for an object without a namespace.
func Known(f Finding) Finding {
	kind, name, _ := strings.Cut(f.Object, " ")
	f.id.Kind = kind
	var namespaced bool
	if f.id.Namespace, f.id.Name, namespaced = strings.Cut(name, "/"); !namespaced {
		f.id.Namespace, f.id.Name = "", name
	}
	return f
}
