package schema

import (
	"math"
	"slices"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
)

// quick recognises most valid values of one part of a schema (split). The validators of kube-openapi need about 5
// microseconds for each value, because they are created again for each field. They are called only for values that
// quick does not recognise.
type quick struct {
	kind          string // type of the schema; "": any
	intOrStr      bool
	properties    map[string]*quick
	required      []string
	values        []string // the enumerated strings; nil: any
	length, size  between  // of a string in characters, and of a list or map in elements
	number        between
	all, any, one []*quick
	not           *quick
}

// between is a range with both ends included.
type between struct{ least, most float64 }

func (b between) has(n float64) bool { return n >= b.least && n <= b.most }

// betweenOf returns the range of two optional bounds.
func betweenOf[N int64 | float64](least, most *N) between {
	b := between{math.Inf(-1), math.Inf(1)}
	if least != nil {
		b.least = float64(*least)
	}
	if most != nil {
		b.most = float64(*most)
	}
	return b
}

// quickOf returns the quick form of a schema without elements (flat). It returns nil if the schema has keywords that
// quick does not know, such as pattern. Values of such a part are not recognised.
func quickOf(s *apiextensions.JSONSchemaProps) *quick {
	q := &quick{kind: s.Type, intOrStr: s.XIntOrString, required: s.Required,
		length: betweenOf(s.MinLength, s.MaxLength), number: betweenOf(s.Minimum, s.Maximum), size: betweenOf(s.MinItems, s.MaxItems)}
	if s.Type == "object" {
		q.size = betweenOf(s.MinProperties, s.MaxProperties)
	}
	known := s.Pattern == "" && s.Ref == nil && s.Dependencies == nil && s.AdditionalItems == nil && s.PatternProperties == nil &&
		(s.Type != "" || s.MinProperties == nil && s.MaxProperties == nil) && !s.ExclusiveMaximum &&
		!s.ExclusiveMinimum && s.MultipleOf == nil && !s.UniqueItems && s.Items == nil &&
		(s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil && s.AdditionalProperties.Allows)
	switch s.Format {
	case "":
	case "int32":
		q.number = between{max(q.number.least, math.MinInt32), min(q.number.most, math.MaxInt32)}
	default:
		known = false
	}
	for _, of := range s.Enum {
		text, is := of.(string)
		q.values, known = append(q.values, text), known && is
	}
	below := func(schemas []apiextensions.JSONSchemaProps) (all []*quick) {
		for i := range schemas {
			one := quickOf(&schemas[i])
			all, known = append(all, one), known && one != nil
		}
		return all
	}
	q.all, q.any, q.one = below(s.AllOf), below(s.AnyOf), below(s.OneOf)
	if s.Not != nil {
		q.not = below([]apiextensions.JSONSchemaProps{*s.Not})[0]
	}
	q.properties = map[string]*quick{}
	for name := range s.Properties {
		property := s.Properties[name]
		if q.properties[name] = quickOf(&property); q.properties[name] == nil {
			q.properties[name] = unrecognised
		}
	}
	if !known {
		return nil
	}
	return q
}

// unrecognised is the quick form of a property that quickOf does not know. A value without the property may be valid.
var unrecognised = &quick{kind: "unrecognised"}

// outcome is the result of quick.check.
type outcome int

const (
	unsure outcome = iota // also an invalid value whose violations are not exactly known
	valid
	invalid
)

// fits reports whether a value is certainly valid.
func (q *quick) fits(value any) bool { return q != nil && q.check(value) == valid }

// check judges a value. Only values of the decoder's types are judged.
func (q *quick) check(value any) outcome {
	own := q.alone(value)
	if own != valid {
		return own
	}
	if q.not != nil {
		if v := q.not.check(value); v != invalid {
			return opposite(v)
		}
	}
	for _, one := range q.all {
		if v := one.check(value); v != valid {
			return v
		}
	}
	for i, alternatives := range [][]*quick{q.any, q.one} {
		if len(alternatives) == 0 {
			continue
		}
		fit := 0
		for _, one := range alternatives {
			switch one.check(value) {
			case valid:
				fit++
			case unsure:
				return unsure
			case invalid:
			}
		}
		if exactly := i == 1; fit == 0 || exactly && fit > 1 {
			return invalid
		}
	}
	return valid
}

func opposite(v outcome) outcome {
	if v == valid {
		return invalid
	}
	return unsure
}

// alone judges a value without the combinations of schemas.
func (q *quick) alone(value any) outcome {
	switch v := value.(type) {
	case map[string]any:
		return q.object(v)
	case []any:
		return judged((q.kind == "" || q.kind == "array") && q.size.has(float64(len(v))) && q.values == nil, q.kind == "array")
	case string:
		fits := (q.kind == "" && !q.intOrStr || q.kind == "string") && q.length.has(float64(utf8.RuneCountInString(v))) &&
			(q.values == nil || slices.Contains(q.values, v))
		return judged(fits, q.kind == "string")
	case bool:
		return judged((q.kind == "" || q.kind == "boolean") && q.values == nil, false)
	case int64:
		// Of larger numbers the validators compare rounded values.
		small := v > -1<<53 && v < 1<<53
		return judged(small && (q.kind == "integer" || q.kind == "number") && q.number.has(float64(v)) && q.values == nil, false)
	}
	return unsure
}

// judged returns valid for a value that fits. A value that does not fit is invalid if that is certain.
func judged(fits, certain bool) outcome {
	switch {
	case fits:
		return valid
	case certain:
		return invalid
	}
	return unsure
}

func (q *quick) object(v map[string]any) outcome {
	if q.kind != "" && q.kind != "object" || q.values != nil {
		return unsure
	}
	if q.kind != "" && !q.size.has(float64(len(v))) {
		return invalid
	}
	for _, name := range q.required {
		if _, has := v[name]; !has {
			return invalid
		}
	}
	for name, value := range v {
		if of := q.properties[name]; of != nil {
			if result := of.check(value); result != valid {
				return result
			}
		}
	}
	return valid
}
