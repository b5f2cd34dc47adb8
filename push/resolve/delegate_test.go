package resolve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

var root = model.Key{Kind: model.KindVirtualService, Namespace: "a", Name: "root"}

// resolved returns the snapshot of the resolved records, and the problems of resolving them as texts.
func resolved(records ...model.Record) (*mirror.Snapshot, []string) {
	s, problems := Snapshot(mirror.Empty().Apply(1, records, nil).New)
	var out []string
	for _, p := range problems {
		out = append(out, fmt.Sprintf("%v: %s: %s", p.Key, p.Field, p.Message))
	}
	return s, out
}

// virtualService returns a VirtualService with one HTTP route for each line "name: route" in YAML.
func virtualService(t testing.TB, name, spec string) model.Record {
	t.Helper()
	namespace, short, _ := strings.Cut(name, "/")
	return record(t, model.Key{Kind: model.KindVirtualService, Namespace: namespace, Name: short}, spec)
}

const toLeaf = "delegate: {name: leaf, namespace: b}"

// A merged route combines the fields of the delegate's route and of the delegating route; contradictory matches leave
// it out.
func TestMergedRoutes(t *testing.T) {
	const to = "route: [{destination: {host: d}}]"
	for name, c := range map[string]struct{ root, leaf, want string }{
		"without matches":        {toLeaf, to, to},
		"the root's match":       {"match: [{uri: {prefix: /a}}], " + toLeaf, to, "match: [{uri: {prefix: /a}}], " + to},
		"the leaf's match":       {toLeaf, "match: [{uri: {regex: x}}], " + to, "match: [{uri: {regex: x}}], " + to},
		"narrower prefix":        {"match: [{uri: {prefix: /a}}], " + toLeaf, "match: [{uri: {prefix: /a/b}}], " + to, "match: [{uri: {prefix: /a/b}}], " + to},
		"exact below a prefix":   {"match: [{uri: {prefix: /a}}], " + toLeaf, "match: [{uri: {exact: /a/b}}], " + to, "match: [{uri: {exact: /a/b}}], " + to},
		"wider prefix":           {"match: [{uri: {prefix: /a/b}}], " + toLeaf, "match: [{uri: {prefix: /a}}], " + to, ""},
		"prefix under an exact":  {"match: [{uri: {exact: /a}}], " + toLeaf, "match: [{uri: {prefix: /a}}], " + to, ""},
		"the same exact":         {"match: [{uri: {exact: /a}}], " + toLeaf, "match: [{uri: {exact: /a}}], " + to, "match: [{uri: {exact: /a}}], " + to},
		"another exact":          {"match: [{method: {exact: GET}}], " + toLeaf, "match: [{method: {exact: PUT}}], " + to, ""},
		"regex":                  {"match: [{uri: {regex: x}}], " + toLeaf, "match: [{uri: {regex: x}}], " + to, ""},
		"ignored case":           {"match: [{uri: {prefix: /a}, ignoreUriCase: true}], " + toLeaf, "match: [{uri: {prefix: /a}}], " + to, ""},
		"ports":                  {"match: [{port: 80}], " + toLeaf, "match: [{port: 81}], " + to, ""},
		"labels":                 {"match: [{sourceLabels: {a: x}}], " + toLeaf, "match: [{sourceLabels: {a: z}}], " + to, ""},
		"more labels":            {"match: [{sourceLabels: {a: x}}], " + toLeaf, "match: [{sourceLabels: {b: z}}], " + to, "match: [{sourceLabels: {a: x, b: z}}], " + to},
		"namespaces":             {"match: [{sourceNamespace: n1}], " + toLeaf, "match: [{sourceNamespace: n2}], " + to, ""},
		"gateways":               {"match: [{gateways: [mesh, a/gw]}], " + toLeaf, "match: [{gateways: [b/gw]}], " + to, ""},
		"fewer gateways":         {"match: [{gateways: [mesh, a/gw]}], " + toLeaf, "match: [{gateways: [mesh]}], " + to, "match: [{gateways: [mesh]}], " + to},
		"headers of both":        {"match: [{headers: {x: {exact: v}}}], " + toLeaf, "match: [{headers: {h: {exact: v}}}], " + to, "match: [{headers: {x: {exact: v}, h: {exact: v}}}], " + to},
		"without what must be":   {"match: [{headers: {x: {exact: v}}}], " + toLeaf, "match: [{withoutHeaders: {x: {exact: w}}}], " + to, ""},
		"parameters":             {"match: [{queryParams: {x: {exact: v}}}], " + toLeaf, "match: [{queryParams: {x: {exact: w}}}], " + to, ""},
		"each with each":         {"match: [{port: 80}, {scheme: {exact: http}}], " + toLeaf, "match: [{name: m, uri: {exact: /}}, {port: 80}], " + to, "match: [{name: m, port: 80, uri: {exact: /}}, {name: m, scheme: {exact: http}, uri: {exact: /}}, {port: 80}, {port: 80, scheme: {exact: http}}], " + to},
		"one of two contradicts": {"match: [{port: 80}, {port: 81}], " + toLeaf, "match: [{port: 81}], " + to, "match: [{port: 81}], " + to},
		"a match of the leaf that contradicts both": {"match: [{port: 80}, {port: 81}], " + toLeaf, "match: [{port: 81}, {port: 82}], " + to, ""},
		"names":                 {"name: r, match: [{name: m, port: 80}], " + toLeaf, "name: l, match: [{name: k}], " + to, "name: r-l, match: [{name: m-k, port: 80}], " + to},
		"what the root says":    {"timeout: 1s, rewrite: {uri: /r}, retries: {attempts: 1}, fault: {abort: {httpStatus: 500}}, headers: {request: {remove: [x]}}, mirrors: [{destination: {host: m}}], corsPolicy: {maxAge: 1s}, " + toLeaf, to, "timeout: 1s, rewrite: {uri: /r}, retries: {attempts: 1}, fault: {abort: {httpStatus: 500}}, headers: {request: {remove: [x]}}, mirrors: [{destination: {host: m}}], corsPolicy: {maxAge: 1s}, " + to},
		"what the leaf says":    {"timeout: 1s, headers: {request: {remove: [x]}}, mirror: {host: m}, " + toLeaf, "timeout: 2s, headers: {response: {remove: [z]}}, mirror: {host: k}, " + to, "timeout: 2s, headers: {response: {remove: [z]}}, mirror: {host: k}, " + to},
		"redirects are its own": {"timeout: 1s, " + toLeaf, "redirect: {uri: /x}", "timeout: 1s, redirect: {uri: /x}"},
	} {
		t.Run(name, func(t *testing.T) {
			s, problems := resolved(virtualService(t, "a/root", "{hosts: [h], http: [{"+c.root+"}, {name: last, "+to+"}]}"), virtualService(t, "b/leaf", "http: [{"+c.leaf+"}]"))
			want := "{hosts: [h], http: [{" + c.want + ", " + toLeaf + "}, {name: last, " + to + "}]}"
			if c.want == "" {
				want = "{hosts: [h], http: [{name: last, " + to + "}]}"
				if len(problems) != 1 || !strings.Contains(problems[0], "spec.http[0].delegate: VirtualService b/leaf: spec.http[0] is left out") {
					t.Errorf("problems %q", problems)
				}
			} else if len(problems) > 0 {
				t.Errorf("problems %q", problems)
			}
			sameRoutes(t, s, want)
		})
	}
}

