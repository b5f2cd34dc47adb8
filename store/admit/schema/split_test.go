package schema

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// drawn is a value of a schema that is right, or not, here and there.
func drawn(r *rand.Rand, s *schema.Structural) any {
	if r.IntN(12) == 0 {
		return []any{int64(-1), "", "x", true, map[string]any{}, []any{}, nil, 1.5}[r.IntN(8)]
	}
	if v := s.ValueValidation; v != nil && len(v.Enum) > 0 && r.IntN(4) > 0 {
		return v.Enum[r.IntN(len(v.Enum))].Object
	}
	switch s.Type {
	case "object":
		object := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if r.IntN(3) == 0 {
				property := s.Properties[name]
				object[name] = drawn(r, &property)
			}
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
			for i := range r.IntN(3) {
				object[fmt.Sprint("k", i)] = drawn(r, s.AdditionalProperties.Structural)
			}
		}
		return object
	case "array":
		list := []any{}
		for range r.IntN(3) {
			list = append(list, drawn(r, s.Items))
		}
		return list
	case "integer":
		return int64(r.IntN(100))
	case "number":
		return r.Float64()
	case "boolean":
		return true
	}
	return []string{"", "a", "a.example.com", "5s", "10.0.0.1"}[r.IntN(5)]
}

// internalOf is the schema of a definition, in the form that validators are made of.
func internalOf(t *testing.T, d *Definition) *apiextensions.JSONSchemaProps {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(d.open, internal, nil); err != nil {
		t.Fatal(err)
	}
	return internal
}

// The parts of a schema report the same violations as the whole.
// Promise: security-admission.md#expensive-objects
func TestSplitFindsTheSame(t *testing.T) {
	wrong := 0
	for _, d := range Istio() {
		c := d.compile()
		if c.err != nil {
			t.Fatal(c.err)
		}
		whole, _, err := validation.NewSchemaValidator(internalOf(t, d))
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(100) {
			object := drawn(rand.New(rand.NewPCG(seed, 0)), c.structural)
			texts := func(errs field.ErrorList) (all []string) {
				for _, e := range errs {
					if !strings.Contains(e.Detail, "must validate") && !strings.Contains(e.Detail, "Checked value") { // of alternatives the whole names no field
						all = append(all, e.Error())
					}
				}
				slices.Sort(all)
				return slices.Compact(all)
			}
			want := texts(validation.ValidateCustomResource(nil, kruntime.DeepCopyJSONValue(object), whole))
			got := texts(c.structure.check(t.Context(), nil, object, nil))
			if wrong += len(want); len(want) < MaxViolations && !slices.Equal(got, want) {
				t.Fatalf("%s, seed %d:\n%s\nwant\n%s", d.Kind, seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	if wrong < 1000 {
		t.Errorf("only %d errors were compared", wrong)
	}
}

// Of an object with very many errors a hundred are found, and as many more cost no more than reading them.
// Promise: security-admission.md#expensive-objects
func TestViolationsAreBounded(t *testing.T) {
	d := Of("networking.istio.io", "v1", "DestinationRule")
	took := func(n int) uint64 {
		subsets := make([]any, n)
		for i := range subsets {
			subsets[i] = map[string]any{"labels": map[string]any{"a": int64(1)}}
		}
		object := map[string]any{"spec": map[string]any{"host": "a", "subsets": subsets}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		wrong := d.Check(t.Context(), object)
		runtime.ReadMemStats(&after)
		if len(wrong) != MaxViolations {
			t.Errorf("%d errors of %d", len(wrong), n)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	took(2000)
	if some, many := took(2000), took(16_000); many > 12*some {
		t.Errorf("2,000 elements take %d bytes, 16,000 take %d", some, many)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if wrong := d.Check(gone, map[string]any{"spec": map[string]any{"subsets": []any{int64(1)}}}); len(wrong) > 0 {
		t.Error("nobody waits for it, and it is checked")
	}
}

// Unknown fields below a long key do not need memory for that key each.
func TestUnknownFieldsBelowLongKeys(t *testing.T) {
	d := Of("networking.istio.io", "v1", "VirtualService")
	d.compile()
	unknown := map[string]any{}
	for i := range 2000 {
		unknown[fmt.Sprint("u", i)] = int64(1)
	}
	match := map[string]any{"headers": map[string]any{strings.Repeat("k", 200_000): unknown}}
	object := map[string]any{"spec": map[string]any{"hosts": []any{"a"}, "http": []any{map[string]any{"match": []any{match}}}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d.Check(t.Context(), object)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 20<<20 {
		t.Errorf("checking takes %d bytes", took)
	}
}
