package validate

import (
	"fmt"

	"navarch.io/navarch/store/problem"
)

// maxPatches bounds the patches of one EnvoyFilter, each of which costs 0.1 ms of a processor to check.
const maxPatches = 1024

// beyond says that an object has more elements than its definition bounds and than are of use, before the object is
// looked at any further.
func beyond(tree map[string]any, kind string) *Error {
	spec, _ := tree["spec"].(map[string]any)
	patches, _ := spec["configPatches"].([]any)
	if kind != "EnvoyFilter" || len(patches) <= maxPatches {
		return nil
	}
	return &Error{Field: "spec.configPatches", Code: problem.Invalid,
		Message: fmt.Sprintf("has %d patches: at most %d may be in one EnvoyFilter, the others in more of them", len(patches), maxPatches)}
}