func sameRoutes(t *testing.T, s *mirror.Snapshot, want string) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(want))
	if err != nil {
		t.Fatal(err)
	}
	spec := &networkingv1.VirtualService{}
	if err := protojson.Unmarshal(raw, spec); err != nil {
		t.Fatalf("%v\n%s", err, want)
	}
	r, _ := s.Get(root)
	if got := r.Body(); !proto.Equal(got, spec) {
		t.Errorf("got  %v\nwant %v", got, spec)
	}
}

// A route whose delegate is unusable is left out, with a problem that states the reason. For a delegate of another
// namespace the problem does not reveal whether it exists.
// Promise: security-workloads.md#other-configuration-through-a-credential
func TestWhatCannotBeDelegatedTo(t *testing.T) {
	const to = "http: [{route: [{destination: {host: d}}]}]"
	from := func(delegate string) model.Record {
		return virtualService(t, "a/root", "{hosts: [h], http: [{delegate: {"+delegate+"}}]}")
	}
	for name, c := range map[string]struct {
		records []model.Record
		want    string
	}{
		"none":                {[]model.Record{from("name: leaf")}, "VirtualService a/root: spec.http[0].delegate: VirtualService a/leaf does not exist: the route is left out"},
		"none elsewhere":      {[]model.Record{from("name: leaf, namespace: b")}, "VirtualService a/root: spec.http[0].delegate: VirtualService b/leaf is not there, or not exported to namespace a: the route is left out"},
		"not exported":        {[]model.Record{from("name: leaf, namespace: b"), virtualService(t, "b/leaf", "{exportTo: [b, c], "+to+"}")}, "VirtualService a/root: spec.http[0].delegate: VirtualService b/leaf is not there, or not exported to namespace a: the route is left out"},
		"not exported, hosts": {[]model.Record{from("name: leaf, namespace: b"), virtualService(t, "b/leaf", "{hosts: [h], exportTo: ['~'], "+to+"}")}, "VirtualService a/root: spec.http[0].delegate: VirtualService b/leaf is not there, or not exported to namespace a: the route is left out"},
		"itself":              {[]model.Record{from("name: root")}, "VirtualService a/root: spec.http[0].delegate: VirtualService a/root has hosts, so nothing can be delegated to it: the route is left out"},
		"further": {[]model.Record{from("name: leaf"), virtualService(t, "a/leaf", "http: [{delegate: {name: x}}]")},
			"VirtualService a/root: spec.http[0].delegate: VirtualService a/leaf: spec.http[0] delegates further, which a delegate may not: it is left out"},
	} {
		t.Run(name, func(t *testing.T) {
			s, problems := resolved(c.records...)
			if !slices.Equal(problems, []string{c.want}) {
				t.Errorf("problems %q", problems)
			}
			sameRoutes(t, s, "{hosts: [h]}")
		})
	}
	s, problems := resolved(from("name: leaf, namespace: b"), virtualService(t, "b/leaf", "{exportTo: [a], "+to+"}"))
	if len(problems) > 0 {
		t.Errorf("exported to it: %q", problems)
	}
	sameRoutes(t, s, "{hosts: [h], http: [{route: [{destination: {host: d}}], delegate: {name: leaf, namespace: b}}]}")
}

