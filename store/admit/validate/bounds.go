package validate

import (
	"fmt"

	"navarch.io/navarch/store/problem"
)

// Bounds of lists that the CRDs do not bound, and whose elements take long to check.
const (
	maxPatches = 1024 // patches in one EnvoyFilter: 0.1 ms of processor time for each
	maxTags    = 4096 // tagOverrides in one Telemetry: 25 microseconds for each, in rules of the CRD
)

// beyond returns an error for an object that exceeds maxPatches or maxTags, and otherwise nil. The elements are counted
// before the object is validated.
func beyond(tree map[string]any, kind string) *Error {
	spec, _ := tree["spec"].(map[string]any)
	switch kind {
	case "EnvoyFilter":
		if patches := listOf(spec, "configPatches"); len(patches) > maxPatches {
			return &Error{Field: "spec.configPatches", Code: problem.Invalid,
				Message: fmt.Sprintf("has %d patches: at most %d may be in one EnvoyFilter, the others in more of them", len(patches), maxPatches)}
		}
	case "Telemetry":
		tags := 0
		for _, metrics := range listOf(spec, "metrics") {
			for _, override := range listOf(metrics, "overrides") {
				fields, _ := override.(map[string]any)
				of, _ := fields["tagOverrides"].(map[string]any)
				tags += len(of)
			}
		}
		if tags > maxTags {
			return &Error{Field: "spec.metrics", Code: problem.Invalid,
				Message: fmt.Sprintf("has %d tagOverrides: at most %d may be in one Telemetry, the others in more of them", tags, maxTags)}
		}
	}
	return nil
}

// listOf returns a list in a field of an object, or nil.
func listOf(object any, field string) []any {
	fields, _ := object.(map[string]any)
	list, _ := fields[field].([]any)
	return list
}
