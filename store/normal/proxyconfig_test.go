package normal

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// A ProxyConfig that Istio's webhook refuses, or that no Pod could be created with, is refused.
func TestProxyConfig(t *testing.T) {
	for spec, want := range map[string][]string{
		`{concurrency: 0, environmentVariables: {A: b, "with.dots": ""}, image: {imageType: distroless}}`: nil,
		`{concurrency: -1}`:                                                {"spec.concurrency: -1|want 0 or more"},
		`{environmentVariables: {"A=B": c}}`:                               {`spec.environmentVariables: "A=B"|not a valid name`},
		`{environmentVariables: {"": c}}`:                                  {`spec.environmentVariables: ""|not a valid name`},
		`{environmentVariables: {A: "` + strings.Repeat("x", 2049) + `"}}`: {"spec.environmentVariables[A]: |2049 bytes"},
		`{image: {imageType: "debug:1"}}`:                                  {"spec.image.imageType: |not a valid suffix of an image tag"},
		`{selector: {}}`:                                                   {"warning spec.selector.matchLabels: is empty|"},
		`{selector: {matchLabels: {a: "*"}}}`:                              {"spec.selector.matchLabels: |wildcards"},
		`{concurrent: 1}`:                                                  {"warning spec.concurrent: unknown field|"},
	} {
		r := testNormal.Object(read(t, "apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\nmetadata: {name: p, namespace: shop}\nspec: "+spec), &fake{})
		wantProblems(t, r.Problems, want...)
		if r.Spoiled != (len(want) > 0 && !strings.HasPrefix(want[0], "warning")) {
			t.Errorf("%s: spoiled %v", spec, r.Spoiled)
		}
		if !r.Spoiled && (len(r.Records) != 1 || r.Records[0].Meta().Key.Kind != model.KindProxyConfig) {
			t.Errorf("%s: %v", spec, r.Records)
		}
	}
}

// Nested aliases in a Pod's annotation are not expanded.
func TestAliasesOfAPod(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d]\n"
	all := OfPod(map[string]string{"proxy.istio.io/config": bomb}, nil)
	if len(all) != 1 || !strings.Contains(all[0].Message, "more than 8192 values") {
		t.Errorf("%v", all)
	}
}
