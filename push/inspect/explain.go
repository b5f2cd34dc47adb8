package inspect

import (
	"fmt"
	"reflect"
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
			shown = append(shown, value(elements.Index(i)))
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
