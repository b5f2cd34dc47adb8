package analyze

import (
	"slices"
	"strconv"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// bundleVersion is the annotation with the release of the Gateway API that a definition (CustomResourceDefinition)
// comes from.
const bundleVersion = "gateway.networking.k8s.io/bundle-version"

// oldest contains the oldest release of the Gateway API with which istiod reads a kind
// (istio: pkg/config/schema/gatewayapi, MinimumCRDVersions).
var oldest = map[string][3]int{
	"grpcroutes.gateway.networking.k8s.io":         {1, 1, 0},
	"backendtlspolicies.gateway.networking.k8s.io": {1, 4, 0},
	"tlsroutes.gateway.networking.k8s.io":          {1, 5, 0},
}

// served contains, by the name of a definition, the API versions that it must serve for today's istiod (now) and for
// later releases (later). An empty text requires no version
// (https://istio.io/latest/docs/reference/config/analysis/ist0156/, ist0172/).
var served = map[string]struct{ now, later string }{
	"gateways.gateway.networking.k8s.io":        {"v1beta1", "v1"},
	"gatewayclasses.gateway.networking.k8s.io":  {"v1beta1", "v1"},
	"httproutes.gateway.networking.k8s.io":      {"v1beta1", "v1"},
	"grpcroutes.gateway.networking.k8s.io":      {"", "v1"},
	"referencegrants.gateway.networking.k8s.io": {"v1beta1", ""},
}

// definitions reports definitions of the Gateway API that lack a needed version or come from an old release.
func definitions(w *world) {
	for o, c := range decoded[definition](w, "apiextensions.k8s.io", "CustomResourceDefinition") {
		want := served[o.ID.Name]
		switch has := c.versions(); {
		case want.now != "" && !slices.Contains(has, want.now):
			w.found(problem.UnsupportedGatewayAPIVersion, o.ID, "spec.versions",
				"serves %s, and Istio needs %s: install a supported release of the Gateway API",
				some(has), want.now)
		case want.later != "" && !slices.Contains(has, want.later):
			w.found(problem.FutureUnsupportedGatewayAPIVersion, o.ID, "spec.versions", "serves %s, and later releases of Istio need %s", some(has),
				want.later)
		}
		w.old(o)
	}
}

// definition is the part of a CustomResourceDefinition that is read.
type definition struct {
	Spec struct {
		Versions []struct {
			Name   string
			Served bool
		}
	}
}

// versions returns the versions that a definition serves.
func (d *definition) versions() (all []string) {
	for _, v := range d.Spec.Versions {
		if v.Served {
			all = append(all, v.Name)
		}
	}
	return all
}

// old reports a definition of a release below the oldest that istiod reads. A definition without a readable release is
// not reported.
func (w *world) old(o *object.Object) {
	want, is := oldest[o.ID.Name]
	has, ok := release(o.Annotations[bundleVersion])
	if is && ok && slices.Compare(has[:], want[:]) < 0 {
		w.found(problem.GatewayAPICRDVersionBelowMinimum, o.ID, "metadata.annotations["+bundleVersion+"]",
			"release %s is too old: Istio leaves out objects of the kind below %d.%d.%d", o.Annotations[bundleVersion], want[0], want[1], want[2])
	}
}

// release parses v1.2.3 or 1.2.3-rc.1, and ignores the suffix. ok is false for other forms.
func release(text string) (parts [3]int, ok bool) {
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "v"), "-")
	numbers := strings.Split(text, ".")
	if len(numbers) != len(parts) {
		return parts, false
	}
	for i, number := range numbers {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 {
			return parts, false
		}
		parts[i] = n
	}
	return parts, true
}
