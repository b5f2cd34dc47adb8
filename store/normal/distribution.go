package normal

import (
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// DistributionAnnotation is the annotation with the preferred endpoints of a Service, of a ServiceEntry or of all
// services of a Namespace (https://istio.io/latest/docs/reference/config/annotations/#NetworkingTrafficDistribution).
const DistributionAnnotation = "networking.istio.io/traffic-distribution"

// distributions has the preferences by the values of spec.trafficDistribution and of the annotation. The values are in
// lower case here, and are case-insensitive in objects.
var distributions = map[string]model.Distribution{
	"preferclose": model.Distribution_DISTRIBUTION_SAME_ZONE, "prefersamezone": model.Distribution_DISTRIBUTION_SAME_ZONE,
	"prefersamenode": model.Distribution_DISTRIBUTION_SAME_NODE,
}

// distribution returns the preference of a Service or ServiceEntry. It comes from the first of these that states one:
// the parameter field, the annotation of the object, or the annotation of its Namespace in the same source and cluster.
func distribution(r *report, field string, obj *object.Object, ctx Lookup) model.Distribution {
	if d, known := distributions[strings.ToLower(field)]; known {
		return d
	}
	if d, stated := annotatedDistribution(r, obj); stated {
		return d
	}
	if ns := r.namespace(obj, ctx); ns != nil {
		return ns.Distribution
	}
	return model.Distribution_DISTRIBUTION_ANY
}

// annotatedDistribution returns the preference in the annotation of an object. It returns false if the annotation is
// missing or empty. An unknown value causes a warning.
func annotatedDistribution(r *report, obj *object.Object) (d model.Distribution, stated bool) {
	text := obj.Annotations[DistributionAnnotation]
	d, known := distributions[strings.ToLower(text)]
	if text != "" && !known && !strings.EqualFold(text, "Any") {
		r.warnf(problem.NoEffect, "metadata.annotations["+DistributionAnnotation+"]", "%q: want PreferClose, PreferSameZone or PreferSameNode",
			text)
	}
	return d, text != ""
}
