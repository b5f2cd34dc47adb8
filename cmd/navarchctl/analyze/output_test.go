package analyze

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
)

// hostile are findings whose texts try to forge lines and markup.
var hostile = []Finding{
	{Code: "IST0101", Severity: problem.Error, Object: "VirtualService shop/web", Field: "spec.hosts", Message: "host \"a\nError [IST0101] (x) forged\u202e\"", Place: Place{"dir/a b.yaml", 12}},
	{Code: "IST0131", Severity: problem.Info, Object: "VirtualService shop/<x>&", Message: "\x1b[31mred ]]> <b>\x00\ufffe"},
	{Code: "Unreadable", Severity: problem.Error, Message: "no object", Place: Place{"/abs.yaml", 0}},
	{Code: "NAV1001", Severity: problem.Warning, Object: "VirtualService shop/web", Message: "m", Place: Place{"-", 3}},
}

func TestTextIsOnOneLine(t *testing.T) {
	var out strings.Builder
	if err := WriteText(&out, hostile); err != nil {
		t.Fatal(err)
	}
	want := "Error [IST0101] (VirtualService shop/web dir/a b.yaml:12) spec.hosts: host \"a\\nError [IST0101] (x) forged\\u202e\"\n" +
		"Info [IST0131] (VirtualService shop/<x>&) \\x1b[31mred ]]> <b>\\x00\\ufffe\n" +
		"Error [Unreadable] (/abs.yaml) no object\n" +
		"Warning [NAV1001] (VirtualService shop/web -:3) m\n\n2 errors, 1 warning, 1 info.\n"
	if out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}

