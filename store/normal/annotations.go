package normal

import (
	"fmt"
	"slices"
	"strings"

	meshv1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/normal/fields"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/scan"
)

// names reports annotations and labels without effect (store/normal/fields), and problems of the annotation
// proxy.istio.io/config.
func (r *report) names(obj *object.Object) {
	if len(obj.Annotations)+len(obj.Labels) == 0 {
		return
	}
	for _, of := range []struct {
		section, field string
		has            map[string]string
	}{{fields.Annotations, "annotations", obj.Annotations}, {fields.Labels, "labels", obj.Labels}} {
		for _, name := range sortedKeys(of.has) {
			row, at := fields.Named(of.section, name), fmt.Sprintf("metadata.%s[%s]", of.field, name)
			switch {
			case name == dryRun && obj.ID.Kind != "AuthorizationPolicy" && strings.HasSuffix(obj.ID.Group, ".istio.io"):
				r.refusef(problem.NoEffect, at, "is for AuthorizationPolicies")
			case row != nil && row.Mark == fields.Reported:
				r.unacted(at, row)
			case row == nil && of.section == fields.Annotations && istioName(name):
				r.analysef(problem.UnknownAnnotation, problem.NoEffect, at, "Istio has no annotation of this name")
			case of.section == fields.Annotations && len(annotated[name]) > 0 && !slices.Contains(annotated[name], obj.ID.Kind):
				r.analysef(problem.MisplacedAnnotation, problem.NoEffect, at, "is read of a %s, and not of a %s",
					strings.Join(annotated[name], ", a "), obj.ID.Kind)
			}
		}
	}
	if text := obj.Annotations[proxyConfig]; text != "" {
		r.proxyConfig(fmt.Sprintf("metadata.annotations[%s]", proxyConfig), text)
	}
}

// proxyConfig is the annotation with a Pod's own ProxyConfig, as YAML.
const proxyConfig = "proxy.istio.io/config"

// maxProxyConfig is the largest number of values in the ProxyConfig of an annotation, with YAML aliases expanded.
// Injection has the same limit.
const maxProxyConfig = 8192

// proxyConfig reports fields of a ProxyConfig, as YAML, that are invalid or have no effect. All reports are warnings,
// because an existing Pod stays valid. Injection refuses a new Pod with an invalid ProxyConfig.
func (r *report) proxyConfig(at, text string) {
	var err error
	if strings.Contains(text, "*") { // a few lines with aliases can expand to millions of values
		err = scan.YAML([]byte(text), maxProxyConfig)
	}
	var raw []byte
	if err == nil {
		raw, err = yaml.YAMLToJSON([]byte(text))
	}
	if err != nil {
		r.warnf(problem.Invalid, at, "%v", err)
		return
	}
	own, config := &report{id: r.id, location: r.location}, &meshv1.ProxyConfig{}
	if own.message(raw, at, config) {
		checkProxyConfig(own, at, config)
	}
	for _, one := range own.problems {
		one.Severity = problem.Warning
		r.add(one)
	}
}

// OfPod returns warnings about the annotations and labels of a Pod. It warns of annotations and labels that this
// version does not support. It also warns of annotations of Istio's domains that Istio does not define, or that Istio
// reads only of other kinds of objects. Further warnings are about invalid fields, and fields without effect, in the
// ProxyConfig of the annotation proxy.istio.io/config. Both maps may be nil. The result has at most 50 warnings, and is
// nil without warnings.
func OfPod(annotations, labels map[string]string) []object.Problem {
	r := &report{id: object.ID{Kind: "Pod"}}
	r.names(&object.Object{ID: r.id, Annotations: annotations, Labels: labels})
	return r.problems
}

// istioName reports whether the name of an annotation is in a domain of Istio. The domain of Istio's operator does not
// count.
func istioName(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return (domain == "istio.io" || strings.HasSuffix(domain, ".istio.io")) && !strings.HasSuffix(domain, "operator.istio.io")
}
