package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Input is one input of a resource: an object, a property of the proxy, or a decision of the plan.
type Input struct {
	// Field names the input in plain words: "service", "traffic policy", "port".
	Field string `json:"field"`
	// From is the source of the values. Values of FromObject are objects "Kind namespace/name", with the field if it is
	// known. Values of FromProxy are properties of the proxy. Values of FromPlan were computed by the plan.
	From   string   `json:"from"`
	Values []string `json:"values"`
}

// These are the values of Input.From.
const (
	FromObject = "object"
	FromProxy  = "proxy"
	FromPlan   = "plan"
)

// Inputs returns the fields of a Spec as inputs. A Spec is a struct of push/build from which a resource, or a part of
// one, is built. The argument is such a struct or a pointer to one. Empty fields are left out, except for some whose
// zero value is a decision of the plan. Fields are also left out if they are computed from an object that is in another
// field. If spec is not a struct, the result is one Input with the Field "value". The argument spec must not be nil.
func Inputs(spec any) []Input {
	var all []Input
	v := reflect.ValueOf(spec)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return []Input{{Field: "value", From: FromPlan, Values: values(reflect.ValueOf(spec))}}
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		shown := zeroIsShown(field.Name) && v.Field(i).Kind() != reflect.Struct
		if !field.IsExported() || v.Field(i).IsZero() && !shown || impliedByObject(v.Field(i)) {
			continue
		}
		if field.Anonymous { // an embedded struct with fields that several types of Specs share
			all = append(all, Inputs(v.Field(i).Interface())...)
			continue
		}
		if parts := partsOf(v.Field(i)); len(parts) > 0 {
			word, _ := wordOf(v.Type(), field.Name)
			all = append(all, inputsOf(word, parts)...)
			continue
		}
		if input, ok := inputOf(v, field, v.Field(i)); ok {
			all = append(all, input)
		}
	}
	return all
}

// inputOf returns the input of one field of a Spec. It returns false if the field has no values.
func inputOf(spec reflect.Value, field reflect.StructField, v reflect.Value) (Input, bool) {
	word, proxy := wordOf(spec.Type(), field.Name)
	in := Input{Field: word, From: FromPlan}
	if proxy {
		in.From = FromProxy
	}
	switch t := v.Interface().(type) {
	case *model.Mesh:
		in.From, in.Values = FromObject, meshValues(t)
		return in, true
	case model.Record:
		in.From, in.Values = FromObject, []string{t.Meta().Key.String() + fieldPath(spec, field.Name, t)}
		for _, key := range delegatesOf(t) {
			in.Values = append(in.Values, key.String())
		}
		return in, true
	case model.Patch, model.Place:
		in.From = FromObject
	}
	elements := elementsOf(v)
	if elements.IsValid() && elements.Len() > 0 {
		switch elements.Index(0).Interface().(type) {
		case model.Record, model.Patch, model.Place, extension.Filter:
			in.From = FromObject
		}
	}
	in.Values = values(v)
	return in, len(in.Values) > 0
}

// part is an element of a Spec's list that is a part of an object, for example a rule of a VirtualService.
type part interface {
	Object() model.Record      // returns the object
	Passed() (fields []string) // returns the fields of the part that do not apply
}

// partsOf returns the elements of a list of parts. For any other value it returns nil.
func partsOf(v reflect.Value) (parts []part) {
	elements := elementsOf(v)
	if !elements.IsValid() {
		return nil
	}
	for i := range elements.Len() {
		if p, is := elements.Index(i).Interface().(part); is {
			parts = append(parts, p)
		}
	}
	return parts
}

// inputsOf returns an Input with the objects of parts, each object once. If some fields of the parts do not apply, a
// second Input has these fields. The Field of the first Input is word.
func inputsOf(word string, parts []part) []Input {
	excluded, _ := wordOf(reflect.TypeOf(parts[0]), "Excluded")
	objects, passed := Input{Field: word, From: FromObject}, Input{Field: excluded, From: FromProxy}
	seen := map[model.Record]bool{}
	for _, p := range parts {
		if r := p.Object(); !seen[r] {
			seen[r] = true
			objects.Values = append(objects.Values, r.Meta().Key.String()+" spec.http")
			for _, key := range delegatesOf(r) {
				objects.Values = append(objects.Values, key.String())
			}
		}
		passed.Values = append(passed.Values, p.Passed()...)
	}
	if len(passed.Values) == 0 {
		return []Input{objects}
	}
	return []Input{objects, passed}
}

// impliedByObject reports whether a value is left out, because another field of the Spec has the object from which
// the value is computed.
func impliedByObject(v reflect.Value) bool {
	switch v.Interface().(type) {
	case traffic.Ref, *networkingv1.LoadBalancerSettings_ConsistentHashLB, *networkingv1.ConnectionPoolSettings:
		return true
	}
	return false
}

// elementsOf returns the elements of a list of store/intern as a slice. For any other value it returns the zero
// reflect.Value.
func elementsOf(v reflect.Value) reflect.Value {
	if all := v.MethodByName("All"); all.IsValid() && all.Type().NumIn() == 0 && all.Type().NumOut() == 1 {
		return all.Call(nil)[0]
	}
	return reflect.Value{}
}

// values returns the texts of one field. For a list it returns one text for each element, without empty texts.
func values(v reflect.Value) []string {
	elements := elementsOf(v)
	if !elements.IsValid() {
		return []string{value(v)}
	}
	var shown []string
	for i := range elements.Len() {
		if one := value(elements.Index(i)); one != "" {
			shown = append(shown, one)
		}
	}
	return shown
}

