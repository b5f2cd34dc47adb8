package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Input is one thing that a resource was made from.
type Input struct {
	// Field says what it is, in plain words: "service", "traffic policy", "port".
	Field string `json:"field"`
	// From says where it is from: "object", and the values are objects, "Kind namespace/name", with the field in them where it is
	// known; "proxy", it was read of the proxy; "plan", it was decided from these.
	From   string   `json:"from"`
	Values []string `json:"values"`
}

// Where an Input is from.
const (
	FromObject = "object"
	FromProxy  = "proxy"
	FromPlan   = "plan"
)

// Inputs takes a Spec apart. Since a Spec is the only argument of its builder, these are all the objects and facts that
// made the resource. Empty fields are left out.
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
		if !field.IsExported() || v.Field(i).IsZero() && !says(field.Name) {
			continue
		}
		if field.Anonymous { // what all listeners have in common
			all = append(all, Inputs(v.Field(i).Interface())...)
			continue
		}
		if input, ok := inputOf(v, field, v.Field(i)); ok {
			all = append(all, input)
		}
	}
	return all
}

// inputOf is one field of a Spec; false: there is nothing in it.
func inputOf(spec reflect.Value, field reflect.StructField, v reflect.Value) (Input, bool) {
	word, proxy := wordOf(spec.Type(), field.Name)
	in := Input{Field: word, From: FromPlan}
	if proxy {
		in.From = FromProxy
	}
	switch t := v.Interface().(type) {
	case *model.Mesh:
		in.From, in.Values = FromObject, meshValues(spec.Type(), t)
		return in, true
	case model.Record:
		in.From, in.Values = FromObject, append([]string{t.Meta().Key.String() + fieldPath(spec, field.Name, t)}, delegatesOf(t)...)
		return in, true
	case model.Patch:
		in.From = FromObject
	}
	elements := listed(v)
	if elements.IsValid() && elements.Len() > 0 {
		switch elements.Index(0).Interface().(type) {
		case model.Record, model.Patch:
			in.From = FromObject
		}
	}
	in.Values = values(v)
	return in, len(in.Values) > 0
}

// listed is the slice behind a list of store/intern; not valid for anything else.
func listed(v reflect.Value) reflect.Value {
	if all := v.MethodByName("All"); all.IsValid() && all.Type().NumIn() == 0 && all.Type().NumOut() == 1 {
		return all.Call(nil)[0]
	}
	return reflect.Value{}
}

// values prints one field: a list gives one value for each element.
func values(v reflect.Value) []string {
	elements := listed(v)
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

func value(v reflect.Value) string {
	switch t := v.Interface().(type) {
	case model.Record:
		return objectName(t)
	case model.Key:
		return t.String()
	case model.Patch:
		return fmt.Sprintf("%s spec.configPatches[%d]", t.Filter.Key, t.Index)
	case model.Member:
		return fmt.Sprintf("%s:%d (%s)", t.Endpoint.Address, t.Port, strings.TrimSuffix(t.Endpoint.Namespace+"/"+t.Endpoint.Workload, "/"))
	case *xds.Fragment:
		return t.Name
	case xds.Caps:
		return abilities(t)
	case model.Protocol:
		return strings.TrimPrefix(t.String(), "PROTOCOL_")
	case *networkingv1.LocalityLoadBalancerSetting:
		return preference(t)
	case bool:
		return map[bool]string{true: "yes", false: "no"}[t]
	}
	if text, ok := choice(v); ok {
		return text
	}
	if v.Kind() == reflect.Struct {
		var parts []string
		for _, input := range Inputs(v.Interface()) {
			parts = append(parts, input.Field+": "+strings.Join(input.Values, ", "))
		}
		return strings.Join(parts, "; ")
	}
	return fmt.Sprint(v.Interface())
}

// objectName is an object as users name it.
func objectName(r model.Record) string {
	if r.Meta().Key.Kind == model.KindMesh {
		return "MeshConfig"
	}
	return r.Meta().Key.String()
}

// delegatesOf names the VirtualServices of which routes were merged into a record (push/resolve).
func delegatesOf(r model.Record) (names []string) {
	vs, ok := r.(*model.VirtualService)
	if !ok {
		return nil
	}
	for _, route := range vs.Spec.GetHttp() {
		if d := route.GetDelegate(); d != nil {
			key := model.Key{Kind: model.KindVirtualService, Namespace: d.GetNamespace(), Name: d.GetName()}
			if name := key.String(); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// maxBlamed bounds how many objects are named as the makers of one resource.
const maxBlamed = 8

// Blame names the objects that Specs depend on, the likeliest culprit of a refusal first: patches of EnvoyFilters, then
// what users write by hand, then services. Of a route configuration with many virtual hosts only those count that the
// refusal's text names, if it names any. The mesh's own configuration is named where there is nothing else.
func Blame(specs []any, text string) []string {
	if named := slices.DeleteFunc(slices.Clone(specs), func(spec any) bool { return !mentions(text, spec) }); len(named) > 0 {
		specs = append(named, specs[0])
	}
	ranked := map[string]int{}
	for _, spec := range specs {
		blame(reflect.ValueOf(spec), ranked)
	}
	names := slices.SortedFunc(maps.Keys(ranked), func(a, b string) int {
		return cmp.Or(ranked[a]-ranked[b], strings.Compare(a, b))
	})
	if i := slices.IndexFunc(names, func(n string) bool { return ranked[n] == lastRank }); i > 0 {
		names = names[:i]
	}
	if more := len(names) - maxBlamed; more > 0 {
		names = append(names[:maxBlamed], fmt.Sprintf("and %d more", more))
	}
	return names
}

// rank is how likely an object of a kind is the culprit, 0 the most.
func rank(k model.Kind) int {
	switch k {
	case model.KindEnvoyFilter:
		return 0
	case model.KindService, model.KindEndpoints:
		return 2
	case model.KindMesh:
		return lastRank
	default: // what users write by hand
		return 1
	}
}

const lastRank = 3

// mentions says whether a text has the host of a virtual host's Spec in it.
func mentions(text string, spec any) bool {
	v := reflect.ValueOf(spec)
	if v.Kind() != reflect.Struct {
		return false
	}
	host := v.FieldByName("Host")
	return host.IsValid() && host.Kind() == reflect.String && host.Len() > 0 && strings.Contains(text, host.String())
}

// blame collects the objects below a value.
func blame(v reflect.Value, into map[string]int) {
	if !v.IsValid() || v.IsZero() {
		return
	}
	switch t := v.Interface().(type) {
	case model.Record:
		for _, name := range append(delegatesOf(t), objectName(t)) {
			into[name] = rank(t.Meta().Key.Kind)
		}
		return
	case model.Patch:
		into[value(v)] = rank(model.KindEnvoyFilter)
		return
	case model.Member:
		return // where an endpoint is decides no refusal
	}
	if elements := listed(v); elements.IsValid() {
		for i := range elements.Len() {
			blame(elements.Index(i), into)
		}
		return
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() {
			blame(v.Field(i), into)
		}
	}
}
