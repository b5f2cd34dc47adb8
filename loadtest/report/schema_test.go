package report

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/loadtest/gauge"
)

var update = flag.Bool("update", false, "write schema.json again")

// schema describes a type as JSON Schema does (https://json-schema.org/draft/2020-12), from its json and doc tags.
func schema(t *testing.T, typ reflect.Type) map[string]any {
	switch typ {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[*gauge.Histogram]():
		return map[string]any{"type": "object", "required": []string{"count", "p50_ms", "p90_ms", "p99_ms", "last_ms", "buckets"}}
	case reflect.TypeFor[Better]():
		return map[string]any{"enum": []any{Less, More}}
	case reflect.TypeFor[Outcome]():
		return map[string]any{"enum": []any{Pass, Miss, None}}
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return schema(t, typ.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	case reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": schema(t, typ.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schema(t, typ.Elem())}
	case reflect.Struct:
		return object(t, typ)
	}
	t.Fatalf("%v has no place in a result", typ)
	return nil
}

func object(t *testing.T, typ reflect.Type) map[string]any {
	fields, required := map[string]any{}, []string{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || f.Tag.Get("doc") == "" {
			t.Fatalf("%v.%s: want a json and a doc tag", typ, f.Name)
		}
		one := schema(t, f.Type)
		one["description"] = f.Tag.Get("doc")
		fields[name] = one
		if options != "omitempty" {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": fields, "required": required, "additionalProperties": false}
}

// schema.json agrees with the types and contains the version, so that a change of the types without a new version is
// noticed.
func TestSchemaIsDocumented(t *testing.T) {
	want := schema(t, reflect.TypeFor[Result]())
	want["$schema"], want["title"] = "https://json-schema.org/draft/2020-12/schema", "Result of a Navarch load run"
	want["properties"].(map[string]any)["version"].(map[string]any)["const"] = Version
	raw, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, '\n')
	if *update {
		if err := os.WriteFile("schema.json", raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(raw) {
		t.Error("schema.json is not what the types say: raise Version where a reader could notice, and run go test -update")
	}
}

// Every field of a written result is defined in the schema.
func TestResultsAreOfTheSchema(t *testing.T) {
	raw, err := json.Marshal(example())
	if err != nil {
		t.Fatal(err)
	}
	var value, rules any
	have, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for into, from := range map[*any][]byte{&value: raw, &rules: have} {
		if err := json.Unmarshal(from, into); err != nil {
			t.Fatal(err)
		}
	}
	conforms(t, "result", value, rules.(map[string]any))
	delete(value.(map[string]any), "machine")
	value.(map[string]any)["extra"] = 1
	if n := faults("result", value, rules.(map[string]any)); len(n) != 2 {
		t.Errorf("a missing and an unknown field make %q", n)
	}
}

func conforms(t *testing.T, at string, value any, rules map[string]any) {
	t.Helper()
	for _, fault := range faults(at, value, rules) {
		t.Error(fault)
	}
}

// faults validates a value against the part of JSON Schema that the schema uses, and returns the violations.
func faults(at string, value any, rules map[string]any) (all []string) {
	if allowed, ok := rules["enum"].([]any); ok {
		for _, one := range allowed {
			if one == value {
				return nil
			}
		}
		return []string{at + ": not of the enumeration"}
	}
	switch rules["type"] {
	case "object":
		m, ok := value.(map[string]any)
		if !ok {
			return []string{at + ": no object"}
		}
		required, _ := rules["required"].([]any)
		for _, name := range required {
			if _, there := m[name.(string)]; !there {
				all = append(all, at+": without "+name.(string))
			}
		}
		known, _ := rules["properties"].(map[string]any)
		for name, v := range m {
			switch more := rules["additionalProperties"].(type) {
			case map[string]any:
				all = append(all, faults(at+"."+name, v, more)...)
			case bool:
				if known[name] == nil {
					all = append(all, at+": unknown field "+name)
				} else {
					all = append(all, faults(at+"."+name, v, known[name].(map[string]any))...)
				}
			}
		}
	case "array":
		list, ok := value.([]any)
		if !ok {
			return []string{at + ": no array"}
		}
		for _, v := range list {
			all = append(all, faults(at+"[]", v, rules["items"].(map[string]any))...)
		}
	case "string":
		if _, ok := value.(string); !ok {
			all = append(all, at+": no string")
		}
	case "boolean":
		if _, ok := value.(bool); !ok {
			all = append(all, at+": no boolean")
		}
	default:
		if _, ok := value.(float64); !ok {
			all = append(all, at+": no number")
		}
	}
	return all
}
