package status

import (
	"slices"
	"testing"

	"navarch.io/navarch/store/model"
)

// The status of each kind with a definition and records is written.
func TestStatusOfEveryKind(t *testing.T) {
	for _, k := range model.Kinds() {
		group, kind := k.Object()
		if model.Defined(group) && !slices.Contains(IstioKinds, Kind{Group: group, Kind: kind}) {
			t.Errorf("%s of %s is not among IstioKinds (istio.go)", kind, group)
		}
	}
}
