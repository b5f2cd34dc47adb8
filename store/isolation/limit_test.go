package isolation

import (
	"testing"

	"navarch.io/navarch/store/model"
)

// A breach beyond the limit changes none of those before it.
func TestBreachesBeyondTheLimit(t *testing.T) {
	j := &evaluation{of: &model.Head{}}
	for range maxBreaches {
		j.report("spec.hosts", "is another's")
	}
	j.reportUnsure("spec.hosts", "may be another's")
	for i, b := range j.breaches {
		if b.Unsure || len(j.breaches) != maxBreaches {
			t.Errorf("breach %d of %d: %+v", i, len(j.breaches), b)
		}
	}
}
