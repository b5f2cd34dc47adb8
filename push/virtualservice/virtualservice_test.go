package virtualservice

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
)

func service(t *testing.T, text string) *model.VirtualService {
	t.Helper()
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

func TestDestinations(t *testing.T) {
	vs := service(t, `
http:
- route:
  - {destination: {host: b, subset: v2}, weight: 1}
  - {destination: {host: a}, weight: 1}
  mirror: {host: m}
  mirrors: [{destination: {host: a, port: {number: 90}}}, {destination: {host: m}}]
- directResponse: {status: 200}
- route: [{destination: {host: b, subset: v2}}, {destination: {host: b, subset: v1, port: {number: 90}}}]
tcp: [{route: [{destination: {host: c}}]}]
tls: [{route: [{destination: {host: d}}]}]
`)
	for i, want := range [][]Ref{{{"b", "v2", 0}, {"a", "", 0}, {"m", "", 0}, {"a", "", 90}}, nil, {{"b", "v2", 0}, {"b", "v1", 90}}} {
		if diff := cmp.Diff(want, Routed(vs.Spec.Http[i])); diff != "" {
			t.Errorf("rule %d: %s", i, diff)
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "d", "m"}, slices.Sorted(maps.Keys(Hosts(vs)))); diff != "" {
		t.Error(diff)
	}
}

// An empty value in a header operation replaces no host.
func TestSetHosts(t *testing.T) {
	vs := service(t, `
http:
- rewrite: {authority: c}
  headers: {request: {set: {Host: b, other: x}, add: {":authority": ""}}}
  route: [{destination: {host: d}, headers: {request: {set: {host: ""}, add: {":authority": a}}}}]
- route: [{destination: {host: d}, headers: {request: {set: {host: ""}}}}]
`)
	for i, want := range [][]string{{"a", "b", "c"}, nil} {
		if diff := cmp.Diff(want, SetHosts(vs.Spec.Http[i])); diff != "" {
			t.Errorf("rule %d: %s", i, diff)
		}
	}
}

func TestReads(t *testing.T) {
	vs := service(t, `
http:
- match: [{sourceLabels: {tier: x, app: web}}, {sourceLabels: {app: api}}, {gateways: [gw], sourceLabels: {edge: e}}]
  route: [{destination: {host: a}}]
`)
	for gateway, want := range map[string][]string{Mesh: {"app", "tier"}, "gw": {"edge"}, "other": nil} {
		if diff := cmp.Diff(want, RequestLabelKeys(vs, gateway)); diff != "" {
			t.Errorf("%s: %s", gateway, diff)
		}
	}
	if ReadsNamespace(vs) {
		t.Error("nothing reads a namespace")
	}
	for _, protocol := range []string{"http", "tcp", "tls"} {
		if !ReadsNamespace(service(t, protocol+`: [{match: [{port: 80}, {sourceNamespace: ops}]}]`)) {
			t.Error(protocol + ": sourceNamespace is read")
		}
	}
}

// A VirtualService without gateways applies to the mesh; the gateways of a match replace those of the VirtualService.
func TestGateways(t *testing.T) {
	without, with := service(t, "{}"), service(t, "gateways: [mesh, shop/front]")
	bound := service(t, "gateways: [shop/front]")
	for _, c := range []struct {
		vs      *model.VirtualService
		match   []string
		gateway string
		want    bool
	}{
		{without, nil, Mesh, true},
		{without, nil, "shop/front", false},
		{without, []string{"shop/front"}, "shop/front", true},
		{without, []string{"shop/front"}, Mesh, false},
		{with, nil, Mesh, true},
		{with, nil, "shop/front", true},
		{with, nil, "shop/back", false},
		{with, []string{Mesh}, "shop/front", false},
		{bound, nil, Mesh, false},
		{bound, nil, "shop/front", true},
		{bound, []string{Mesh}, Mesh, true},
	} {
		if got := MatchFor(c.vs, c.match, c.gateway); got != c.want {
			t.Errorf("a match for %v of a VirtualService for %v is for %s: %v", c.match, c.vs.Spec.GetGateways(), c.gateway, got)
		}
	}
}

// ClaimOf finds the first claim of a match: headers precede withoutHeaders, and malformed names are no claims.
func TestClaimOf(t *testing.T) {
	headers := func(names ...string) map[string]*networkingv1.StringMatch {
		all := map[string]*networkingv1.StringMatch{}
		for _, name := range names {
			all[name] = &networkingv1.StringMatch{}
		}
		return all
	}
	for _, c := range []struct {
		headers, without []string
		field, claim     string
	}{
		{nil, nil, "", ""},
		{[]string{"x-user"}, []string{"@request.auth.claimsy"}, "", ""},
		{[]string{"@request.auth.claims.b", "@request.auth.claims.a"}, []string{"@request.auth.claims.0"},
			"headers[@request.auth.claims.a]", "@request.auth.claims.a"},
		{[]string{"@request.auth.claims", "@request.auth.claims[]"}, []string{"@Request.Auth.claims[a][b]"},
			"withoutHeaders[@Request.Auth.claims[a][b]]", "@Request.Auth.claims[a][b]"},
	} {
		field, claim := ClaimOf(&networkingv1.HTTPMatchRequest{Headers: headers(c.headers...), WithoutHeaders: headers(c.without...)})
		if field != c.field || claim != c.claim {
			t.Errorf("%v, without %v: %q, %q", c.headers, c.without, field, claim)
		}
	}
}
