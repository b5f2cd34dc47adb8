package schema

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxViolations bounds the violations that Check returns for one object.
const MaxViolations = 100

// split is one part of a divided schema. A part covers the whole object, or one element of a list or map, without the
// elements of the lists and maps in it. The validators of kube-openapi compare each error with all earlier errors of
// the call (validate.Result.AddErrors). Each part is validated by a call of its own, so the comparisons stay few.
type split struct {
	validator validation.SchemaValidator // nil: the enclosing part validates the value
	quick     *quick                     // recognises most valid values; nil: none
	fields    map[string]*split          // fields with lists or maps somewhere below
	elements  *split                     // for elements of a list or values of a map; nil for other schemas
}

// splitOf divides a schema. An error means that a part does not compile.
func splitOf(s *apiextensions.JSONSchemaProps) (*split, error) {
	p, err := fieldsOf(s)
	if err != nil {
		return nil, err
	}
	own := flat(s)
	p.quick = quickOf(own)
	p.validator, _, err = validation.NewSchemaValidator(own)
	return p, err
}

func fieldsOf(s *apiextensions.JSONSchemaProps) (p *split, err error) {
	p = &split{fields: map[string]*split{}}
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		p.elements, err = splitOf(s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		p.elements, err = splitOf(s.AdditionalProperties.Schema)
	}
	if err != nil {
		return nil, err
	}
	for name := range s.Properties {
		property := s.Properties[name]
		below, bad := fieldsOf(&property)
		if bad != nil {
			return nil, bad
		}
		if len(below.fields) > 0 || below.elements != nil {
			p.fields[name] = below
		}
	}
	return p, nil
}

// flat returns a copy of a schema without the schemas of elements of its lists and maps.
func flat(s *apiextensions.JSONSchemaProps) *apiextensions.JSONSchemaProps {
	s = s.DeepCopy()
	s.Items = nil
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		s.AdditionalProperties = nil
	}
	for name, property := range s.Properties {
		s.Properties[name] = *flat(&property)
	}
	return s
}

// check appends the violations of a value to the given list. It checks no further part after the list has reached
// MaxViolations elements, or after the context has ended. The result may have more than MaxViolations elements.
func (p *split) check(ctx context.Context, at *field.Path, value any, all field.ErrorList) field.ErrorList {
	if len(all) >= MaxViolations || ctx.Err() != nil {
		return all
	}
	if p.validator != nil && !p.quick.fits(value) {
		for _, e := range validation.ValidateCustomResource(at, value, p.validator) {
			if _, said, names := strings.Cut(e.Detail, " in body"); names { // the path is relative to this part
				e.Detail = path(e.Field) + " in body" + said
			}
			all = append(all, e)
		}
	}
	switch v := value.(type) {
	case map[string]any:
		if p.elements == nil && len(p.fields) == 0 {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			below := p.fields[name]
			if below == nil {
				below = p.elements
			}
			if below != nil && len(all) < MaxViolations {
				all = below.check(ctx, child(at, name), v[name], all)
			}
		}
	case []any:
		for i := 0; p.elements != nil && i < len(v) && len(all) < MaxViolations; i++ {
			all = p.elements.check(ctx, at.Index(i), v[i], all)
		}
	}
	return all
}

// child returns the path of a field inside the value at the given path. The path nil stands for the object itself.
func child(at *field.Path, name string) *field.Path {
	if at == nil {
		return field.NewPath(name)
	}
	return at.Child(name)
}
