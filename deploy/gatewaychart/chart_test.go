// Package gatewaychart tests the Helm chart for gateways in this folder.
//
// Owns: nothing.  Reads: the chart, .tools.  Never: a cluster.
package gatewaychart

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

// property is the part of values.schema.json about one value.
type property struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Properties           map[string]property
	Enum                 []any
	Required             []string
	AdditionalProperties json.RawMessage
	Items                *property
	Definitions          map[string]property
}

func schema(t *testing.T) property {
	t.Helper()
	text, err := os.ReadFile("values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root property
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	return root
}

// open lists the values whose fields are those of Kubernetes, and global, which Helm gives to all charts of a chart.
var open = []string{".securityContext", ".containerSecurityContext", ".autoscaling.autoscaleBehavior", ".strategy",
	".tolerations[]", ".topologySpreadConstraints[]", ".affinity", ".volumes[]", ".initContainers[]",
	".additionalContainers[]", ".volumeMounts[]", ".readinessProbe", ".lifecycle.postStart", ".lifecycle.preStop",
	".envVarFrom[].valueFrom", ".global"}

// Each value has a type, each object refuses unknown fields by name unless its fields are those of Kubernetes, and
// values.yaml has the same values, each of which a template reads.
func TestSchemaIsClosedAndComplete(t *testing.T) {
	root := schema(t)
	text, err := os.ReadFile("values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	templates := readTemplates(t)
	var walk func(path string, p property, value any)
	walk = func(path string, p property, value any) {
		if name, is := strings.CutPrefix(p.Ref, "#/definitions/"); is {
			p = root.Definitions[name]
		}
		kinds, _ := json.Marshal(p.Type) // a text or a list of texts
		if p.Type == nil {
			t.Errorf("%s has no type", path)
		}
		if strings.Contains(string(kinds), "object") && len(p.AdditionalProperties) == 0 && !slices.Contains(open, path) {
			t.Errorf("%s takes anything", path)
		}
		have, _ := value.(map[string]any)
		for name, below := range p.Properties {
			given, there := have[name]
			optional := slices.Contains([]string{".podDisruptionBudget", ".lifecycle"}, path) || strings.HasPrefix(path, ".networkGatewayPorts.")
			if !there && value != nil && !optional {
				t.Errorf("values.yaml has no %s.%s", path, name)
			}
			whole := slices.Contains([]string{".resources", ".lifecycle"}, path) || strings.Contains(path, "[]") // written as they are
			if !whole && !regexp.MustCompile(`[. $"]`+regexp.QuoteMeta(name)+`\b`).MatchString(templates) {
				t.Errorf("no template reads %s.%s", path, name)
			}
			walk(path+"."+name, below, given)
		}
		for name := range have {
			if _, known := p.Properties[name]; !known && string(p.AdditionalProperties) == "false" {
				t.Errorf("the schema does not know %s.%s", path, name)
			}
		}
		if p.Items != nil {
			walk(path+"[]", *p.Items, nil)
		}
	}
	walk("", root, values)
}

func readTemplates(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("templates/*")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
