package patch

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

func routeYAML(t *testing.T, text string, into proto.Message) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// routePatches returns the patches of one EnvoyFilter, from the YAML of its configPatches.
func routePatches(t *testing.T, text string) []model.Patch {
	t.Helper()
	spec := &networkingv1.EnvoyFilter{}
	routeYAML(t, "configPatches: "+text, spec)
	r, err := model.New(model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	var out []model.Patch
	for i := range spec.ConfigPatches {
		out = append(out, model.Patch{Filter: r.(*model.EnvoyFilter), Index: i})
	}
	return out
}

func TestRouteSelectors(t *testing.T) {
	const rc = "applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE}"
	const vh = "applyTo: VIRTUAL_HOST, patch: {operation: MERGE}"
	const hr = "applyTo: HTTP_ROUTE, patch: {operation: ADD}"
	outbound := RouteConfig{Name: "80", Port: 80, Context: networkingv1.EnvoyFilter_SIDECAR_OUTBOUND}
	for _, c := range []struct {
		patch               string
		config, host, merge bool // for route configuration 80, virtual host a:80
	}{
		{rc, true, false, true},
		{vh, true, true, false},
		{hr, true, true, false},
		{"applyTo: CLUSTER, patch: {operation: MERGE}", false, false, false},
		{rc + ", match: {context: ANY}", true, false, true},
		{rc + ", match: {context: SIDECAR_OUTBOUND}", true, false, true},
		{rc + ", match: {context: SIDECAR_INBOUND}", false, false, false},
		{rc + ", match: {context: GATEWAY}", false, false, false},
		{rc + `, match: {routeConfiguration: {name: "80"}}`, true, false, true},
		{rc + `, match: {routeConfiguration: {name: "81"}}`, false, false, false},
		{rc + `, match: {routeConfiguration: {portNumber: 80, gateway: x/y}}`, true, false, true},
		{rc + `, match: {routeConfiguration: {portNumber: 81}}`, false, false, false},
		{vh + `, match: {routeConfiguration: {vhost: {name: "a:80"}}}`, true, true, false},
		{vh + `, match: {routeConfiguration: {vhost: {name: "b:80"}}}`, true, false, false},
		{hr + `, match: {routeConfiguration: {portNumber: 81, vhost: {name: "a:80"}}}`, false, false, false},
		{hr + `, match: {routeConfiguration: {vhost: {name: "a:80", route: {name: r}}}}`, true, true, false},
		{hr + `, match: {listener: {name: x}}`, true, true, false},
	} {
		p := routePatches(t, "[{"+c.patch+"}]")[0]
		got := []bool{RouteConfigMatches(p, outbound), VirtualHostMatches(p, outbound, "a:80"), MergesRouteConfig(p, outbound), AddsVirtualHost(p, outbound)}
		if diff := cmp.Diff([]bool{c.config, c.host, c.merge, false}, got); diff != "" {
			t.Errorf("%s: %s", c.patch, diff)
		}
	}
	p := routePatches(t, `[{applyTo: VIRTUAL_HOST, match: {context: SIDECAR_INBOUND}, patch: {operation: ADD}}]`)[0]
	inbound := RouteConfig{Name: "8080", Port: 8080, Context: networkingv1.EnvoyFilter_SIDECAR_INBOUND}
	if !AddsVirtualHost(p, inbound) || AddsVirtualHost(p, outbound) || VirtualHostMatches(p, inbound, "x") {
		t.Error("an ADD for inbound is an ADD there, and nothing else")
	}
	p = routePatches(t, "[{"+rc+", match: {context: GATEWAY}}]")[0]
	named := RouteConfig{Name: "inbound|x", Port: 80, Context: networkingv1.EnvoyFilter_GATEWAY}
	if MergesRouteConfig(p, outbound) || !MergesRouteConfig(p, named) {
		t.Error("the context is the route configuration's, whatever its name")
	}
}

// Route configurations of gateways are found by the bound port and by the servers', by the name of a server's port and
// by its Gateway; but only those of HTTPS, whose name has both.
func TestRouteSelectorsOfGateways(t *testing.T) {
	at := func(name string, port uint32, servers ...uint32) RouteConfig {
		return RouteConfig{Name: name, Port: port, Context: networkingv1.EnvoyFilter_GATEWAY, ServerPorts: ports.List(servers...)}
	}
	plain, secure := at("http.8080", 8080, 80, 81), at("https.443.web.gw.shop", 8443, 443)
	bound, dotted := at("https.443.web.gw.shop.10.0.0.1", 8443, 443), at("https.443.web.my.gw.shop", 8443, 443)
	for match, want := range map[string][4]bool{ // plain, secure, bound, dotted
		"":                             {true, true, true, true},
		"portNumber: 8080":             {true, false, false, false},
		"portNumber: 81":               {true, false, false, false},
		"portNumber: 443":              {false, true, true, true},
		"portNumber: 8443":             {false, true, true, true},
		"portNumber: 444":              {false, false, false, false},
		"portName: web":                {false, true, false, false},
		"portName: other":              {false, false, false, false},
		"gateway: shop/gw":             {false, true, false, false},
		"gateway: shop/other":          {false, false, false, false},
		"name: https.443.web.gw.shop":  {false, true, false, false},
		"portNumber: 443, portName: x": {false, false, false, false},
	} {
		match := "match: {context: GATEWAY, routeConfiguration: {" + match + "}}"
		p := routePatches(t, "[{applyTo: VIRTUAL_HOST, patch: {operation: MERGE}, "+match+"}]")[0]
		var got [4]bool
		for i, rc := range []RouteConfig{plain, secure, bound, dotted} {
			got[i] = RouteConfigMatches(p, rc) && VirtualHostMatches(p, rc, "a:80")
		}
		if got != want {
			t.Errorf("{%s}: %v, want %v", match, got, want)
		}
	}
}

var ports intern.Table[uint32]

const twoRoutes = `
name: a:80
domains: [a]
routes:
- {name: one, match: {prefix: /one}, route: {cluster: c, timeout: 1s}}
- {name: two, match: {prefix: /two}, redirect: {hostRedirect: h}}
- {name: three, match: {prefix: /}, directResponse: {status: 200}}
`

func TestApplyVirtualHost(t *testing.T) {
	const value = `value: {name: new, match: {prefix: /new}, directResponse: {status: 201}}`
	hr := func(op, match string) string {
		return "{applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {" + match + "}}}, patch: {operation: " + op + ", " + value + "}}"
	}
	vh := func(op, match, value string) string {
		return "{applyTo: VIRTUAL_HOST, match: {routeConfiguration: {vhost: {" + match + "}}}, patch: {operation: " + op + ", value: " + value + "}}"
	}
	for _, c := range []struct {
		name, patches string
		routes        []string
		domains       []string
	}{
		{"add", hr("ADD", ""), []string{"one", "two", "three", "new"}, nil},
		{"first", hr("INSERT_FIRST", ""), []string{"new", "one", "two", "three"}, nil},
		{"first where one matches", hr("INSERT_FIRST", "route: {name: two}"), []string{"new", "one", "two", "three"}, nil},
		{"first where none matches", hr("INSERT_FIRST", "route: {name: nix}"), []string{"one", "two", "three"}, nil},
		{"before", hr("INSERT_BEFORE", "route: {name: two}"), []string{"one", "new", "two", "three"}, nil},
		{"before by action", hr("INSERT_BEFORE", "route: {action: DIRECT_RESPONSE}"), []string{"one", "two", "new", "three"}, nil},
		{"before anything", hr("INSERT_BEFORE", ""), []string{"new", "one", "two", "three"}, nil},
		{"before what is not there", hr("INSERT_BEFORE", "route: {name: nix}"), []string{"one", "two", "three"}, nil},
		{"after", hr("INSERT_AFTER", "route: {action: ROUTE}"), []string{"one", "new", "two", "three"}, nil},
		{"after everything", hr("INSERT_AFTER", ""), []string{"one", "two", "three", "new"}, nil},
		{"remove", hr("REMOVE", "route: {action: REDIRECT}"), []string{"one", "three"}, nil},
		{"remove by both", hr("REMOVE", "route: {name: one, action: REDIRECT}"), []string{"one", "two", "three"}, nil},
		{"remove all", hr("REMOVE", ""), nil, nil},
		{"of another host", hr("REMOVE", `name: "b:80"`), []string{"one", "two", "three"}, nil},
		{"what is added is not removed", hr("ADD", "") + ", " + hr("REMOVE", "route: {name: new}"), []string{"one", "two", "three", "new"}, nil},
		{"later patches see earlier ones", hr("ADD", "") + ", " + hr("INSERT_BEFORE", "route: {name: new}"), []string{"one", "two", "three", "new", "new"}, nil},
		{"domains are added once", vh("MERGE", "", "{domains: [b, a]}"), []string{"one", "two", "three"}, []string{"a", "b"}},
		{"merge of another host", vh("MERGE", `name: "b:80"`, "{domains: [b]}"), []string{"one", "two", "three"}, []string{"a"}},
		{"replace", vh("REPLACE", "", "{name: x, domains: [x]}") + ", " + hr("ADD", "name: x"), []string{"new"}, []string{"x"}},
		{"bad values are left out", vh("MERGE", "", "{nonsense: 1}") + ", " + vh("REPLACE", "", "{name: x}") + ", " + vh("MERGE", "", `{routes: [{match: {prefix: /x}}]}`),
			[]string{"one", "two", "three"}, []string{"a"}},
		{"bad routes are left out", `{applyTo: HTTP_ROUTE, patch: {operation: ADD, value: {name: x}}}`, []string{"one", "two", "three"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &routev3.VirtualHost{}
			routeYAML(t, twoRoutes, in)
			out, _ := ApplyVirtualHost(in, routePatches(t, "["+c.patches+"]"))
			var names []string
			for _, r := range out.Routes {
				names = append(names, r.Name)
			}
			if diff := cmp.Diff(c.routes, names); diff != "" {
				t.Error(diff)
			}
			if c.domains != nil && !slices.Equal(c.domains, out.Domains) {
				t.Errorf("domains %v, want %v", out.Domains, c.domains)
			}
			if err := Check(out); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMergeRoute(t *testing.T) {
	in := &routev3.VirtualHost{}
	routeYAML(t, twoRoutes, in)
	out, _ := ApplyVirtualHost(in, routePatches(t, `[
	 {applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {name: "a:80", route: {name: one}}}}, patch: {operation: MERGE, value: {route: {timeout: 2.5s, prefix_rewrite: /x}}}},
	 {applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {action: REDIRECT}}}}, patch: {operation: MERGE, value: {redirect: {response_code: 99}}}}]`))
	a := out.Routes[0].GetRoute()
	if a.GetCluster() != "c" || a.GetTimeout().AsDuration().Seconds() != 2.5 || a.GetPrefixRewrite() != "/x" {
		t.Errorf("merged route %v", a)
	}
	if code := out.Routes[1].GetRedirect().GetResponseCode(); code != 0 {
		t.Errorf("a patch that Envoy would refuse was merged: %v", code)
	}
}

func TestRemoveVirtualHost(t *testing.T) {
	in := &routev3.VirtualHost{Name: "a:80", Domains: []string{"a"}}
	patches := routePatches(t, `[{applyTo: VIRTUAL_HOST, match: {routeConfiguration: {vhost: {name: "b:80"}}}, patch: {operation: REMOVE}}, {applyTo: VIRTUAL_HOST, match: {routeConfiguration: {vhost: {name: "a:80"}}}, patch: {operation: REMOVE}}]`)
	if left, _ := ApplyVirtualHost(in, patches[:1]); left == nil {
		t.Error("the wrong host was removed")
	}
	if left, _ := ApplyVirtualHost(in, patches); left != nil {
		t.Error("the host was not removed")
	}
}

func TestApplyRouteConfig(t *testing.T) {
	rc := &routev3.RouteConfiguration{Name: "80"}
	out, _ := ApplyRouteConfig(rc, routePatches(t, `[
	 {applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE, value: {name: other, response_headers_to_remove: [server]}}},
	 {applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE, value: {nonsense: 1}}},
	 {applyTo: ROUTE_CONFIGURATION, patch: {operation: REMOVE}},
	 {applyTo: HTTP_ROUTE, patch: {operation: MERGE, value: {internal_only_headers: [x]}}}]`))
	if out.Name != "80" || !slices.Equal(out.ResponseHeadersToRemove, []string{"server"}) || out.InternalOnlyHeaders != nil {
		t.Errorf("merged head %v", out)
	}
}
