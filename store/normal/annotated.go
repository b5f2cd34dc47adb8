package normal

import (
	"slices"

	"istio.io/api/annotation"
)

// annotated is which kinds of objects each of Istio's annotations is for; an annotation that is for any has none.
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
