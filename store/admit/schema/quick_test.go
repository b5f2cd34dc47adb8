package schema

import (
	"math/rand/v2"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

// Values that the quick form recognises are valid, and those that it refuses are invalid, by the API server's own
// validators. Most valid values are recognised.
// Promise: security-admission.md#expensive-objects
func TestQuickOutcomes(t *testing.T) {
	right, recognised, refused := 0, 0, 0
	for _, d := range Istio() {
		c := d.compile()
		if c.err != nil {
			t.Fatal(c.err)
		}
		whole := internalOf(t, d)
		property := whole.Properties["spec"]
		spec := c.structural.Properties["spec"]
		own := flat(&property)
		q := quickOf(own)
		if q == nil {
			t.Errorf("the spec of %s has no quick form", d.Kind)
			continue
		}
		validator, _, err := validation.NewSchemaValidator(own)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(1000) {
			value := drawn(rand.New(rand.NewPCG(seed, 1)), &spec)
			is := len(validation.ValidateCustomResource(nil, kruntime.DeepCopyJSONValue(value), validator)) == 0
			outcome := q.check(value)
			if outcome == valid && !is || outcome == invalid && is {
				t.Fatalf("%s, seed %d: outcome %d, valid %v: %v", d.Kind, seed, outcome, is, value)
			}
			if is {
				right++
			}
			switch outcome {
			case valid:
				recognised++
			case invalid:
				refused++
			case unsure:
			}
		}
	}
	if recognised < right/2 || refused < 100 {
		t.Errorf("of %d valid values %d are recognised, and %d values are refused", right, recognised, refused)
	}
}
