package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Input is one field of a Spec: what one resource depends on. Objects are named as users name them.
type Input struct {
	Field  string   `json:"field"`
	Values []string `json:"values"`
}

// Inputs takes a Spec apart. Since a Spec is the only argument of its builder, these are all the objects and facts that
// made the resource. Empty fields are left out.
func Inputs(spec any) []Input {
	var all []Input
	v := reflect.ValueOf(spec)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return []Input{{Field: "value", Values: values(reflect.ValueOf(spec))}}
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() || v.Field(i).IsZero() {
			continue
		}
		if field.Anonymous { // what all listeners have in common
			all = append(all, Inputs(v.Field(i).Interface())...)
			continue
		}
		if shown := values(v.Field(i)); len(shown) > 0 {
			all = append(all, Input{Field: field.Name, Values: shown})
		}
	}
	return all
}

// values prints one field: a list gives one value for each element.
func values(v reflect.Value) []string {
	if all := v.MethodByName("All"); all.IsValid() && all.Type().NumIn() == 0 && all.Type().NumOut() == 1 {
		var shown []string
		for elements, i := all.Call(nil)[0], 0; i < elements.Len(); i++ {
			if one := value(elements.Index(i)); one != "" {
				shown = append(shown, one)
			}
		}
		return shown
	}
	return []string{value(v)}
}

func value(v reflect.Value) string {
	switch t := v.Interface().(type) {
	case model.Record:
		return t.Meta().Key.String()
	case model.Key:
		return t.String()
	case model.Patch:
		return fmt.Sprintf("%s spec.configPatches[%d]", t.Filter.Key, t.Index)
	case model.Member:
		return fmt.Sprintf("%s:%d (%s/%s)", t.Endpoint.Address, t.Port, t.Endpoint.Namespace, t.Endpoint.Workload)
	case *xds.Fragment:
		return t.Name
	case xds.Caps:
		return fmt.Sprintf("%#x", uint64(t))
	}
	if v.Kind() == reflect.Struct {
		var parts []string
		for _, input := range Inputs(v.Interface()) {
			parts = append(parts, input.Field+"="+strings.Join(input.Values, ","))
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	return fmt.Sprint(v.Interface())
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
	}
	return 1
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
		into[t.Meta().Key.String()] = rank(t.Meta().Key.Kind)
		return
	case model.Patch:
		into[value(v)] = rank(model.KindEnvoyFilter)
		return
	case model.Member:
		return // where an endpoint is decides no refusal
	}
	if all := v.MethodByName("All"); all.IsValid() && all.Type().NumIn() == 0 && all.Type().NumOut() == 1 {
		for elements, i := all.Call(nil)[0], 0; i < elements.Len(); i++ {
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
