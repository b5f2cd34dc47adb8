package normal

import (
	"slices"
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"google.golang.org/protobuf/encoding/protojson"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// serviceEntryVisibility restricts an exportTo, and never extends it. Without applyToSidecars it has no effect, and a
// rule that cannot be parsed matches no namespace.
func TestVisibilityCapsExportTo(t *testing.T) {
	public := "{visibility: PUBLIC, matchingRules: [{namespaceSelector: {matchLabels: {egress: shared}}}]}"
	for _, c := range []struct {
		name, settings, labels, exportTo string
		want                             string
	}{
		{"no settings", "{}", "", `["*"]`, "*"},
		{"not for sidecars", "{defaultVisibility: NONE}", "", `["*"]`, "*"},
		{"nobody", "{applyToSidecars: true, defaultVisibility: NONE}", "", `["."]`, ""},
		{"its namespace", "{applyToSidecars: true, defaultVisibility: NAMESPACE}", "", `["*"]`, "shop"},
		{"its namespace among others", "{applyToSidecars: true, defaultVisibility: NAMESPACE}", "", `[other, "."]`, "shop"},
		{"its namespace, which does not see it", "{applyToSidecars: true, defaultVisibility: NAMESPACE}", "", `[other]`, ""},
		{"everybody does not widen", "{applyToSidecars: true, defaultVisibility: PUBLIC}", "", `["."]`, "shop"},
		{"nothing stated is everybody", "{applyToSidecars: true}", "", `["*"]`, "*"},
		{"a policy", "{applyToSidecars: true, defaultVisibility: NONE, policies: [" + public + "]}", "shared", `["*"]`, "*"},
		{"another label", "{applyToSidecars: true, defaultVisibility: NONE, policies: [" + public + "]}", "own", `["*"]`, ""},
		{"the first policy", "{applyToSidecars: true, policies: [{visibility: NAMESPACE}, " + public + "]}", "shared", `["*"]`, "shop"},
		{"a policy of nobody", "{applyToSidecars: true, defaultVisibility: PUBLIC, policies: [{visibility: NONE}]}", "shared", `["*"]`, ""},
		{"all rules", "{applyToSidecars: true, defaultVisibility: NONE, policies: [{visibility: PUBLIC, matchingRules: [{namespaceSelector: {}}, {namespaceSelector: {matchLabels: {a: b}}}]}]}",
			"shared", `["*"]`, ""},
		{"a rule without a selector", "{applyToSidecars: true, defaultVisibility: NONE, policies: [{visibility: PUBLIC, matchingRules: [{}]}]}", "shared", `["*"]`, ""},
		{"an unreadable one", "{applyToSidecars: true, defaultVisibility: NONE, policies: [{visibility: PUBLIC, matchingRules: [{namespaceSelector: {matchExpressions: [{key: egress, operator: Near}]}}]}]}",
			"shared", `["*"]`, ""},
		{"an expression", "{applyToSidecars: true, defaultVisibility: NONE, policies: [{visibility: PUBLIC, matchingRules: [{namespaceSelector: {matchExpressions: [{key: egress, operator: NotIn, values: [own]}]}}]}]}",
			"shared", `["*"]`, "*"},
	} {
		ctx := &fake{mesh: visibilityOf(t, c.settings), spaces: map[string]*Namespace{}}
		if c.labels != "" {
			ctx.spaces["shop"] = &Namespace{Labels: map[string]string{"egress": c.labels}}
		}
		result := New(Options{}).Object(read(t, istio("ServiceEntry", "{hosts: [a.example], resolution: DNS, ports: [{number: 80, name: http}], exportTo: "+c.exportTo+"}")), ctx)
		if len(result.Records) == 0 || !result.UsesMesh {
			t.Fatalf("%s: %+v", c.name, result)
		}
		spec := result.Records[0].(*model.Service).Spec
		if got := strings.Join(spec.ExportTo, ","); got != c.want {
			t.Errorf("%s: seen by %q, want %q", c.name, got, c.want)
		}
		if !slices.Contains(result.Refs, object.ID{Kind: "Namespace", Name: "shop"}) {
			t.Errorf("%s: does not refer to its Namespace", c.name)
		}
	}
}

// visibilityOf is a mesh configuration with these settings.
func visibilityOf(t *testing.T, settings string) *meshv1.MeshConfig {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("serviceEntryVisibility: " + settings))
	mesh := &meshv1.MeshConfig{}
	if err == nil {
		err = protojson.Unmarshal(text, mesh)
	}
	if err != nil {
		t.Fatal(err)
	}
	return mesh
}
