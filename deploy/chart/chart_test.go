package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/docs"
)

// property is the schema of a value in values.schema.json.
type property struct {
	Ref                                string `json:"$ref"`
	Type                               any
	Properties, PatternProperties      map[string]property
	Enum, Required                     []string
	AdditionalProperties               json.RawMessage
	Items                              *property
	Definitions                        map[string]property
	PropertyNames, OneOf, AnyOf, AllOf any
	Not                                any
}

// resolve replaces references to definitions, also below.
func (p property) resolve(definitions map[string]property) property {
	if name, is := strings.CutPrefix(p.Ref, "#/definitions/"); is {
		p = definitions[name]
	}
	properties := map[string]property{}
	for name, of := range p.Properties {
		properties[name] = of.resolve(definitions)
	}
	p.Properties = properties
	if p.Items != nil {
		items := p.Items.resolve(definitions)
		p.Items = &items
	}
	return p
}

// schema returns the properties in values.schema.json, by the path of the value.
func schema(t *testing.T) map[string]property { return wholeSchema(t).Properties }

func wholeSchema(t *testing.T) property {
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
	return root.resolve(root.Definitions)
}

// names are values whose keys are names of navarchd's flags or variables, not values of the chart.
var names = []string{"flags", "env"}

// foreign are values that are foreign objects, whose fields Kubernetes, Istio or a user's template defines.
var foreign = []string{"monitoring.scrapers[]", "volumes[]", "volumeMounts[]", "initContainers[]", "envVarFrom[].valueFrom", "meshConfig", "meshConfig.defaultProviders", "meshNetworks", "injection.values", "affinity", "tolerations[]", "deployments[].resources.claims[]", "etcd.own.resources.claims[]", "kek.kms.resources.claims[]"}

