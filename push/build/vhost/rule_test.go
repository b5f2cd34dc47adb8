package vhost

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// whole is the fragment of a Spec, encoded as one message.
func whole(t testing.TB, s Spec) *xds.Fragment {
	t.Helper()
	vh := &routev3.VirtualHost{Name: xds.VirtualHost(s.Host, s.Port), Domains: slices.Clone(s.Domains.All()),
		Routes: newRouteBuilder(s).routes(), IncludeRequestAttemptCount: !s.Proxy.NoAttempts}
	vh, _ = patch.ApplyVirtualHost(vh, s.Patches.All())
	if vh == nil {
		return &xds.Fragment{}
	}
	f, err := xds.EncodeFragment(vh.Name, fieldVirtualHosts, vh)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// build returns the fragment of a Spec, and fails the test if its bytes differ from those of whole.
func build(t testing.TB, what string, s Spec) *xds.Fragment {
	t.Helper()
	f, err := s.Fragment()
	if err != nil {
		t.Fatal(err)
	}
	if want := whole(t, s); !bytes.Equal(f.Bytes, want.Bytes) || len(f.Bytes) > 0 && f.Hash != want.Hash {
		t.Errorf("%s: %d bytes, and as one message %d others", what, len(f.Bytes), len(want.Bytes))
	}
	return f
}

// manyRules is a VirtualService of n rules with three matches each; one rule has another timeout.
func manyRules(t testing.TB, n, edited int) *model.VirtualService {
	vs := &networkingv1.VirtualService{}
	for i := range n {
		rule := &networkingv1.HTTPRoute{}
		timeout := 1
		if i == edited {
			timeout = 2
		}
		fromYAML(t, fmt.Sprintf(`{name: r%d-%d, timeout: %ds, match: [{uri: {prefix: /a%d}}, {uri: {prefix: /b%d}, headers: {x: {exact: z}}}, {uri: {regex: "/c%d.*"}}],
			headers: {request: {set: {a: b, c: d}}}, route: [{destination: {host: h%d}}]}`, n, i, timeout, i, i, i, i%7), rule)
		vs.Http = append(vs.Http, rule)
	}
	return record[*model.VirtualService](t, model.KindVirtualService, "reviews", vs)
}

// Among 500 rules an edit of one encodes one, and another order encodes nothing. The same holds for patched virtual
// hosts and for further names of the host.
func TestRulesAreEncodedOneByOne(t *testing.T) {
	encodeOneByOne(t, 500, intern.List[model.Patch]{})
	encodeOneByOne(t, 20, patchList(t, `[{applyTo: HTTP_ROUTE, patch: {operation: MERGE, value: {response_headers_to_remove: [x]}}}]`))
}

func encodeOneByOne(t *testing.T, n int, patches intern.List[model.Patch]) {
	t.Helper()
	edited := func(rule int, change func(list []Rule) []Rule) Spec {
		s := specOf(manyRules(t, n, rule))
		s.Rules, s.Patches = rules.List(change(slices.Clone(s.Rules.All()))...), patches
		return s
	}
	as := func(list []Rule) []Rule { return list }
	named := edited(11, as)
	named.Host, named.Domains = "other", strs.List("other", "names")
	var held []*xds.Fragment
	for _, step := range []struct {
		what string
		spec Spec
		want int64
	}{
		{"at first", edited(-1, as), int64(n)},
		{"another record of the same rules", edited(-1, as), 0},
		{"an edit", edited(10, as), 1},
		{"another edit", edited(11, as), 1}, // and the other rule is as it was at first
		{"an order", edited(11, func(list []Rule) []Rule { slices.Reverse(list); return list }), 0},
		{"a rule less", edited(11, func(list []Rule) []Rule { return slices.Delete(list, 5, 6) }), 0},
		{"names", named, 0},
	} {
		before := encodedRules.Fragments()
		f := build(t, step.what, step.spec)
		if got := encodedRules.Fragments() - before; got != step.want {
			t.Errorf("%d rules, %s: %d are encoded, want %d", n, step.what, got, step.want)
		}
		held = append(held, f)
	}
	runtime.KeepAlive(held)
}

// The cache key of a rule's fragment contains all inputs of its routes: Specs that differ in one input have different
// fragments. Rules of several VirtualServices follow one another in the order of the Spec.
func TestRuleKeyIsComplete(t *testing.T) {
	const text = `
http:
- {name: one, match: [{uri: {prefix: /a}}, {port: 8080, uri: {exact: /p}}], fault: {abort: {httpStatus: 500, percentage: {value: 100}}},
   corsPolicy: {allowOrigins: [{exact: "http://a"}]}, route: [{destination: {host: a}}]}
- {name: two, match: [{uri: {prefix: /r}}], redirect: {derivePort: FROM_REQUEST_PORT, uri: /x}}
- {name: three, match: [{uri: {prefix: /w}}], route: [{destination: {host: a}, weight: 1}, {destination: {host: b}, weight: 2}], mirrors: [{destination: {host: m}}]}
- {name: four, match: [{uri: {prefix: /}}], route: [{destination: {host: nowhere}}]}`
	base := specOf(service(t, text))
	named := func(kind model.Kind, namespace, name string, s *networkingv1.VirtualService) *model.VirtualService {
		r, err := model.New(model.Key{Kind: kind, Namespace: namespace, Name: name}, 0, s)
		if err != nil {
			t.Fatal(err)
		}
		return r.(*model.VirtualService)
	}
	body := func() *networkingv1.VirtualService {
		return proto.CloneOf(base.Rules.All()[0].VirtualService.Spec)
	}
	mesh := &model.Mesh{Head: base.Mesh.Head, Spec: proto.CloneOf(base.Mesh.Spec)}
	mesh.Spec.DefaultHttpRetryPolicy = &networkingv1.HTTPRetry{Attempts: 7}
	destination := func(change func(d *Destination)) intern.List[Destination] {
		list := slices.Clone(base.Destinations.All())
		change(&list[0])
		return dests.List(list...)
	}
	dr := rule(t, "host: a\ntrafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}")
	excluded := func(of, match int) intern.List[Rule] {
		var indices intern.Table[int]
		list := slices.Clone(base.Rules.All())
		list[of].Excluded = indices.List(match)
		return rules.List(list...)
	}
	second := service(t, `http: [{name: five, match: [{uri: {prefix: /five}}], route: [{destination: {host: a}}]}]`)
	for name, change := range map[string]func(s *Spec){
		"port":           func(s *Spec) { s.Port = 8080 },
		"no fault":       func(s *Spec) { s.Caps &^= xds.CapFault },
		"no CORS":        func(s *Spec) { s.Caps &^= xds.CapCORS },
		"retries":        func(s *Spec) { s.Mesh = mesh },
		"forwarded host": func(s *Spec) { s.Proxy = proxyconfig.Routes{ForwardedHost: true} },
		"attempts":       func(s *Spec) { s.Proxy = proxyconfig.Routes{NoAttempts: true} },
		"name":           func(s *Spec) { s.Rules = rulesOf(named(model.KindVirtualService, "shop", "other", body())) },
		"namespace":      func(s *Spec) { s.Rules = rulesOf(named(model.KindVirtualService, "other", "reviews", body())) },
		"cluster":        func(s *Spec) { s.Destinations = destination(func(d *Destination) { d.Cluster.Host = "elsewhere" }) },
		"hash":           func(s *Spec) { s.Destinations = destination(func(d *Destination) { *d = hashed(*d, dr) }) },
		"first match":    func(s *Spec) { s.Rules = excluded(0, 0) },
		"second match":   func(s *Spec) { s.Rules = excluded(0, 1) },
		"catch-all":      func(s *Spec) { s.Rules = excluded(3, 0) },
		"several": func(s *Spec) {
			s.Rules = rules.List(slices.Concat(rulesOf(second).All(), s.Rules.All())...)
		},
		"catch-all before": func(s *Spec) {
			s.Rules = rules.List(slices.Concat(s.Rules.All(), rulesOf(second).All())...)
		},
		"patches": func(s *Spec) {
			s.Patches = patchList(t, `[{applyTo: VIRTUAL_HOST, patch: {operation: MERGE, value: {request_headers_to_remove: [x]}}},
				{applyTo: HTTP_ROUTE, patch: {operation: INSERT_FIRST, value: {name: mine, match: {path: /mine}, direct_response: {status: 299}}}}]`)
		},
		"removed": func(s *Spec) {
			s.Patches = patchList(t, `[{applyTo: VIRTUAL_HOST, patch: {operation: REMOVE}}]`)
		},
	} {
		held := build(t, "base", base)
		s := base
		change(&s)
		if f := build(t, name, s); f.Hash == held.Hash && name != "catch-all before" {
			t.Errorf("%s changes nothing: the test is of no use", name)
		}
		runtime.KeepAlive(held)
	}
	last := draw(t, base).Routes
	if n := len(last); n == 0 || !strings.HasPrefix(last[n-1].Name, "four") {
		t.Errorf("the virtual host ends with %v", last)
	}
}
