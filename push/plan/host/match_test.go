package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// A match is excluded for a proxy by its ports, gateways, labels and namespace.
func TestExcluded(t *testing.T) {
	service := func(text string) *model.VirtualService {
		vs := &model.VirtualService{Spec: &networkingv1.VirtualService{}}
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			err = protojson.Unmarshal(raw, vs.Spec)
		}
		if err != nil {
			t.Fatal(err)
		}
		return vs
	}
	vs := service(`
gateways: [mesh, shop/front]
http:
- match: [{port: 8080}, {gateways: [shop/front]}]
- match: [{gateways: [shop/front, mesh]}, {sourceLabels: {app: web, tier: x}}, {gateways: [mesh], sourceLabels: {app: api}}]
- match: [{sourceNamespace: ops}]
`)
	some := service(`http: [{match: [{port: 8080, sourceLabels: {app: web}}, {sourceNamespace: ops, gateways: [mesh]}]}, {match: [{gateways: [shop/front]}]}]`)
	type match struct{ rule, match int }
	for name, c := range map[string]struct {
		vs        *model.VirtualService
		port      uint32
		labels    []string
		namespace string
		want      []match
		applies   bool
	}{
		"plain":            {vs, 80, nil, "shop", []match{{rule: 0, match: 0}, {rule: 0, match: 1}, {rule: 1, match: 1}, {rule: 1, match: 2}, {rule: 2, match: 0}}, true},
		"port":             {vs, 8080, nil, "shop", []match{{rule: 0, match: 1}, {rule: 1, match: 1}, {rule: 1, match: 2}, {rule: 2, match: 0}}, true},
		"labels":           {vs, 80, []string{"app=web", "tier=x"}, "shop", []match{{rule: 0, match: 0}, {rule: 0, match: 1}, {rule: 1, match: 2}, {rule: 2, match: 0}}, true},
		"one label of two": {vs, 80, []string{"app=web"}, "shop", []match{{rule: 0, match: 0}, {rule: 0, match: 1}, {rule: 1, match: 1}, {rule: 1, match: 2}, {rule: 2, match: 0}}, true},
		"other label":      {vs, 80, []string{"app=api"}, "shop", []match{{rule: 0, match: 0}, {rule: 0, match: 1}, {rule: 1, match: 1}, {rule: 2, match: 0}}, true},
		"namespace":        {vs, 80, nil, "ops", []match{{rule: 0, match: 0}, {rule: 0, match: 1}, {rule: 1, match: 1}, {rule: 1, match: 2}}, true},
		"none":             {some, 8080, nil, "shop", []match{{rule: 0, match: 0}, {rule: 0, match: 1}, {rule: 1, match: 0}}, false},
		"none at the port": {some, 80, []string{"app=web"}, "shop", []match{{rule: 0, match: 0}, {rule: 0, match: 1}, {rule: 1, match: 0}}, false},
		"one":              {some, 8080, []string{"app=web"}, "shop", []match{{rule: 0, match: 1}, {rule: 1, match: 0}}, true},
		"without matches":  {service(`http: [{}]`), 1, nil, "", nil, true},
	} {
		table := &Table{key: view.Scope{Namespace: c.namespace}}
		rules, applies := table.applying(RulesFor(c.vs, virtualservice.Mesh), c.port, view.Inputs{Labels: strs.List(c.labels...)})
		var got []match
		for _, r := range rules.All() {
			for _, j := range r.Excluded.All() {
				got = append(got, match{r.Index, j})
			}
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(match{})); diff != "" || applies != c.applies {
			t.Errorf("%s: applies %v; %s", name, applies, diff)
		}
	}
}
