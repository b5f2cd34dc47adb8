package analyze

import (
	"fmt"

	"istio.io/api/annotation"
	"istio.io/api/label"

	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// known are Istio's annotations by name.
var known = func() map[string]*annotation.Instance {
	out := map[string]*annotation.Instance{}
	for _, a := range annotation.AllResourceAnnotations() {
		out[a.Name] = a
	}
	return out
}()

// annotations reports annotations of Pods, templates, Services and namespaces that are deprecated, alpha, or have a
// wrong value. Pods of a workload such as a Deployment are left out, because the workload's template has the same
// annotations.
func annotations(w *world) {
	for _, p := range w.pods {
		if !p.owned {
			w.annotated(p.meta, p.field("metadata"), p.notes, p.labels)
		}
	}
	for _, of := range []string{"Service", "Namespace"} {
		for _, o := range w.byKind[kind{"", of}] {
			w.annotated(o.ID, "metadata", o.Annotations, o.Labels)
		}
	}
}

// annotated reports the annotations of one object.
func (w *world) annotated(id object.ID, at string, all, labels map[string]string) {
	for _, name := range sorted(all) {
		of := known[name]
		if of == nil || name == annotation.SidecarStatus.Name || name == suppression {
			continue
		}
		field := fmt.Sprintf("%s.annotations[%s]", at, name)
		switch {
		case of.Deprecated && name == annotation.SidecarInject.Name && labels[label.SidecarInject.Name] != "":
		case of.Deprecated && name == annotation.SidecarInject.Name:
			w.found(problem.DeprecatedAnnotation, id, field, "is deprecated: the label of the same name counts")
		case of.Deprecated:
			w.found(problem.DeprecatedAnnotation, id, field, "is deprecated")
		case of.FeatureStatus == annotation.Alpha:
			w.found(problem.AlphaAnnotation, id, field, "belongs to a feature of status alpha, which a later version may change")
		}
		if err := inject.CheckAnnotation(name, all[name]); err != nil {
			w.found(problem.InvalidAnnotation, id, field, "%v", err)
		}
	}
}
