package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Values translates settings into values of Navarch's chart. rest lists the settings that the values leave out: those
// that are reported, those without effect, and those that need a decision.
func Values(all []Setting) (values map[string]any, rest []Setting) {
	values = map[string]any{}
	scale := map[string]any{}
	for _, sort := range []Sort{Value, Environment, Flag} { // of two with one meaning istiod takes the later one, too
		for _, s := range all {
			switch {
			case s.Sort != sort:
			case s.Effect != ActedOn || s.raw == nil:
				rest = append(rest, s)
			case sort == Value && slices.ContainsFunc(scaling, s.under):
				set(scale, s.path, s.raw)
			case !s.carryInto(values):
				rest = append(rest, s)
			}
		}
	}
	if len(scale) > 0 {
		values["deployments"] = []any{deployment(scale)}
	}
	return values, rest
}

// under reports whether a setting is the one of a key, or below it. Parts of a value's path may contain dots themselves.
func (s Setting) under(key string) bool {
	parts := strings.Count(key, ".") + 1
	return below(key, s.Key) && (s.Sort != Value || len(s.path) >= parts && strings.Join(s.path[:parts], ".") == key)
}

// carryInto sets the values of the chart that have a setting's meaning; false: the chart has no such value.
func (s Setting) carryInto(values map[string]any) bool {
	if slices.ContainsFunc(byHand[s.Sort], s.under) {
		return false
	}
	best, rule := "", carry{}
	for key, c := range carried[s.Sort] {
		if s.under(key) && len(key) > len(best) {
			best, rule = key, c
		}
	}
	entry, reference := s.raw.(map[string]any)
	_, list := s.raw.([]any)
	switch {
	case list && s.Sort == Environment: // a variable is a scalar
		return false
	case best == "" && s.Sort == Environment && reference:
		before, _ := values["envVarFrom"].([]any)
		values["envVarFrom"] = append(before, entry)
		return true
	case best == "" && s.Sort == Environment:
		set(values, []string{"env", s.Key}, s.raw)
		return true
	case best == "" || s.Sort == Environment && reference:
		return false
	}
	if s.raw == "" && best == s.Key { // the default
		return true
	}
	v := s.raw
	if rule.as != nil {
		is := false
		if v, is = rule.as(v); !is {
			return false
		}
	}
	var rest []string
	if s.Sort == Value {
		rest = s.path[strings.Count(best, ".")+1:]
	}
	for _, path := range rule.to {
		set(values, append(strings.Split(path, "."), rest...), v)
	}
	return true
}

// set assigns a value at a path of a tree, and makes the maps that lead there.
func set(tree map[string]any, path []string, v any) {
	for _, key := range path[:len(path)-1] {
		next, is := tree[key].(map[string]any)
		if !is {
			next = map[string]any{}
			tree[key] = next
		}
		tree = next
	}
	tree[path[len(path)-1]] = v
}

// scaling lists the values that together describe the number and the size of replicas.
var scaling = []string{"autoscaleEnabled", "autoscaleMin", "autoscaleMax", "replicaCount", "resources", "cpu.targetAverageUtilization"}

// deployment builds an entry of the value deployments, with every role, from a tree of the values of scaling. Missing
// values have the defaults of istiod's chart.
func deployment(tree map[string]any) map[string]any {
	resources, _ := tree["resources"].(map[string]any)
	if resources == nil {
		resources = map[string]any{"requests": map[string]any{"cpu": "500m", "memory": "2048Mi"}}
	}
	d := map[string]any{"roles": []any{"ingest", "xds", "ca", "admit"}, "resources": resources}
	if enabled, is := truth(tree["autoscaleEnabled"]); is && enabled == false {
		d["replicas"] = number(tree["replicaCount"], 1)
		return d
	}
	requests, _ := resources["requests"].(map[string]any)
	limits, _ := resources["limits"].(map[string]any)
	if requests["cpu"] == nil && limits["cpu"] == nil { // autoscaling goes by a part of it
		set(resources, []string{"requests", "cpu"}, "500m")
	}
	cpu, _ := tree["cpu"].(map[string]any)
	least := number(tree["autoscaleMin"], 1)
	most := max(least, number(tree["autoscaleMax"], 5))
	d["autoscaling"] = map[string]any{"minReplicas": least, "maxReplicas": most, "targetCPU": number(cpu["targetAverageUtilization"], 80)}
	return d
}

// number parses a positive number; otherwise stands in for anything else.
func number(v any, otherwise int) int {
	if n, err := strconv.Atoi(fmt.Sprint(v)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// truth parses a boolean, which variables write as a text.
func truth(v any) (any, bool) {
	is, err := strconv.ParseBool(fmt.Sprint(v))
	return is, err == nil
}

// untruth parses a boolean and negates it.
func untruth(v any) (any, bool) {
	is, err := strconv.ParseBool(fmt.Sprint(v))
	return !is, err == nil
}

// seconds parses a duration of at least a second.
func seconds(v any) (any, bool) {
	d, err := time.ParseDuration(fmt.Sprint(v))
	return int(d.Seconds()), err == nil && d >= time.Second
}
