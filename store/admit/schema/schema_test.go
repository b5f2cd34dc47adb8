package schema

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/problem"
)

var update = flag.Bool("update", false, "write istio.json.gz from the module istio.io/api")

// istio.json.gz has the definitions of the module istio.io/api, without their descriptions: go test
// ./store/admit/schema -update.
func TestDefinitionsAreTheModules(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "kubernetes", "customresourcedefinitions.gen.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var tree any
		if err := yaml.Unmarshal(document, &tree); err != nil {
			t.Fatal(err)
		}
		if tree != nil {
			all = append(all, withoutDescriptions(tree))
		}
	}
	want, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		var out bytes.Buffer
		w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // a level that there is
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("istio.json.gz", out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("istio.json.gz is not what the module has: go test ./store/admit/schema -update")
	}
}

func withoutDescriptions(v any) any {
	switch t := v.(type) {
	case map[string]any:
		for name, of := range t {
			if _, is := of.(string); is && name == "description" {
				delete(t, name)
				continue
			}
			t[name] = withoutDescriptions(of)
		}
	case []any:
		for i := range t {
			t[i] = withoutDescriptions(t[i])
		}
	}
	return v
}

// Every definition compiles, and each kind has the versions that Istio serves.
func TestCompile(t *testing.T) {
	if err := Compile(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"networking.istio.io/v1alpha3/EnvoyFilter", "networking.istio.io/v1/VirtualService", "networking.istio.io/v1beta1/VirtualService",
		"networking.istio.io/v1alpha3/VirtualService", "security.istio.io/v1/AuthorizationPolicy", "telemetry.istio.io/v1/Telemetry"} {
		at := strings.Split(of, "/")
		if Of(at[0], at[1], at[2]) == nil {
			t.Errorf("%s is not there", of)
		}
	}
	if d := Of("networking.istio.io", "v2", "VirtualService"); d != nil {
		t.Errorf("version v2 is there: %+v", d)
	}
	if len(Istio()) != 15 {
		t.Errorf("%d kinds, each with one schema: want 15", len(Istio()))
	}
}

// Objects that the API server refuses are found with path and code, others pass. No object is changed.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct{ spec, wrong, unknown string }{
		"good":              {`{"host": "a", "subsets": [{"name": "x"}]}`, "", ""},
		"a type":            {`{"host": 7}`, "spec.host Invalid", ""},
		"required":          {`{"host": "a", "subsets": [{"labels": {"a": "b"}}]}`, "spec.subsets[0].name Required", ""},
		"an enumeration":    {`{"host": "a", "trafficPolicy": {"loadBalancer": {"simple": "FIRST"}}}`, "spec.trafficPolicy.loadBalancer.simple Invalid", ""},
		"a CEL rule":        {`{"host": "a", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "1us"}}}}`, "spec.trafficPolicy.connectionPool.tcp.connectTimeout Invalid", ""},
		"an unknown field":  {`{"host": "a", "hots": "b"}`, "", "spec.hots"},
		"none of one of":    {`{"host": "a", "trafficPolicy": {"loadBalancer": {"simple": "RANDOM", "consistentHash": {"useSourceIp": true}}}}`, "spec.trafficPolicy.loadBalancer", ""},
		"not null":          {`{"host": null}`, "spec.host Required", ""},
		"null, not there":   {`{"host": "a", "exportTo": null}`, "", ""},
		"deep and harmless": {`{"host": "a", "trafficPolicy": {"portLevelSettings": [{"port": {"number": 80}}]}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": {"name": "a", "namespace": "b"}, "spec": ` + c.spec + `}`
			object := map[string]any{}
			if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			before, _ := json.Marshal(object) // of JSON
			d := Of("networking.istio.io", "v1", "DestinationRule")
			wrong, unknown := d.Check(t.Context(), object), d.Unknown(object)
			got := ""
			for _, v := range wrong {
				got += v.Field + " " + string(v.Code) + " (" + v.Message + ") "
			}
			if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) || strings.Join(unknown, " ") != c.unknown {
				t.Errorf("wrong %q, unknown %q; want %q, %q", got, unknown, c.wrong, c.unknown)
			}
			if after, _ := json.Marshal(object); !bytes.Equal(before, after) {
				t.Errorf("the object was changed: %s", after)
			}
		})
	}
}

// Check runs the steps for default values and for lists of unique elements only for definitions that have such fields.
func TestStepsThatADefinitionNeeds(t *testing.T) {
	var unique, defaults []string
	for _, d := range Istio() {
		if d.compile().unique {
			unique = append(unique, d.Kind)
		}
		if d.compile().defaults {
			defaults = append(defaults, d.Kind)
		}
	}
	slices.Sort(unique)
	if want := []string{"ServiceEntry", "TrafficExtension", "WasmPlugin"}; !slices.Equal(unique, want) || defaults != nil {
		t.Errorf("lists of unique elements: %q, want %q; default values: %q, want none", unique, want, defaults)
	}
	entry := map[string]any{}
	text := `{"spec": {"hosts": ["a.b"], "ports": [{"name": "a", "number": 1}, {"name": "a", "number": 2}]}}`
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &entry); err != nil {
		t.Fatal(err)
	}
	wrong := Of("networking.istio.io", "v1", "ServiceEntry").Check(t.Context(), entry)
	if len(wrong) == 0 || wrong[0].Code != problem.Duplicate {
		t.Errorf("two ports of one name: %v", wrong)
	}
}