// A VirtualService that delegates many times to large delegates becomes no larger than a record may be, and the number
// of comparisons is bounded.
// Promise: security-workloads.md#other-configuration-through-a-credential
func TestMergedRoutesAreBounded(t *testing.T) {
	many := func(n int, text string) string { return strings.TrimSuffix(strings.Repeat(text+", ", n), ", ") }
	for name, c := range map[string][2]string{
		"bytes":                   {many(2000, "{"+toLeaf+"}"), many(50, "{name: "+strings.Repeat("x", 200)+", route: [{destination: {host: d}}]}")},
		"one large match":         {"{match: [" + many(5000, "{port: 80}") + "], " + toLeaf + "}", "{match: [{name: " + strings.Repeat("x", 100_000) + "}], route: [{destination: {host: d}}]}"},
		"matches that contradict": {"{match: [" + many(150, "{port: 80}") + "], " + toLeaf + "}", many(20, "{match: ["+many(149, "{port: 80}")+", {port: 81}], route: [{destination: {host: d}}]}")},
	} {
		t.Run(name, func(t *testing.T) {
			s, problems := resolved(virtualService(t, "a/root", "{hosts: [h], http: ["+c[0]+"]}"), virtualService(t, "b/leaf", "{http: ["+c[1]+"]}"))
			r, _ := s.Get(root)
			if size := proto.Size(r.Body()); size > maxMerged {
				t.Errorf("%d bytes", size)
			}
			bound := func(p string) bool {
				return strings.Contains(p, "are left out: with its delegates a VirtualService may have")
			}
			if !slices.ContainsFunc(problems, bound) || len(problems) > maxProblems {
				t.Errorf("%d problems, %.1q", len(problems), problems)
			}
		})
	}
}