// value returns the text of one value.
func value(v reflect.Value) string {
	switch t := v.Interface().(type) {
	case model.Record:
		return model.Place{Key: t.Meta().Key}.String()
	case model.Key:
		return t.String()
	case model.Patch:
		return placeOf(t).String()
	case model.Member:
		workload := strings.TrimSuffix(t.Endpoint.Namespace+"/"+t.Endpoint.Workload, "/")
		return fmt.Sprintf("%s:%d (%s)", t.Endpoint.Address, t.Port, workload)
	case *xds.Fragment:
		return t.Name
	case xds.Caps:
		return capabilityNames(t)
	case model.Protocol:
		return strings.TrimPrefix(t.String(), "PROTOCOL_")
	case traffic.Localities:
		return localityText(t)
	case bool:
		return map[bool]string{true: "yes", false: "no"}[t]
	}
	if text, ok := choice(v); ok {
		return text
	}
	if v.Kind() == reflect.Struct {
		if text, ok := v.Interface().(fmt.Stringer); ok {
			return text.String()
		}
		var parts []string
		for _, input := range Inputs(v.Interface()) {
			parts = append(parts, input.Field+": "+strings.Join(input.Values, ", "))
		}
		return strings.Join(parts, "; ")
	}
	return fmt.Sprint(v.Interface())
}

// placeOf returns the EnvoyFilter and the field of a patch.
func placeOf(p model.Patch) model.Place {
	return model.Place{Key: p.Filter.Key, Field: fmt.Sprintf("spec.configPatches[%d]", p.Index)}
}

// delegatesOf returns the VirtualServices whose routes were merged into a record (push/resolve).
func delegatesOf(r model.Record) (keys []model.Key) {
	vs, ok := r.(*model.VirtualService)
	if !ok {
		return nil
	}
	for _, route := range vs.Spec.GetHttp() {
		if d := route.GetDelegate(); d != nil {
			key := model.Key{Kind: model.KindVirtualService, Namespace: d.GetNamespace(), Name: d.GetName(), Origin: vs.Key.Origin}
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// maxBlamed is the maximum number of objects that Blame returns.
const maxBlamed = 8

// Blame returns the objects from which Specs were made, the likeliest cause of a refusal first: patches of
// EnvoyFilters, then other configuration, then services and endpoints. The parameter text is the error of the refusal.
// If it contains the field Host of one or more Specs, only these Specs and the first Spec are examined. The mesh
// configuration is returned only if there is no other object. The result has at most 8 elements. It is nil if there are
// no objects. Blame does not change specs.
func Blame(specs []any, text string) []model.Place {
	if named := slices.DeleteFunc(slices.Clone(specs), func(spec any) bool { return !mentions(text, spec) }); len(named) > 0 {
		specs = append(named, specs[0])
	}
	ranked := map[model.Place]int{}
	for _, spec := range specs {
		collectObjects(reflect.ValueOf(spec), ranked)
	}
	places := slices.SortedFunc(maps.Keys(ranked), func(a, b model.Place) int {
		return cmp.Or(ranked[a]-ranked[b], strings.Compare(a.String(), b.String()))
	})
	if i := slices.IndexFunc(places, func(at model.Place) bool { return ranked[at] == lastRank }); i > 0 {
		places = places[:i]
	}
	return places[:min(len(places), maxBlamed)]
}

// Objects returns the keys of the objects from which Specs were made, each once, in no order. The endpoints of services
// are left out. The result is nil if there are no objects.
func Objects(specs []any) []model.Key {
	places, keys := map[model.Place]int{}, map[model.Key]bool{}
	for _, spec := range specs {
		collectObjects(reflect.ValueOf(spec), places)
	}
	for at := range places {
		keys[at.Key] = true
	}
	return slices.Collect(maps.Keys(keys))
}

// rank returns the position of a kind of objects among the likely causes of a refusal. The likeliest has rank 0.
func rank(k model.Kind) int {
	switch k {
	case model.KindEnvoyFilter:
		return 0
	case model.KindService, model.KindEndpoints:
		return 2
	case model.KindMesh:
		return lastRank
	default: // objects that users write by hand
		return 1
	}
}

// lastRank is the rank of the mesh configuration.
const lastRank = 3

// mentions reports whether a text contains the field Host of a Spec. It is false for a Spec without this field.
func mentions(text string, spec any) bool {
	v := reflect.ValueOf(spec)
	if v.Kind() != reflect.Struct {
		return false
	}
	host := v.FieldByName("Host")
	return host.IsValid() && host.Kind() == reflect.String && host.Len() > 0 && strings.Contains(text, host.String())
}

// collectObjects adds the objects in a value and in its fields to a map from objects to their ranks.
func collectObjects(v reflect.Value, into map[model.Place]int) {
	if !v.IsValid() || v.IsZero() {
		return
	}
	switch t := v.Interface().(type) {
	case model.Record:
		for _, key := range append(delegatesOf(t), t.Meta().Key) {
			into[model.Place{Key: key}] = rank(t.Meta().Key.Kind)
		}
		return
	case model.Patch:
		into[placeOf(t)] = rank(model.KindEnvoyFilter)
		return
	case model.Place:
		into[t] = rank(t.Key.Kind)
		return
	case model.Member:
		return // an endpoint is never the cause of a refusal
	}
	if elements := elementsOf(v); elements.IsValid() {
		for i := range elements.Len() {
			collectObjects(elements.Index(i), into)
		}
		return
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() {
			collectObjects(v.Field(i), into)
		}
	}
}
