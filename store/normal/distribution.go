package normal

import (
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// DistributionAnnotation states which endpoints of a Service, of a ServiceEntry or of all of a Namespace are preferred
// (https://istio.io/latest/docs/reference/config/annotations/#NetworkingTrafficDistribution).
const DistributionAnnotation = "networking.istio.io/traffic-distribution"

// distributions are the words of spec.trafficDistribution and of the annotation, whose case is as one likes.
var distributions = map[string]model.Distribution{
	"preferclose": model.Distribution_DISTRIBUTION_SAME_ZONE, "prefersamezone": model.Distribution_DISTRIBUTION_SAME_ZONE,
	"prefersamenode": model.Distribution_DISTRIBUTION_SAME_NODE,
}

// distribution says which endpoints of a Service or ServiceEntry are preferred: what the field says, where it says one, else the object's annotation, else
// that of the Namespace of its own source and cluster.
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

// annotatedDistribution is what the annotation of an object says; false: it has none.
func annotatedDistribution(r *report, obj *object.Object) (d model.Distribution, stated bool) {
	text := obj.Annotations[DistributionAnnotation]
	d, known := distributions[strings.ToLower(text)]
	if text != "" && !known && !strings.EqualFold(text, "Any") {
		r.warnf(problem.NoEffect, "metadata.annotations["+DistributionAnnotation+"]", "%q: want PreferClose, PreferSameZone or PreferSameNode",
			text)
	}
	return d, text != ""
}
