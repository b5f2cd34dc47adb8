package validate

import (
	"fmt"

	"navarch.io/navarch/store/problem"
)

// maxPatches is the maximum number of patches in one EnvoyFilter. The check of one patch takes 0.1 ms of processor
// time.
const maxPatches = 1024

// beyond returns an error for an EnvoyFilter with more than maxPatches patches, and otherwise nil. The CRD does not
// bound the patches, so they are counted before the object is validated.
func beyond(tree map[string]any, kind string) *Error {
	spec, _ := tree["spec"].(map[string]any)
	patches, _ := spec["configPatches"].([]any)
	if kind != "EnvoyFilter" || len(patches) <= maxPatches {
		return nil
	}
	return &Error{Field: "spec.configPatches", Code: problem.Invalid,
		Message: fmt.Sprintf("has %d patches: at most %d may be in one EnvoyFilter, the others in more of them", len(patches), maxPatches)}
}
