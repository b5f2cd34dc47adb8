package normal

import (
	"slices"

	"istio.io/api/annotation"
)

// annotated maps each of Istio's annotations to the kinds of objects for which it is defined. Annotations that Istio
// defines for all kinds (annotation.Any) are omitted.
var annotated = func() map[string][]string {
	out := map[string][]string{}
	for _, a := range annotation.AllResourceAnnotations() {
		if slices.Contains(a.Resources, annotation.Any) {
			continue
		}
		for _, kind := range a.Resources {
			out[a.Name] = append(out[a.Name], kind.String())
		}
	}
	return out
}()