// SARIF has what readers require: its version, a rule for each result by index, levels, and relative URIs with lines.
func TestSARIF(t *testing.T) {
	for _, all := range [][]Finding{hostile, nil} {
		var out strings.Builder
		if err := WriteSARIF(&out, all); err != nil {
			t.Fatal(err)
		}
		var log map[string]any
		if err := json.Unmarshal([]byte(out.String()), &log); err != nil {
			t.Fatal(err)
		}
		run := log["runs"].([]any)[0].(map[string]any)
		rules := run["tool"].(map[string]any)["driver"].(map[string]any)["rules"].([]any)
		results := run["results"].([]any)
		if log["version"] != "2.1.0" || !strings.Contains(log["$schema"].(string), "sarif-2.1.0") || len(results) != len(all) {
			t.Fatalf("%s", out.String())
		}
		for i, r := range results {
			result := r.(map[string]any)
			rule := rules[int(result["ruleIndex"].(float64))].(map[string]any)
			text := result["message"].(map[string]any)["text"].(string)
			level := result["level"].(string)
			if rule["id"] != result["ruleId"] || rule["id"] != all[i].Code || !slices.Contains([]string{"error", "warning", "note"}, level) ||
				strings.ContainsAny(text, "\n\x1b\u202e\x00") || result["partialFingerprints"] == nil {
				t.Errorf("result %v of rule %v", result, rule)
			}
		}
	}
	var out strings.Builder
	_ = WriteSARIF(&out, hostile)
	for _, want := range []string{`"uri": "dir/a%20b.yaml"`, `"startLine": 12`, `"uri": "file:///abs.yaml"`, `"helpUri": "https://istio.io/latest/docs/reference/config/analysis/ist0101/"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), `"uri": "-"`) {
		t.Error("standard input has a URI")
	}
}

// JUnit's numbers are those of its cases; only findings at the threshold are failures, and the text is valid XML.
func TestJUnit(t *testing.T) {
	for threshold, failures := range map[problem.Severity]int{problem.Error: 2, problem.Warning: 3, problem.Info: 4} {
		var out strings.Builder
		if err := WriteJUnit(&out, hostile, threshold); err != nil {
			t.Fatal(err)
		}
		var suites junitSuites
		if err := xml.Unmarshal([]byte(out.String()), &suites); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, c := range suites.Suite.Cases {
			if c.Failure != nil {
				failed++
			}
		}
		suite := suites.Suite
		if suites.Tests != 4 || suites.Failures != failures || suite.Failures != failed || failed != failures || len(suite.Cases) != 4 {
			t.Errorf("%s: %s", threshold, out.String())
		}
		if strings.ContainsAny(out.String(), "\x1b\u202e\x00") {
			t.Errorf("unprintable: %q", out.String())
		}
	}
	var out strings.Builder
	if err := WriteJUnit(&out, nil, problem.Error); err != nil || !strings.Contains(out.String(), `tests="1" failures="0"`) {
		t.Errorf("%v: %s", err, out.String())
	}
}

// The line of a finding is that of its field, or of the closest part of the object that the file has.
func TestLines(t *testing.T) {
	const text = `# comment
kind: A
---
kind: B
metadata:
  annotations:
    sidecar.istio.io/inject: "false"
spec:
  http:
  - match: []
    route:
    - destination:
        host: a
  - {route: [{destination: {host: b}}]}
webhooks:
- name: x.istio.io
  clientConfig: {}
---
kind: List
items:
- kind: C
- kind: D
  spec: {a: 1}
`
	l := NewLines(func(path string) ([]byte, error) {
		if path != "a.yaml" {
			return nil, io.EOF
		}
		return []byte(text), nil
	})
	for _, c := range []struct {
		location, field string
		want            Place
	}{
		{"a.yaml#1", "", Place{"a.yaml", 2}},
		{"a.yaml#2", "", Place{"a.yaml", 4}},
		{"a.yaml#2", "spec.http[0].route[0].destination.host", Place{"a.yaml", 13}},
		{"a.yaml#2", "spec.http[1].route[0].destination.host", Place{"a.yaml", 14}},
		{"a.yaml#2", "spec.http[7].route", Place{"a.yaml", 9}},
		{"a.yaml#2", "spec.nothing", Place{"a.yaml", 8}},
		{"a.yaml#2", "metadata.annotations[sidecar.istio.io/inject]", Place{"a.yaml", 7}},
		{"a.yaml#2", "webhooks[x.istio.io].clientConfig.service", Place{"a.yaml", 17}},
		{"a.yaml#3.items[1]", "spec.a", Place{"a.yaml", 23}},
		{"a.yaml#9", "spec", Place{"a.yaml", 0}},
		{"b.yaml#1", "spec", Place{"b.yaml", 0}},
		{"a.yaml", "", Place{"a.yaml", 0}},
		{"", "spec", Place{}},
	} {
		got := []Finding{{Location: c.location, Field: c.field}}
		if l.Fill(got); got[0].Place != c.want {
			t.Errorf("%s, %s: %v, want %v", c.location, c.field, got[0].Place, c.want)
		}
	}
}

// A file is read and divided into documents once, also for findings about several documents.
func TestLinesReadAFileOnce(t *testing.T) {
	reads := 0
	l := NewLines(func(string) ([]byte, error) {
		reads++
		return []byte("a: 1\n---\nb: 2\n---\nc: 3\nd: 4\n"), nil
	})
	found := []Finding{{Location: "a.yaml#1", Field: "a"}, {Location: "a.yaml#3", Field: "d"}, {Location: "a.yaml#3"}}
	l.Fill(found)
	if found[0].Line != 1 || found[1].Line != 6 || found[2].Line != 5 || reads != 1 {
		t.Errorf("%v after %d readings", found, reads)
	}
}

// No document, and no path of fields, keeps a line from being found.
func FuzzLines(f *testing.F) {
	f.Add("a: [b, {c: &x 1}]\n---\nd: *x\n", "a[1].c")
	f.Add("{}", "[")
	f.Add("\r0", "0")
	f.Fuzz(func(t *testing.T, text, field string) {
		l := NewLines(func(string) ([]byte, error) { return []byte(text), nil })
		got := []Finding{{Location: "f.yaml#1", Field: field}, {Location: "f.json#1.items[0]", Field: field}}
		l.Fill(got)
		if got[0].Line < 0 || got[0].Line > len(text)+1 { // YAML has more line breaks than one
			t.Errorf("line %d of %d bytes", got[0].Line, len(text))
		}
	})
}

// Any objects are analyzed without a panic.
func FuzzAnalyze(f *testing.F) {
	f.Add("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: istio-proxy, image: auto}]}}")
	f.Add("{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {jobTemplate: {spec: {template: {spec: null}}}}}")
	f.Add("{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: a}, webhooks: [{name: istio.io, namespaceSelector: {matchExpressions: [{}]}}]}")
	f.Fuzz(func(t *testing.T, text string) {
		events, problems, err := files.ReadPaths([]string{files.Stdin}, strings.NewReader(text), files.Once{})
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range Run(Input{Events: events, Problems: problems}, config) {
			if strings.Contains(found.String(), "\n") {
				t.Errorf("two lines: %q", found)
			}
		}
	})
}

// A problem is attributed to the object with its name; Gateways of two groups have two names.
func TestReportedObjectsAreFoundByName(t *testing.T) {
	w := &world{byID: map[object.ID]*object.Object{}}
	for _, group := range []string{"networking.istio.io", object.GatewayAPI} {
		id := object.ID{Origin: Origin, Group: group, Kind: "Gateway", Namespace: "shop", Name: "edge"}
		w.byID[id] = &object.Object{ID: id}
	}
	for name, want := range map[string]string{"Gateway shop/edge": "networking.istio.io", "Gateway shop/none": ""} {
		if got := w.named(name); got.Group != want || got.Namespace != "shop" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
