// Package schema checks objects of Istio's kinds against their CustomResourceDefinitions, with the API server's own
// code: structure, list types, CEL rules, unknown fields. The definitions are those of the module istio.io/api. The
// file istio.json.gz has them without descriptions.
//
// An API server with the same CustomResourceDefinitions performs all these checks before it calls a webhook. However,
// the definitions of a cluster may be older, and API servers have not checked objects in files.
//
// Owns: the compiled definitions. Reads: its arguments. Never: changes its arguments.
package schema

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed" // istio.json.gz
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"navarch.io/navarch/store/problem"
)

//go:embed istio.json.gz
var packed []byte

// Violation is one violation of a definition.
type Violation struct {
	Field   string       // path as users write it: spec.http[0].route[1].weight; empty: the object as a whole
	Code    problem.Code // Required, Duplicate or Internal; Invalid for all other violations
	Message string       // the API server's text without the path
}

// String returns "field: message", also for an empty field.
func (v Violation) String() string { return v.Field + ": " + v.Message }

// Definition is one schema of a kind. Versions lists the versions of the kind that have this schema. A Definition must
// not be modified. It is safe for concurrent use.
type Definition struct {
	Group, Kind, Plural string   // Plural is the name of the resource, in lower case
	Versions            []string // such as v1; at least one

	open    *apiextensionsv1.JSONSchemaProps
	compile func() compiled
}

// compiled is a compiled schema.
type compiled struct {
	structural *schema.Structural
	structure  *split
	rules      *cel.Validator // nil: the schema has no rules
	defaults   bool           // a field has a default value
	unique     bool           // elements of a list must be unique, as x-kubernetes-list-type demands
	err        error
}

// Istio returns the definitions of Istio's kinds. A kind has one definition for each different schema of its versions.
// Each definition is compiled when it is first used. The result is always the same and must not be modified. Istio is
// safe for concurrent use.
var Istio = sync.OnceValue(func() []*Definition {
	all, err := read(packed)
	if err != nil {
		panic(fmt.Sprintf("istio.json.gz: %v", err)) // unreachable: a test reads the file
	}
	return all
})

// Of returns the definition of a kind and version, or nil if there is no such kind or version.
func Of(group, version, kind string) *Definition {
	for _, d := range Istio() {
		if d.Group == group && d.Kind == kind && slices.Contains(d.Versions, version) {
			return d
		}
	}
	return nil
}

// Compile compiles all definitions, so that no request has to wait for their compilation. The error names the
// definition that does not compile. If ctx ends, Compile stops before the next definition and returns the error of ctx.
func Compile(ctx context.Context) error {
	for _, d := range Istio() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c := d.compile(); c.err != nil {
			return fmt.Errorf("%s of %s: %w", d.Kind, d.Group, c.err)
		}
	}
	return nil
}

func read(packed []byte) ([]*Definition, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		return nil, err
	}
	var crds []apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(text, &crds); err != nil {
		return nil, err
	}
	var all []*Definition
	for _, crd := range crds {
		bySchema := map[string]*Definition{}
		for _, v := range crd.Spec.Versions {
			key, err := json.Marshal(v.Schema)
			if err != nil {
				return nil, err
			}
			d := bySchema[string(key)]
			if d == nil {
				open := v.Schema.OpenAPIV3Schema
				d = &Definition{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind, Plural: crd.Spec.Names.Plural, open: open,
					compile: sync.OnceValue(func() compiled { return compile(open) })}
				bySchema[string(key)] = d
				all = append(all, d)
			}
			d.Versions = append(d.Versions, v.Name)
		}
	}
	return all, nil
}

func compile(open *apiextensionsv1.JSONSchemaProps) compiled {
	var c compiled
	internal := &apiextensions.JSONSchemaProps{}
	if c.err = apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(open, internal, nil); c.err != nil {
		return c
	}
	if c.structural, c.err = schema.NewStructural(internal); c.err != nil {
		return c
	}
	if c.structure, c.err = splitOf(internal); c.err != nil {
		return c
	}
	c.rules = cel.NewValidator(c.structural, true, celconfig.PerCallLimit)
	(&schema.Visitor{Structural: func(s *schema.Structural) (changed bool) {
		c.defaults = c.defaults || s.Default.Object != nil
		c.unique = c.unique || s.XListType != nil && *s.XListType != "atomic"
		return false
	}}).Visit(c.structural)
	return c
}

// Check returns the violations of the definition in an object; nil if the object is valid. Whole numbers in the object
// must be int64, as apimachinery decodes them. The object is not modified. Unknown fields are allowed, and the status
// is ignored. CEL rules are evaluated only if types, required fields, enumerated values and sizes are valid. A rule
// that is too expensive to evaluate is a violation, as in the API server. A definition that does not compile is one
// violation with the code problem.Internal. The result has at most MaxViolations. If the context ends, the result is
// incomplete and may be nil.
func (d *Definition) Check(ctx context.Context, object map[string]any) (wrong []Violation) {
	c := d.compile()
	if c.err != nil {
		return []Violation{{Code: problem.Internal, Message: "the definition of the kind does not compile: " + c.err.Error()}}
	}
	// The order of the steps is that of k8s.io/apiextensions-apiserver/pkg/registry/customresource/strategy.go.
	object = runtime.DeepCopyJSON(object)
	delete(object, "status") // API servers also drop the status at creation
	// Unlike PruneWithOptions, Prune does not collect the paths of unknown fields. Below a long key, the total size of
	// these paths is quadratic in the size of the object.
	pruning.Prune(object, c.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, c.structural)
	if c.defaults {
		defaulting.Default(object, c.structural)
	}
	all := c.structure.check(ctx, nil, object, nil)
	if c.unique && len(all) < MaxViolations {
		all = append(all, listtype.ValidateListSetsAndMaps(nil, c.structural, object)...)
	}
	if c.rules != nil && !blocks(all) && ctx.Err() == nil {
		of, _ := c.rules.Validate(ctx, nil, c.structural, object, nil, celconfig.RuntimeCELCostBudget)
		all = append(all, of...)
	}
	for _, e := range all[:min(len(all), MaxViolations)] {
		wrong = append(wrong, Violation{Field: path(e.Field), Code: code(e.Type),
			Message: strings.TrimPrefix(e.ErrorBody(), string(e.Type)+": ")})
	}
	return wrong
}

// Unknown returns the paths of the fields of an object that the definition lacks, sorted; nil without such fields. The
// object is not modified. The definition must compile (Compile). The total size of the paths may be quadratic in the
// size of the object, so Unknown is only for objects of trusted authors.
func (d *Definition) Unknown(object map[string]any) []string {
	return pruning.PruneWithOptions(runtime.DeepCopyJSON(object), d.compile().structural, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
}

// blocks reports whether the violations prevent the evaluation of rules, which expects correct types and bounded lists.
func blocks(all field.ErrorList) bool {
	return slices.ContainsFunc(all, func(e *field.Error) bool {
		return slices.Contains([]field.ErrorType{field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong,
			field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid}, e.Type)
	})
}

// path returns a field's path. It returns "" for "<nil>", the API server's text for the object as a whole.
func path(of string) string {
	if of == "<nil>" {
		return ""
	}
	return of
}

// codes maps types of errors to codes. Types that are not in the map become Invalid.
var codes = map[field.ErrorType]problem.Code{field.ErrorTypeRequired: problem.Required, field.ErrorTypeDuplicate: problem.Duplicate,
	field.ErrorTypeInternal: problem.Internal}

func code(of field.ErrorType) problem.Code { return cmp.Or(codes[of], problem.Invalid) }
