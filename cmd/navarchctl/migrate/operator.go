package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// operator classifies the IstioOperator fields that have no equivalent value in Istio's chart istiod
// (operator/pkg/apis/types.go of Istio 1.20 to 1.31). Each row has a field, the effect, the equivalent or the reason,
// and a value that needs no action.
var operator = []row{
	{"profile", Reported, "profiles are not read: migrate the values and components of the profile; gateways have a chart of their own", "minimal"},
	{"compatibilityVersion", Reported, "not read: pass the environment variables that this version sets", ""},
	{"namespace", Decide, "it is the namespace of the release (`helm install -n`)", "istio-system"},
	{"installPackagePath", NoEffect, "it is where istioctl finds Istio's charts", ""},
	{"components.base.enabled", Reported,
		"the chart always installs these objects; set `crds.install: false` to leave out Istio's CRDs", "true"},
	{"components.pilot.enabled", Reported, "the chart installs a control plane", "true"},
	{"components.pilot.k8s", Reported, "the chart has no value for it: set it in Navarch's objects yourself", ""},
	{"components.ingressGateways", Reported, "gateways have a chart of their own, with the values of Istio's: gateways.md", ""},
	{"components.egressGateways", Reported, "gateways have a chart of their own, with the values of Istio's: gateways.md", ""},
	{"components.cni.enabled", Reported, "the chart istio-cni stays as it is; Navarch's plugin: redirection.md", "false"},
	{"components.istiodRemote.enabled", Reported, "a cluster without a control plane of its own has no chart yet: clusters.md", "false"},
	{"components.ztunnel.enabled", Reported, "ambient mode is not there", "false"},
	{"components", Reported, "the field belongs to a chart that Navarch does not replace", ""},
}

// fields maps fields of an IstioOperator's spec to the equivalent values of Istio's chart istiod. The chart has some
// values both at the top level and below pilot. For these values the map has the path below pilot.
var fields = map[string]string{
	"meshConfig": "meshConfig", "revision": "revision", "hub": "global.hub", "tag": "global.tag",
	"components.pilot.hub": "global.hub", "components.pilot.tag": "global.tag",
	"components.pilot.k8s.resources":           "pilot.resources",
	"components.pilot.k8s.replicaCount":        "pilot.replicaCount",
	"components.pilot.k8s.hpaSpec.minReplicas": "pilot.autoscaleMin",
	"components.pilot.k8s.hpaSpec.maxReplicas": "pilot.autoscaleMax",
	"components.pilot.k8s.hpaSpec.behavior":    "pilot.autoscaleBehavior",
	"components.pilot.k8s.affinity":            "pilot.affinity",
	"components.pilot.k8s.tolerations":         "pilot.tolerations",
	"components.pilot.k8s.nodeSelector":        "pilot.nodeSelector",
	"components.pilot.k8s.podAnnotations":      "pilot.podAnnotations",
	"components.pilot.k8s.serviceAnnotations":  "pilot.serviceAnnotations",
	"components.pilot.k8s.priorityClassName":   "global.priorityClassName",
}

// fromOperator classifies the settings of an IstioOperator. Other fields of the spec override spec.values, as in
// istioctl install. The hub and tag of components.pilot override those of the spec. fromOperator changes spec.values in
// tree.
func fromOperator(tree map[string]any) []Setting {
	spec, _ := tree["spec"].(map[string]any)
	values, _ := spec["values"].(map[string]any)
	if values == nil {
		values = map[string]any{}
	}
	var own []Setting
	const components = "components"
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(spec)), func(n string) bool { return n == "values" || n == components })
	for _, name := range append(names, components) { // last: components.pilot.hub overrides hub
		walk([]string{name}, spec[name], func(path []string, v any) {
			list, isList := v.([]any)
			key := strings.Join(path, ".")
			for n := len(path); n > 0; n-- {
				if value := fields[strings.Join(path[:n], ".")]; value != "" {
					set(values, append(strings.Split(value, "."), path[n:]...), v)
					return
				}
			}
			switch {
			case key == "components.pilot.k8s.env" && isList:
				own = append(own, fromVariables(list)...)
			case isList:
				own = append(own, Setting{Sort: Operator, Key: key, Value: fmt.Sprintf("%d entries", len(list)), raw: v})
			default:
				own = append(own, Setting{Sort: Operator, Key: key, Value: fmt.Sprint(v), raw: v})
			}
		})
	}
	return Merge(FromValues(values), own)
}

// fromVariables returns the settings of a container's env, not yet classified.
func fromVariables(list []any) (all []Setting) {
	for _, one := range list {
		entry, _ := one.(map[string]any)
		if _, is := entry["value"]; !is {
			all = append(all, fromReferences([]any{one})...)
			continue
		}
		all = append(all, Setting{Sort: Environment, Key: fmt.Sprint(entry["name"]), Value: fmt.Sprint(entry["value"]), raw: entry["value"]})
	}
	return all
}
