package migrate

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
)

// scaling maps each Helm value that describes the number or size of replicas to its parser. A parser returns false for
// an invalid value.
var scaling = map[string]func(Setting) (any, bool){
	"autoscaleEnabled":             func(s Setting) (any, bool) { return truth(s.raw) },
	"autoscaleMin":                 upTo(math.MaxInt32),
	"autoscaleMax":                 upTo(math.MaxInt32),
	"replicaCount":                 upTo(math.MaxInt32),
	"cpu.targetAverageUtilization": upTo(math.MaxInt32),
	stabilization:                  upTo(3600),
	"resources":                    size,
}

const stabilization = "autoscaleBehavior.scaleDown.stabilizationWindowSeconds"

// upTo returns a parser of integers. The parser accepts the numbers from 1 to the limit.
func upTo(limit int) func(Setting) (any, bool) {
	return func(s Setting) (any, bool) {
		n, err := strconv.Atoi(fmt.Sprint(s.raw))
		return n, err == nil && 0 < n && n <= limit
	}
}

// size parses one request or limit below the value resources.
func size(s Setting) (any, bool) {
	if len(s.path) != 3 || s.path[1] != "requests" && s.path[1] != "limits" {
		return nil, false
	}
	_, err := resource.ParseQuantity(fmt.Sprint(s.raw))
	return s.raw, err == nil
}

// scaledTogether changes the effects of scaling values that exclude or contradict each other. For example, istiod has
// either a fixed number of replicas, or bounds for an autoscaler.
func scaledTogether(all []Setting) {
	given := map[string]any{}
	for _, s := range all {
		if read := scaling[s.Key]; s.Sort == Value && s.Effect == ActedOn && read != nil {
			given[s.Key], _ = read(s)
		}
	}
	unused, why := []string{"replicaCount"}, "istiod has as many replicas as scaling says, unless `autoscaleEnabled` is false"
	if given["autoscaleEnabled"] == false {
		unused, why = []string{"autoscaleMin", "autoscaleMax", "cpu.targetAverageUtilization", stabilization},
			"`autoscaleEnabled: false` turns scaling off"
	}
	least, most := or(given["autoscaleMin"], 1), or(given["autoscaleMax"], 5)
	for i := range all {
		s := &all[i]
		switch {
		case s.Sort != Value || s.Effect != ActedOn:
		case slices.Contains(unused, s.Key):
			s.Effect, s.Here = NoEffect, why
		case s.Key == "autoscaleMax" && most < least:
			s.Effect, s.Here = Decide, fmt.Sprintf("it is less than `autoscaleMin`, %d: `deployments[].autoscaling.maxReplicas`", least)
		}
	}
}

// deployment returns an entry of the chart's value deployments, with every role of navarchd, from a tree of scaling
// values. Missing values have the defaults of istiod's chart. It may change the value resources in tree.
func deployment(tree map[string]any) map[string]any {
	resources, _ := tree["resources"].(map[string]any)
	if resources == nil {
		resources = map[string]any{"requests": map[string]any{"cpu": "500m", "memory": "2048Mi"}}
	}
	d := map[string]any{"roles": []any{"ingest", "xds", "ca", "admit"}, "resources": resources}
	if tree["autoscaleEnabled"] == false {
		d["replicas"] = or(tree["replicaCount"], 1)
		return d
	}
	requests, _ := resources["requests"].(map[string]any)
	limits, _ := resources["limits"].(map[string]any)
	if requests["cpu"] == nil && limits["cpu"] == nil { // autoscaling by CPU needs a request
		set(resources, []string{"requests", "cpu"}, "500m")
	}
	cpu, _ := tree["cpu"].(map[string]any)
	least := or(tree["autoscaleMin"], 1)
	scaler := map[string]any{"minReplicas": least, "maxReplicas": max(least, or(tree["autoscaleMax"], 5)),
		"targetCPU": or(cpu["targetAverageUtilization"], 80)}
	if behaviour, is := tree["autoscaleBehavior"].(map[string]any); is {
		down, _ := behaviour["scaleDown"].(map[string]any)
		scaler["stabilizationWindowSeconds"] = down["stabilizationWindowSeconds"]
	}
	d["autoscaling"] = scaler
	return d
}

// or returns v if v is an int. If not, it returns the second argument.
func or(v any, otherwise int) int {
	if n, is := v.(int); is {
		return n
	}
	return otherwise
}
