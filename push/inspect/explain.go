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
		if !field.IsExported() || v.Field(i).IsZero() && !says(field.Name) || inRule(v.Field(i)) {
			continue
		}
		if field.Anonymous { // what all listeners have in common
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

// inputOf is one field of a Spec; false: there is nothing in it.
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
	elements := listed(v)
	if elements.IsValid() && elements.Len() > 0 {
		switch elements.Index(0).Interface().(type) {
		case model.Record, model.Patch, extension.Filter:
			in.From = FromObject
		}
	}
	in.Values = values(v)
	return in, len(in.Values) > 0
}

// part is an element of a Spec's list that is a part of an object.
type part interface {
	Object() model.Record
	Passed() (fields []string) // those of the part that do not count
}

// partsOf lists the elements of a list of parts; nil for any other value.
func partsOf(v reflect.Value) (parts []part) {
	elements := listed(v)
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

// inputsOf are the objects of parts, each once, and the fields that do not count.
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

// inRule says whether a value is what an object comes to that is named beside it.
func inRule(v reflect.Value) bool {
	switch v.Interface().(type) {
	case traffic.Ref, *networkingv1.LoadBalancerSettings_ConsistentHashLB, *networkingv1.ConnectionPoolSettings:
		return true
	}
	return false
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
		return model.Place{Key: t.Meta().Key}.String()
	case model.Key:
		return t.String()
	case model.Patch:
		return placeOf(t).String()
	case model.Member:
		return fmt.Sprintf("%s:%d (%s)", t.Endpoint.Address, t.Port, strings.TrimSuffix(t.Endpoint.Namespace+"/"+t.Endpoint.Workload, "/"))
	case *xds.Fragment:
		return t.Name
	case xds.Caps:
		return abilities(t)
	case model.Protocol:
		return strings.TrimPrefix(t.String(), "PROTOCOL_")
	case traffic.Localities:
		return preference(t)
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

// placeOf is where a patch stands.
func placeOf(p model.Patch) model.Place {
	return model.Place{Key: p.Filter.Key, Field: fmt.Sprintf("spec.configPatches[%d]", p.Index)}
}

// delegatesOf names the VirtualServices of which routes were merged into a record (push/resolve).
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

// maxBlamed bounds how many objects are named as the makers of one resource.
const maxBlamed = 8

// Blame names the objects that Specs depend on, the likeliest culprit of a refusal first: patches of EnvoyFilters, then
// what users write by hand, then services. Of a route configuration with many virtual hosts only those count that the
// refusal's text names, if it names any. The mesh's own configuration is named where there is nothing else. They are maxBlamed at most.
func Blame(specs []any, text string) []model.Place {
	if named := slices.DeleteFunc(slices.Clone(specs), func(spec any) bool { return !mentions(text, spec) }); len(named) > 0 {
		specs = append(named, specs[0])
	}
	ranked := map[model.Place]int{}
	for _, spec := range specs {
		blame(reflect.ValueOf(spec), ranked)
	}
	places := slices.SortedFunc(maps.Keys(ranked), func(a, b model.Place) int {
		return cmp.Or(ranked[a]-ranked[b], strings.Compare(a.String(), b.String()))
	})
	if i := slices.IndexFunc(places, func(at model.Place) bool { return ranked[at] == lastRank }); i > 0 {
		places = places[:i]
	}
	return places[:min(len(places), maxBlamed)]
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
func blame(v reflect.Value, into map[model.Place]int) {
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
