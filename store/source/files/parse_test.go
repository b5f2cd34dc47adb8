//go:build !race

package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

func said(docs []doc) []string {
	var out []string
	for _, d := range docs {
		if d.wrong != "" {
			out = append(out, fmt.Sprintf("%s broken %v: %s", d.location, d.id, d.wrong))
		} else {
			out = append(out, fmt.Sprintf("%s %s %v", d.location, strings.TrimPrefix(d.object.ID.Group+"/"+d.object.Version, "/"), d.id))
		}
	}
	return out
}

// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		path, text string
		want       []string
	}{
		"several documents": {"a.yaml", "# first\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: b}\n---\n# only a comment\n---\n\n---\napiVersion: networking.istio.io/v1alpha3\nkind: Sidecar\nmetadata:\n  name: c\n...\n",
			[]string{"a.yaml#2 v1 Service b/a", "a.yaml#4 networking.istio.io/v1alpha3 Sidecar default/c"}},
		"cluster scope":                    {"a.yml", "apiVersion: v1\nkind: Node\nmetadata: {name: node, namespace: x}\n", []string{"a.yml#1 v1 Node node"}},
		"a separator inside text":          {"a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: |\n    a\n    ---\n    b\n", []string{"a.yaml#1 v1 ConfigMap default/a"}},
		"document on the separator's line": {"a.yaml", "--- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n---  # comment\n{apiVersion: v1, kind: Pod, metadata: {name: b}}", []string{"a.yaml#1 v1 Pod default/a", "a.yaml#2 v1 Pod default/b"}},
		"carriage returns":                 {"a.yaml", "apiVersion: v1\r\nkind: Pod\r\nmetadata: {name: a}\r\n---\r\napiVersion: v1\r\nkind: Pod\r\nmetadata: {name: b}\r\n", []string{"a.yaml#1 v1 Pod default/a", "a.yaml#2 v1 Pod default/b"}},
		"list":                             {"a.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n- {apiVersion: v1, kind: Pod}\n", []string{"a.yaml#1.items[0] v1 Pod default/a", "a.yaml#1.items[1] broken Pod in namespace default: metadata.name is missing"}},
		"JSON":                             {"a.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}} {"apiVersion":"v1","kind":"PodList","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}]}`, []string{"a.json#1 v1 Pod default/a", "a.json#2.items[0] v1 Pod default/b"}},
		"cut JSON":                         {"a.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}} {"apiVersion":"v1",`, []string{"a.json#1 v1 Pod default/a", "a.json#2 broken : is no JSON: unexpected EOF"}},
		"bad document among good": {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata:\n  name: p\n  namespace: s\nspec: [\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n",
			[]string{"a.yaml#1 v1 Pod default/a", "a.yaml#2 broken AuthorizationPolicy s/p: is no YAML: line 10", "a.yaml#3 v1 Pod default/b"}},
		"broken within braces": {"a.json", `{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","metadata":{"labels_":1,"namespace":"s","name":"p"},"spec":{`,
			[]string{"a.json#1 broken AuthorizationPolicy s/p: is no JSON"}},
		"a tab":                  {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: b\nspec:\n\tx: y\n", []string{"a.yaml#1 v1 Pod default/a", "a.yaml#2 broken Pod default/b: is no YAML: line 10: found character that cannot start any token (a tab: YAML is indented by spaces)"}},
		"a key twice":            {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, name: b}\n", []string{"a.yaml#1 broken Pod default/a: is no YAML: line 3: key \"name\" already set in map"}},
		"no kind":                {"a.yaml", "apiVersion: v1\nmetadata: {name: a}\n", []string{"a.yaml#1 broken  a: kind is missing"}},
		"no object":              {"a.yaml", "- a\n", []string{"a.yaml#1 broken : is no object but a YAML array"}},
		"a truth as name":        {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: y, namespace: s}\n", []string{"a.yaml#1 broken Pod in namespace s: metadata.name must be a string, not a bool (put it in quotes)"}},
		"labels of another type": {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {b: 1}}\n", []string{"a.yaml#1 broken Pod default/a: metadata.labels"}},
		"zeros":                  {"a.yaml", "apiVersion: v1\n\x00\x00", []string{"a.yaml#1 broken : the document has a NUL byte"}},
		"evil name":              {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: ../a}\n", []string{"a.yaml#1 broken Pod default/../a: metadata.name: \"../a\": a lowercase RFC 1123 subdomain"}},
		"the CA's own denial":    {"a.yaml", "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: 'navarch:denied-identities', namespace: b}\nspec: {}\n", []string{"a.yaml#1 broken AuthorizationPolicy b/navarch:denied-identities: metadata.name: \"navarch:denied-identities\": a lowercase RFC 1123 subdomain"}},
		"spaces and controls":    {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: \" \\e[1m\", namespace: b}\n", []string{"a.yaml#1 broken Pod b/ ?[1m: metadata.name: \" \\x1b[1m\": a lowercase"}},
		"capitals":               {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: A_b, namespace: b}\n", []string{"a.yaml#1 broken Pod b/A_b: metadata.name: \"A_b\": a lowercase"}},
		"service with a dot":     {"a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a.b, namespace: b}\n", []string{"a.yaml#1 broken Service b/a.b: metadata.name: \"a.b\": must not contain dots"}},
		"pod with a dot":         {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a.b, namespace: b}\n", []string{"a.yaml#1 v1 Pod b/a.b"}},
		"the name of the denied": {"a.yaml", "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: '" + model.DeniedName + "', namespace: istio-system}\n",
			[]string{"a.yaml#1 broken AuthorizationPolicy istio-system/" + model.DeniedName + ": metadata.name: \"" + model.DeniedName + "\": a lowercase RFC 1123 subdomain"}}, // the keyring's own, which denies revoked identities (store/normal, TestDenied)
		"role with a colon": {"a.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: 'system:A'}\n", []string{"a.yaml#1 rbac.authorization.k8s.io/v1 ClusterRole system:A"}},
		"evil namespace":    {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b/c}\n", []string{"a.yaml#1 broken Pod b/c/a: metadata.namespace: \"b/c\": a lowercase RFC 1123 label"}},
		"empty name":        {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: '', namespace: b}\n", []string{"a.yaml#1 broken Pod in namespace b: metadata.name is missing"}},
		"endless name":      {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: " + strings.Repeat("x", 300) + "}\n", []string{"a.yaml#1 broken Pod default/" + strings.Repeat("x", 253) + ": metadata.name: "}},
		"alias bomb":        {"a.yaml", bomb(), []string{"a.yaml#1 broken : the document has 90 aliases: too many for its size"}},
		"few aliases":       {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: &l {x: z}, annotations: *l}\n", []string{"a.yaml#1 v1 Pod default/a"}},
		"nested aliases": {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\ndata: " + nested(9, 1<<19) + "\n",
			[]string{"a.yaml#1 broken Pod default/a: the document has 9 aliases: it has more than 1048576 values, or texts as long as these"}},
		"many aliases": {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: &n a, labels: {x: " + strings.Repeat("x", 4000) + "}}\ndata: [" +
			strings.Repeat("*n , ", 20) + "]\n", []string{"a.yaml#1 v1 Pod default/a"}},
		"too large": {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\ndata: " + strings.Repeat("x", maxDocument), []string{"a.yaml#1 broken Pod default/a: the document has 4194"}},
	} {
		got := said(parse("", c.path, []byte(c.text)))
		ok := len(got) == len(c.want)
		for i := range got {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

// bomb is nine levels of ten aliases each.
func bomb() string {
	b := "a0: &a0 [x]\n"
	for i := 1; i <= 9; i++ {
		b += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return b
}

// nested returns lists in lists. Each list has the next one and an alias of it, so each alias doubles the innermost
// text of the given size.
func nested(aliases, size int) string {
	text := strings.Repeat("x", size)
	for i := range aliases {
		text = fmt.Sprintf("[&a%d %s, *a%d ]", i, text, i)
	}
	return text
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a: b\n---\nc: d\n", "apiVersion: v1\nkind: List\nitems: [{kind: Pod}]", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}{`, bomb(), "--- |\n ---\n", "\ufeff...\n--- a", "? [a]\n: b", "&a [*a]"} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, text string, asJSON bool) {
		path := map[bool]string{true: "a.json", false: "a.yaml"}[asJSON]
		docs := parse("", path, []byte(text))
		if !slices.Equal(said(docs), said(parse("", path, []byte(text)))) {
			t.Fatal("not a function")
		}
		for _, d := range docs {
			if d.wrong == "" && (d.id.Name == "" || d.id.Kind == "" || d.object.ID != d.id || !json.Valid(d.object.JSON)) {
				t.Fatalf("bad object: %+v", d)
			}
			if d.wrong == "" && d.id == (object.ID{}) {
				t.Fatal("an object without identity")
			}
		}
	})
}

// A JSON file that is certainly not an object is skipped, with a note. A possible remainder of an object is an error,
// and a file's previous objects stay.
func TestForeignJSON(t *testing.T) {
	for text, foreignly := range map[string]bool{
		`{"id": "sidecar~10.1.1.1~a.b~b.svc", "metadata": {"NAME": "a", "NAMESPACE": "b"}}`: true,
		`{}`:                          true,
		`[1, {"a": {"kind": "x"}}]`:   true,
		`"text"`:                      true,
		`{"kind": "Service"}`:         false,
		`{"Kind": "Service"}`:         false,
		`{"apiVersion": "v1"}`:        false,
		`{"spec": {}}`:                false,
		`{"metadata": {"name": "a"}}`: false,
		`[{"kind": "Service"}]`:       false,
	} {
		docs := parse("", "node.json", []byte(text))
		if len(docs) != 1 || docs[0].foreign != foreignly || (docs[0].wrong == "") != foreignly {
			t.Errorf("%s: %+v", text, docs)
		}
		if docs := parse("", "node.yaml", []byte(text)); docs[0].foreign || docs[0].wrong == "" {
			t.Errorf("YAML %s: %+v", text, docs)
		}
	}
	var skipped []string
	r := newReader("", 0)
	r.skipped = func(location string) { skipped = append(skipped, location) }
	read := func(text string) []object.Event {
		return r.step(time.Unix(1, 0), []reading{{path: "a.json", data: []byte(text)}}, true)
	}
	const service = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "b"}}`
	if events := read(`{"a": 1}`); len(events)+len(r.problems()) > 0 || len(skipped) != 1 || skipped[0] != "a.json#1" {
		t.Errorf("%v, %v, skipped %v", events, r.problems(), skipped)
	}
	if events := read(service); len(events) != 1 || events[0].Op != object.Put {
		t.Errorf("%v", events)
	}
	for i, text := range []string{`{"a": 2}`, `{"a": 3}`} { // the problem is reported once
		events := read(text)
		if problems := r.problems(); len(events) != 1-i || len(problems) != 1 || !strings.Contains(problems[0].Message, "is not a Kubernetes object any more") || len(r.emitted) != 1 {
			t.Errorf("%v, %v, emitted %v", events, problems, r.emitted)
		}
	}
}

// A JSON document is parsed as JSON, with the same result as for YAML; a text that is invalid as JSON is parsed as
// YAML, which reports the error.
func TestJSONComesToTheSame(t *testing.T) {
	for _, text := range []string{`{"a": 1, "b": [true, null, -1.5, "x\ty\u00e9", {"c": ""}]}`, ` {"a": {}} `, `{}`} {
		got, err := toJSON([]byte(text))
		asYAML, _ := yaml.YAMLToJSONStrict([]byte(text))
		var is, want any
		if err := errors.Join(err, json.Unmarshal(got, &is), json.Unmarshal(asYAML, &want)); err != nil || !reflect.DeepEqual(is, want) {
			t.Errorf("%s: %s, %v; as YAML %s", text, got, err, asYAML)
		}
	}
	for _, text := range []string{`{"a": 1, "a": 2}`, `{"a": {"b": 1, "b": 1}}`, "{\"a\": \"\xff\"}"} {
		if got, err := toJSON([]byte(text)); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func BenchmarkSliceAsJSON(b *testing.B) {
	var text strings.Builder
	text.WriteString(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"big"},"endpoints":[`)
	for i := range 1000 {
		fmt.Fprintf(&text, `{"addresses":["10.1.%d.%d"],"conditions":{"ready":true}},`, i/250, i%250)
	}
	data := []byte(strings.TrimSuffix(text.String(), ",") + "]}")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := toJSON(data); err != nil {
			b.Fatal(err)
		}
	}
}