// Every value has a type, and every object refuses unknown fields. Exceptions are maps, whose values have a type, and
// foreign objects. The schema uses no keywords for which Helm reports a wrong key or none: a name that propertyNames
// refuses is printed with another path.
func TestSchemaIsClosed(t *testing.T) {
	var walk func(path string, p property)
	walk = func(path string, p property) {
		if p.Type == nil {
			t.Errorf("%s has no type", path)
		}
		if p.PropertyNames != nil || p.OneOf != nil || p.AnyOf != nil || p.AllOf != nil || p.Not != nil {
			t.Errorf("%s has a keyword whose errors name no key", path)
		}
		if p.Type == "object" && len(p.Properties) == 0 && len(p.AdditionalProperties) == 0 && !slices.Contains(foreign, path) {
			t.Errorf("%s takes anything", path)
		}
		if len(p.Properties) > 0 && string(p.AdditionalProperties) != "false" && !slices.Contains(foreign, path) && path != "env" {
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

// optional are values that templates do without: maps that may be empty, and what older charts do not have, which `helm
// upgrade --reuse-values` then leaves out.
var optional = []string{"etcd.own.resources", "etcd.own.snapshots.schedules", "monitoring.dashboards.labels", "monitoring.podMonitor", "writePolicies"}

// deep reports whether a default is more than the zero value of its type.
func deep(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return value != nil && value != "" && value != false && value != float64(0)
}

// values.yaml has exactly the values of the schema, with a comment before each group. A value with a default is
// required, so that Helm reports a null by name, before a template fails.
func TestValuesAreTheSchemas(t *testing.T) {
	text, err := os.ReadFile("values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	var same func(path string, tree map[string]any, of property)
	same = func(path string, tree map[string]any, of property) {
		for name, value := range tree {
			p, known := of.Properties[name]
			if !known {
				t.Errorf("the schema does not know %s%s", path, name)
			}
			if required := slices.Contains(of.Required, name); !required && deep(value) && !slices.Contains(slices.Concat(names, optional), path+name) {
				t.Errorf("the schema lets null take the default of %s%s away", path, name)
			}
			if below, is := value.(map[string]any); is && len(p.Properties) > 0 && !strings.HasSuffix(name, "resources") && !slices.Contains(slices.Concat(names, foreign), path+name) {
				same(path+name+".", below, p)
			}
		}
		for name := range of.Properties {
			if _, there := tree[name]; !there && path+name != "global" {
				t.Errorf("values.yaml has no %s%s", path, name)
			}
		}
	}
	same("", values, wholeSchema(t))
}

// A template reads every value of the schema: by its path, or as a part of the value around it (with, range, a
// variable, a function that receives its name).
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
			case "resources", "neverInjectSelector", "alwaysInjectSelector", "flags", "env", "envVarFrom", "meshConfig": // written as they are
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

// envVarFrom accepts the same variables as env.
func TestVariables(t *testing.T) {
	all := schema(t)
	if given, from := slices.Sorted(maps.Keys(all["env"].Properties)), all["envVarFrom"].Items.Properties["name"].Enum; !slices.Equal(given, from) || len(given) < 20 {
		t.Errorf("env takes %q,\nenvVarFrom %q", given, from)
	}
}

// Values of istiod's chart that have other names in this chart are refused with the command that translates them. None
// of these is a value of this chart.
func TestIstiodsValuesAreRefused(t *testing.T) {
	root := wholeSchema(t)
	refused := 0
	for pattern, p := range root.PatternProperties {
		for name := range strings.SplitSeq(strings.Trim(pattern, "^()$"), "|") {
			if _, ours := root.Properties[name]; ours || p.Ref != "#/definitions/istiods" {
				t.Errorf("%s: %+v", name, p)
			}
			refused++
		}
	}
	if refused < 40 {
		t.Errorf("%d names", refused)
	}
}

// Each size of the schema is in files/sizes.yaml. Its memory limits suffice for twice the size's proxies with one
// replica fewer. The page has the same numbers.
func TestSizes(t *testing.T) {
	text, err := os.ReadFile("files/sizes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var sizes map[string]struct {
		Idle, Proxy float64 // of a replica
		Proxies     int
		Deployments []struct {
			Roles       []string
			Replicas    int
			Autoscaling struct{ MinReplicas int }
			Resources   struct{ Requests, Limits map[string]string }
		}
	}
	if err := yaml.Unmarshal(text, &sizes); err != nil {
		t.Fatal(err)
	}
	if r := sizes["replica"]; r.Idle < 80e6 || r.Proxy < 80e3 {
		t.Errorf("a replica of %+v", r)
	}
	page, err := docs.Pages.ReadFile("installation.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range schema(t)["size"].Enum {
		var roles []string
		thousands := sizes[size].Proxies / 1000
		if row := fmt.Sprintf("| `%s` | %d,000 ", size, thousands); thousands == 0 || !strings.Contains(string(page), row) {
			t.Errorf("installation.md has no row %q", row)
		}
		for _, d := range sizes[size].Deployments {
			if roles = append(roles, d.Roles...); d.Resources.Limits["memory"] == "" || d.Resources.Requests["memory"] == "" {
				t.Errorf("%s: %v has no bound of memory", size, d.Roles)
			}
			if slices.Contains(d.Roles, "xds") {
				left := max(d.Replicas, d.Autoscaling.MinReplicas) - 1
				need := 2 * (sizes["replica"].Idle + sizes["replica"].Proxy*float64(sizes[size].Proxies)/float64(left))
				if limit := resource.MustParse(d.Resources.Limits["memory"]); left < 1 || limit.AsApproximateFloat64() < need {
					t.Errorf("%s: %d replicas with %s do not hold %d proxies, for which they need %.0f bytes", size, left, limit.String(), sizes[size].Proxies, need)
				}
			}
		}
		if slices.Sort(roles); !slices.Equal(roles, []string{"admit", "ca", "ingest", "xds"}) {
			t.Errorf("%s: roles %v", size, roles)
		}
	}
}
