package normal

import (
	"regexp"

	proxyconfigv1 "istio.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// imageType matches a suffix of an image tag, of at most 100 characters
// (https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests).
var imageType = regexp.MustCompile(`^[\w.-]{0,100}$`)

// proxyConfigRecords returns the record of a ProxyConfig
// (https://istio.io/latest/docs/reference/config/networking/proxy-config/). Like Istio, it refuses a negative
// concurrency, and an environment variable whose value has more than maxValue bytes. It also refuses a variable name or
// an image type with which no Pod could be created.
func proxyConfigRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	c := &proxyconfigv1.ProxyConfig{}
	if !r.spec(obj, c) {
		return nil
	}
	r.selector("spec.selector.matchLabels", c.GetSelector().GetMatchLabels())
	if c.Selector != nil && len(c.Selector.MatchLabels) == 0 {
		r.warnf(problem.NoEffect, "spec.selector.matchLabels",
			"is empty: a selector without labels selects no workload; remove the selector to select all workloads of the namespace")
	}
	if c.GetConcurrency().GetValue() < 0 {
		r.errorf("spec.concurrency", "%d: want 0 or more", c.GetConcurrency().GetValue())
	}
	for _, name := range sortedKeys(c.EnvironmentVariables) {
		if len(validation.IsRelaxedEnvVarName(name)) > 0 {
			r.errorf("spec.environmentVariables", "%q is not a valid name of a variable", name)
		}
		if n := len(c.EnvironmentVariables[name]); n > maxValue {
			r.errorf("spec.environmentVariables["+name+"]", "is %d bytes long; %d at most", n, maxValue)
		}
	}
	if !imageType.MatchString(c.GetImage().GetImageType()) {
		r.errorf("spec.image.imageType", "%.100q is not a valid suffix of an image tag", c.GetImage().GetImageType())
	}
	return r.record(model.KindProxyConfig, obj, obj.ID.Name, c)
}
