package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// property is what values.schema.json says of a value.
type property struct {
	Type          any
	Properties    map[string]property
	PropertyNames struct {
		Enum    []string
		Pattern string
	}
	AdditionalProperties json.RawMessage
	MaxProperties        *int
	Items                *property
}

// schema is values.schema.json, by value.
func schema(t *testing.T) map[string]property {
	t.Helper()
	text, err := os.ReadFile("values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root property
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	if string(root.AdditionalProperties) != "false" {
		t.Error("the schema takes values that it does not know")
	}
	return root.Properties
}

// foreign are values that are objects of somebody else, whose fields Kubernetes, Istio or a template of the user's knows.
var foreign = []string{"meshConfig", "meshNetworks", "injection.values", "affinity", "tolerations[]", "deployments[].resources.claims[]", "etcd.own.resources.claims[]", "kek.kms.resources.claims[]"}

// Every value has a type, and every object refuses what it does not know, but for maps, whose values have a type, and objects of others.
func TestSchemaIsClosed(t *testing.T) {
	var walk func(path string, p property)
	walk = func(path string, p property) {
		if p.Type == nil {
			t.Errorf("%s has no type", path)
		}
		if p.Type == "object" && len(p.Properties) == 0 && len(p.AdditionalProperties) == 0 && p.MaxProperties == nil && !slices.Contains(foreign, path) {
			t.Errorf("%s takes anything", path)
		}
		if len(p.Properties) > 0 && string(p.AdditionalProperties) != "false" {
			t.Errorf("%s takes what it does not know", path)
		}
		for name, of := range p.Properties {
			walk(path+"."+name, of)
		}
		if p.Items != nil {
			walk(path+"[]", *p.Items)
		}
	}
	for name, p := range schema(t) {
		walk(name, p)
	}
}

// values.yaml has every value that the schema knows, each with a comment before its group, and none that it does not know.
func TestValuesAreTheSchemas(t *testing.T) {
	text, err := os.ReadFile("values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	var same func(path string, tree map[string]any, of map[string]property)
	same = func(path string, tree map[string]any, of map[string]property) {
		for name, value := range tree {
			p, known := of[name]
			if !known {
				t.Errorf("the schema does not know %s%s", path, name)
			}
			if below, is := value.(map[string]any); is && len(p.Properties) > 0 && !strings.HasSuffix(name, "resources") {
				same(path+name+".", below, p.Properties)
			}
		}
		for name := range of {
			if _, there := tree[name]; !there && path+name != "global" {
				t.Errorf("values.yaml has no %s%s", path, name)
			}
		}
	}
	same("", values, schema(t))
}

// A template reads every value that the schema knows: by its path, or within the value that it is in (with, range, a variable, a function that is given its name).
func TestValuesAreRead(t *testing.T) {
	files, err := filepath.Glob("templates/*")
	if err != nil {
		t.Fatal(err)
	}
	var templates strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		templates.Write(text)
	}
	var read func(parent string, of map[string]property)
	read = func(parent string, of map[string]property) {
		for name, p := range of {
			way := `\.` + parent + `\.` + name + `\b`
			switch parent {
			case "resources", "neverInjectSelector", "alwaysInjectSelector": // written as they are
				continue
			case "Values":
				way += `|\$v\.` + name + `\b`
			default:
				way += `|[ (]\.` + name + `\b|\$\w+\.` + name + `\b|\.entry\.` + name + `\b|"` + name + `"`
			}
			if name != "global" && !regexp.MustCompile(way).MatchString(templates.String()) {
				t.Errorf("no template reads %s.%s", parent, name)
			}
			read(name, p.Properties)
			if p.Items != nil {
				read(name, p.Items.Properties)
			}
		}
	}
	read("Values", schema(t))
}

// Each size that the schema knows is in files/sizes.yaml.
func TestSizes(t *testing.T) {
	text, err := os.ReadFile("files/sizes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var sizes map[string]struct {
		Deployments []struct {
			Roles     []string
			Resources struct{ Requests, Limits map[string]string }
		}
	}
	if err := yaml.Unmarshal(text, &sizes); err != nil {
		t.Fatal(err)
	}
	for _, size := range []string{"small", "medium", "large"} {
		var roles []string
		for _, d := range sizes[size].Deployments {
			if roles = append(roles, d.Roles...); d.Resources.Limits["memory"] == "" || d.Resources.Requests["memory"] == "" {
				t.Errorf("%s: %v has no bound of memory", size, d.Roles)
			}
		}
		if slices.Sort(roles); !slices.Equal(roles, []string{"admit", "ca", "ingest", "xds"}) {
			t.Errorf("%s: roles %v", size, roles)
		}
	}
}
