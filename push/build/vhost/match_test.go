package vhost

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navarch.io/navarch/store/intern"
)

// Each case is the match of a rule named hit, with a catch-all named miss after it.
func TestMatches(t *testing.T) {
	get := func(path string) request { return request{path: path} }
	with := func(kv ...string) request {
		r := request{path: "/", headers: map[string]string{}}
		for i := 0; i < len(kv); i += 2 {
			r.headers[kv[i]] = kv[i+1]
		}
		return r
	}
	for _, c := range []struct {
		name, match string
		hit, miss   []request
	}{
		{"exact", `uri: {exact: /a}`, []request{get("/a"), get("/a?q=1")}, []request{get("/a/"), get("/A"), get("/ab")}},
		{"prefix is of characters", `uri: {prefix: /a}`, []request{get("/a"), get("/ab"), get("/a/b")}, []request{get("/A"), get("/b")}},
		{"regex is the whole path", `uri: {regex: "/a[0-9]+"}`, []request{get("/a12?q")}, []request{get("/a12/b"), get("/a")}},
		{"ignore case", `{uri: {prefix: /Shop}, ignoreUriCase: true}`, []request{get("/sHOP/x")}, []request{get("/sho")}},
		{"header exact", `headers: {X-Team: {exact: blue}}`, []request{with("x-team", "blue")}, []request{with("x-team", "bluer"), get("/")}},
		{"header prefix", `headers: {x-team: {prefix: bl}}`, []request{with("x-team", "blue")}, []request{with("x-team", "red"), get("/")}},
		{"header regex", `headers: {x-team: {regex: "b.*e"}}`, []request{with("x-team", "blue")}, []request{with("x-team", "blues"), get("/")}},
		{"header present", `headers: {x-team: {}}`, []request{with("x-team", ""), with("x-team", "x")}, []request{get("/")}},
		{"header regex * is present", `headers: {x-team: {regex: "*"}}`, []request{with("x-team", "x")}, []request{get("/")}},
		{"header empty prefix is present", `headers: {x-team: {prefix: ""}}`, []request{with("x-team", "x")}, []request{get("/")}},
		{"all headers", `headers: {a: {exact: "1"}, b: {exact: "2"}}`, []request{with("a", "1", "b", "2")}, []request{with("a", "1"), with("b", "2")}},
		{"without exact", `withoutHeaders: {x-team: {exact: blue}}`, []request{get("/"), with("x-team", "red")}, []request{with("x-team", "blue")}},
		{"without present", `withoutHeaders: {x-team: {}}`, []request{get("/")}, []request{with("x-team", "red")}},
		{"with and without", `{headers: {a: {}}, withoutHeaders: {a: {exact: x}}}`, []request{with("a", "y")}, []request{with("a", "x"), get("/")}},
		{"claim of a token", `headers: {"@request.auth.claims.group": {exact: a}}`, nil, []request{get("/"), with("@request.auth.claims.group", "a")}},
		{"without a claim", `withoutHeaders: {"@request.auth.claims[group]": {exact: a}}`, []request{get("/"), with("@request.auth.claims[group]", "a")}, nil},
		{"claim that is there", `headers: {"@request.auth.claims.group": {}}`, nil, []request{get("/"), with("@request.auth.claims.group", "a")}},
		{"method", `method: {exact: POST}`, []request{{path: "/", method: "POST"}}, []request{get("/")}},
		{"authority", `authority: {prefix: rev}`, []request{get("/")}, []request{{path: "/", authority: "other"}}},
		{"scheme", `scheme: {exact: https}`, []request{with(":scheme", "https")}, []request{get("/")}},
		{"query", `queryParams: {v: {exact: "2"}}`, []request{get("/?v=2")}, []request{get("/?v=1"), get("/")}},
		{"query present", `queryParams: {v: {}}`, []request{get("/?v"), get("/?v=2")}, []request{get("/")}},
		{"query regex", `queryParams: {v: {regex: "[0-9]+"}}`, []request{get("/?v=22")}, []request{get("/?v=x")}},
		{"everything together", `{uri: {prefix: /a}, method: {exact: PUT}, headers: {h: {exact: x}}, queryParams: {v: {exact: "1"}}}`,
			[]request{{path: "/a?v=1", method: "PUT", headers: map[string]string{"h": "x"}}},
			[]request{{path: "/a?v=1", method: "PUT"}, {path: "/a", method: "PUT", headers: map[string]string{"h": "x"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			vh := drawYAML(t, "http:\n- name: hit\n  match: ["+flow(c.match)+"]\n  route: [{destination: {host: a}}]\n"+
				"- name: miss\n  route: [{destination: {host: b}}]")
			for _, r := range c.hit {
				if got := walk(vh, r).GetName(); got != "hit" {
					t.Errorf("%+v: %q, want a hit", r, got)
				}
			}
			for _, r := range c.miss {
				if got := walk(vh, r).GetName(); got != "miss" {
					t.Errorf("%+v: %q, want a miss", r, got)
				}
			}
		})
	}
}

func flow(match string) string {
	if match[0] == '{' {
		return match
	}
	return "{" + match + "}"
}

func names(t *testing.T, s Spec) []string {
	t.Helper()
	var out []string
	for _, r := range draw(t, s).Routes {
		out = append(out, r.Name)
	}
	return out
}

// Excluded matches have no routes, and the rules after them are reachable.
func TestExcluded(t *testing.T) {
	s := specOf(service(t, `
http:
- {name: all, match: [{port: 8080}, {uri: {prefix: /a}}], route: [{destination: {host: a}}]}
- {name: none, match: [{uri: {prefix: /b}}], route: [{destination: {host: a}}]}
- {name: rest, route: [{destination: {host: a}}]}
`))
	if diff := cmp.Diff([]string{"all"}, names(t, s)); diff != "" {
		t.Error(diff) // a match on the port alone matches everything
	}
	var first intern.Table[int]
	list := slices.Clone(s.Rules.All())
	list[0].Excluded, list[1].Excluded = first.List(0), first.List(0)
	s.Rules = rules.List(list...)
	if diff := cmp.Diff([]string{"all", "rest"}, names(t, s)); diff != "" {
		t.Error(diff)
	}
}

// The list of routes ends at the first match for every request: a prefix "/", a regex ".*", no match at all.
func TestCatchAllEnds(t *testing.T) {
	for match, end := range map[string]bool{
		`{uri: {prefix: /}}`:                        true,
		`{uri: {regex: ".*"}}`:                      true,
		`{port: 80}`:                                true,
		`{uri: {prefix: /}, headers: {a: {}}}`:      false,
		`{queryParams: {a: {}}}`:                    false,
		`{headers: {"@request.auth.claims.a": {}}}`: false,
		`{uri: {prefix: /a}}`:                       false,
		`{method: {exact: GET}}`:                    false,
	} {
		vs := service(t, `http: [{name: one, match: [`+match+`, {uri: {exact: /second}}], route: [{destination: {host: a}}]}, {name: two, route: [{destination: {host: a}}]}]`)
		want := []string{"one"}
		if !end {
			want = []string{"one", "one", "two"}
		}
		if got := names(t, specOf(vs)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", match, got, want)
		}
	}
}

// A rule that Envoy would refuse, or that would harm others, is left out alone: the other rules keep their order.
// Promise: security-gateways.md#change-requests-of-others
func TestBrokenRulesAreLeftOut(t *testing.T) {
	for _, bad := range []string{
		`match: [{uri: {regex: "a(b"}}], route: [{destination: {host: a}}]`,
		`match: [{headers: {h: {regex: "[a"}}}], route: [{destination: {host: a}}]`,
		`match: [{queryParams: {h: {regex: "[a"}}}], route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}]`,
		`match: [{uri: {prefix: /x}}], redirect: {redirectCode: 404}`,
		`match: [{uri: {exact: /x}}], redirect: {prefixRewrite: /y}`,
		`match: [{uri: {prefix: /x}}], directResponse: {status: 99}`,
		`match: [{uri: {prefix: /x}}], rewrite: {uriRegexRewrite: {match: "a(", rewrite: b}}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], route: [{destination: {host: a}, weight: 0}, {destination: {host: b}, weight: 0}]`,
		`match: [{uri: {prefix: /x}}], fault: {abort: {httpStatus: 99, percentage: {value: 1}}}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], corsPolicy: {allowOrigins: [{regex: "a("}]}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], headers: {request: {set: {a: "50%"}}}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], headers: {response: {add: {a: "%REQ(x"}}}, directResponse: {status: 200}`,
		`match: [{uri: {prefix: /x}}], route: [{destination: {host: a}, weight: 1, headers: {request: {set: {a: "%"}}}}, {destination: {host: b}, weight: 1}]`,
		`match: [{uri: {prefix: /x}}], headers: {request: {set: {a: "%NO_SUCH_COMMAND%"}}}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], headers: {response: {set: {a: "%REQ()%"}}}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], headers: {request: {add: {a: "%ENVIRONMENT(HOME)%"}}}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], rewrite: {uri: "/a HTTP/1.1 b"}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], rewrite: {authority: "a b"}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], headers: {request: {set: {Host: "a\tb"}}}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], route: [{destination: {host: a}, weight: 1, headers: {request: {set: {host: "a b"}}}}, {destination: {host: b}, weight: 1}]`,
		`match: [{uri: {prefix: /x}}], rewrite: {uriRegexRewrite: {match: a, rewrite: "b c"}}, route: [{destination: {host: a}}]`,
		`match: [{uri: {prefix: /x}}], headers: {request: {set: {"a\nb": c}}}, route: [{destination: {host: a}}]`,
	} {
		vs := service(t, `http: [{name: before, match: [{uri: {prefix: /b}}], route: [{destination: {host: a}}]}, {name: bad, `+bad+`}, {name: after, route: [{destination: {host: a}}]}]`)
		if got := names(t, specOf(vs)); !slices.Equal(got, []string{"before", "after"}) {
			t.Errorf("%s: %v", bad, got)
		}
		problems := Problems(vs)
		if len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), "VirtualService shop/reviews: spec.http[1]") {
			t.Errorf("%s: problems %v", bad, problems)
		}
	}
	if problems := Problems(service(t, everyFeature)); problems != nil {
		t.Errorf("problems of a good virtual service: %v", problems)
	}
	// A rule after a catch-all is unreachable, even if the catch-all is invalid.
	vs := service(t, `http: [{name: bad, redirect: {redirectCode: 404}}, {name: after, route: [{destination: {host: a}}]}]`)
	if got := names(t, specOf(vs)); got != nil {
		t.Errorf("behind a broken catch-all: %v", got)
	}
}
