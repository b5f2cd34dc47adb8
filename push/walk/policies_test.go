package walk

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/build/jwt"
)

// from decodes a message of JSON.
func from[M proto.Message](t *testing.T, text string, into M) M {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
	return into
}

func TestNormalised(t *testing.T) {
	const keep, unescaped, refuse = hcmv3.HttpConnectionManager_KEEP_UNCHANGED, hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD,
		hcmv3.HttpConnectionManager_REJECT_REQUEST
	for _, c := range []struct {
		path, want string
		normal     bool
		merge      bool
		escapes    hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction
	}{
		{"/x/../a/b?q=/../", "/a/b?q=/../", true, false, keep},
		{"/./a/.", "/a/", true, false, keep},
		{"/../..", "/", true, false, keep},
		{`/a\..\b`, "/b", true, false, keep},
		{"/%61%2Fb%", "/a%2Fb%", true, false, keep},
		{"//a//b", "//a//b", true, false, keep},
		{"//a///b", "/a/b", true, true, keep},
		{"/a%2fb%5Cc", "/a/b/c", true, false, unescaped},
		{"/a%2fb", "", true, false, refuse},
		{"/a#b", "", true, false, keep},
		{"/x/../%61", "/x/../%61", false, false, keep},
		{"*", "*", true, false, keep},
	} {
		m := &hcmv3.HttpConnectionManager{NormalizePath: wrapperspb.Bool(c.normal), MergeSlashes: c.merge,
			PathWithEscapedSlashesAction: c.escapes}
		if got, ok := normalised(c.path, m); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.path, got, ok, c.want)
		}
	}
}

// A path with escaped slashes is redirected to the normalised path, if the manager says so.
func TestRedirectedPaths(t *testing.T) {
	m := &hcmv3.HttpConnectionManager{PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT}
	for _, c := range []struct {
		path, content string
		status        int // 0: the request continues
	}{
		{"/a/b?c=%2f", "", 0},
		{"/a%2Fb", "", 307},
		{"/a%2Fb", "application/grpc", 400},
	} {
		w := &walker{Request: Request{Headers: map[string]string{":path": c.path, "content-type": c.content}}}
		if goes := w.receive(m); goes != (c.status == 0) || w.result.Status != c.status {
			t.Errorf("%s %s: %v, %d, want %d", c.path, c.content, goes, w.result.Status, c.status)
		}
	}
}

// A route is selected by all parts of its match. Parts that a walk cannot decide lower the confidence.
func TestSelectedRoutes(t *testing.T) {
	for _, c := range []struct {
		match string
		is    bool
		sure  Confidence
	}{
		{`{"prefix": "/"}`, true, Certain},
		{`{"prefix": "/", "runtime_fraction": {"default_value": {"numerator": 0}}}`, false, Certain},
		{`{"prefix": "/", "runtime_fraction": {"default_value": {"numerator": 30}}}`, true, Likely},
		{`{"prefix": "/", "runtime_fraction": {"default_value": {"numerator": 100}}}`, true, Certain},
		{`{"prefix": "/x", "runtime_fraction": {"default_value": {"numerator": 30}}}`, false, Certain},
		{`{"prefix": "/", "grpc": {}}`, false, Certain},
		{`{"prefix": "/", "tls_context": {"presented": true}}`, true, Possible},
		{`{"prefix": "/", "cookies": [{"name": "a", "string_match": {"exact": "b"}}]}`, true, Possible},
		{`{"connect_matcher": {}}`, false, Certain},
		{`{"path_match_policy": {"name": "t", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig", "path_template": "/*"}}}`, true, Certain},
		{`{"prefix": "/", "headers": [{"name": "n", "range_match": {"start": 1, "end": 9}}]}`, false, Possible},
		{`{"prefix": "/", "headers": [{"name": "m", "range_match": {"start": 1, "end": 9}}]}`, false, Certain},
		{`{"prefix": "/", "headers": [{"name": "n"}]}`, true, Certain},
		{`{"prefix": "/", "headers": [{"name": "m"}]}`, false, Certain},
		{`{"prefix": "/", "headers": [{"name": "m", "present_match": false}]}`, true, Certain},
		{`{"prefix": "/", "headers": [{"name": "n", "present_match": true, "invert_match": true}]}`, false, Certain},
		{`{"prefix": "/", "headers": [{"name": "m", "string_match": {"exact": "x"}, "invert_match": true}]}`, false, Certain},
	} {
		rc := from(t, `{"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [{"match": `+c.match+`}]}]}`, &routev3.RouteConfiguration{})
		w := &walker{Request: Request{Headers: map[string]string{":path": "/a", ":method": "GET", "n": "5"}}}
		if on := w.selectRoute(rc); (on.route != nil) != c.is || w.result.Confidence != c.sure {
			t.Errorf("%s: selected %v, %v, want %v, %v", c.match, on.route != nil, w.result.Confidence, c.is, c.sure)
		}
	}
}

// The status of requests with tokens, by the requirements of package push/build/jwt.
func TestTokens(t *testing.T) {
	const (
		first  = `"a": {"issuer": "i", "audiences": ["x"], "payload_in_metadata": "payload", "local_jwks": {"inline_string": "K"}}`
		second = `"b": {"issuer": "j", "from_headers": [{"name": "X-Token", "value_prefix": "T "}], "forward": true, "local_jwks": {"inline_string": "K"}}`
		either = `{"requires_any": {"requirements": [{"provider_name": "a"}, {"provider_name": "b"}, {"requires_all": {"requirements": [
			{"requires_any": {"requirements": [{"provider_name": "a"}, {"allow_missing": {}}]}}, {"requires_any": {"requirements": [{"provider_name": "b"}, {"allow_missing": {}}]}}]}}]}}`
		required = `{"provider_name": "a"}`
	)
	token := func(claims map[string]any) string {
		text, err := Unsigned(claims)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := token(map[string]any{"iss": "i", "aud": []string{"https://x/"}, "sub": "alice", "exp": 100})
	for _, c := range []struct {
		name, requires, authorization, other string
		at                                   int64
		status                               int
		kept                                 bool // the claims are there
	}{
		{"no token", either, "", "", 50, 0, false},
		{"no token, which is required", required, "", "", 50, 401, false},
		{"a good token", either, "Bearer " + good, "", 50, 0, true},
		{"another scheme", required, "Basic " + good, "", 50, 401, false},
		{"within the tolerance of clocks", either, "Bearer " + good, "", 159, 0, true},
		{"expired", either, "Bearer " + good, "", 161, 401, false},
		{"another audience", either, "Bearer " + token(map[string]any{"iss": "i", "aud": "y"}), "", 50, 403, false},
		{"no audience", required, "Bearer " + token(map[string]any{"iss": "i"}), "", 50, 403, false},
		{"not valid yet", either, "Bearer " + token(map[string]any{"iss": "i", "aud": "x", "nbf": 500}), "", 50, 401, false},
		{"unreadable", either, "Bearer a.b.c", "", 50, 401, false},
		{"another issuer", either, "Bearer " + token(map[string]any{"iss": "j"}), "", 50, 401, false},
		{"the other issuer at its place", either, "", "T " + token(map[string]any{"iss": "j"}), 50, 0, false},
		{"an issuer at the place of another", either, "", "T " + good, 50, 401, false},
		{"one good, one bad", either, "Bearer " + good, "T a.b.c", 50, 0, true},
	} {
		config := from(t, `{"providers": {`+first+`, `+second+`}, "rules": [{"match": {"prefix": "/"}, "requires": `+c.requires+`}]}`, &jwtv3.JwtAuthentication{})
		w := &walker{Request: Request{Time: time.Unix(c.at, 0), Headers: map[string]string{":path": "/", ":method": "GET"}}}
		for name, value := range map[string]string{"authorization": c.authorization, "x-token": c.other} {
			if value != "" {
				w.Headers[name] = value
			}
		}
		status := w.authenticate(config)
		if kept := at(w.metadata, []string{jwt.FilterName, "payload", "sub"}) == "alice"; status != c.status || kept != c.kept {
			t.Errorf("%s: %d, claims %v, want %d, %v: %v", c.name, status, kept, c.status, c.kept, w.result.Steps)
		}
		if _, there := w.Headers["authorization"]; there == c.kept && c.authorization != "" {
			t.Errorf("%s: the token is still there: %v", c.name, there)
		}
	}
	routed := from(t, `{"providers": {"a": {"issuer": "i", "clear_route_cache": true, "claim_to_headers": [{"header_name": "x-sub", "claim_name": "sub"}],
		"local_jwks": {"inline_string": "K"}}}, "rules": [{"match": {"prefix": "/"}, "requires": {"allow_missing_or_failed": {}}}]}`, &jwtv3.JwtAuthentication{})
	for authorization, sub := range map[string]string{"": "", "Bearer " + good: "alice"} {
		w := &walker{Request: Request{Headers: map[string]string{":path": "/", "authorization": authorization, "x-sub": "forged"}}}
		if status := w.authenticate(routed); status != 0 || w.Headers["x-sub"] != sub || w.reroute != (sub != "") {
			t.Errorf("%q: %d, header %q, another route %v", authorization, status, w.Headers["x-sub"], w.reroute)
		}
	}
	missing := from(t, `{"providers": {"a": {"issuer": "i", "local_jwks": {}}}, "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "a"}}]}`, &jwtv3.JwtAuthentication{})
	missing.Providers["a"].GetLocalJwks().Specifier = &corev3.DataSource_InlineString{InlineString: jwt.NoKeys()}
	w := &walker{Request: Request{Headers: map[string]string{":path": "/", "authorization": "Bearer " + good}}}
	if status := w.authenticate(missing); status != 401 || !strings.Contains(w.result.Steps[0].Text, "the key set of issuer i is missing") {
		t.Errorf("keys are missing: %d %v", status, w.result.Steps)
	}
}

// Metadata, templates and headers that a client cannot set, of policies and routes.
func TestMatchers(t *testing.T) {
	w := &walker{Request: Request{Headers: map[string]string{":path": "/a/b/c?x", "x-user": "jan"}}}
	w.store("f", "payload", map[string]any{"sub": "alice", "n": 3.0, "yes": true, "groups": []any{"staff", "all"}})
	metadata := func(path, value string) string {
		return `{"metadata": {"filter": "f", "path": [{"key": "payload"}, {"key": "` + path + `"}], "value": ` + value + `}}`
	}
	template := func(text string) string {
		return `{"uri_template": {"name": "t", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig", "path_template": "` + text + `"}}}`
	}
	for text, want := range map[string]bool{
		metadata("sub", `{"string_match": {"exact": "alice"}}`):                                            true,
		metadata("sub", `{"list_match": {"one_of": {"string_match": {"exact": "alice"}}}}`):                false,
		metadata("groups", `{"list_match": {"one_of": {"string_match": {"prefix": "st"}}}}`):               true,
		metadata("groups", `{"string_match": {"prefix": "st"}}`):                                           false,
		metadata("none", `{"present_match": true}`):                                                        false,
		metadata("n", `{"double_match": {"exact": 3}}`):                                                    true,
		metadata("n", `{"double_match": {"range": {"start": 4, "end": 9}}}`):                               false,
		metadata("yes", `{"or_match": {"value_matchers": [{"bool_match": false}, {"bool_match": true}]}}`): true,
		template("/a/*/c"): true,
		template("/a/*"):   false,
		template("/**/c"):  true,
		template("/a/**"):  true,
		template("/*.b"):   false,
		`{"requested_server_name": {"exact": ""}}`: true,
		`{"url_path": {"path": {"suffix": "/c"}}}`: true,
		`{"not_rule": {"any": true}}`:              false,
	} {
		if got := w.permitted(from(t, text, &rbacv3.Permission{})); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if w.permitted(&rbacv3.Permission{}) || w.result.Confidence != Possible {
		t.Error("a permission of an unknown kind is certain")
	}
}

// The rule that denies, the one that allows, and the names of those that do not.
func TestPolicyOfDecision(t *testing.T) {
	rules := func(action string, paths ...string) proto.Message {
		var all []string
		for i, path := range paths {
			all = append(all, `"ns[a]-policy[p]-rule[`+string(rune('0'+i))+`]": {"permissions": [{"url_path": {"path": {"exact": "`+path+`"}}}], "principals": [{"any": true}]}`)
		}
		return from(t, `{"rules": {"action": "`+action+`", "policies": {`+strings.Join(all, ", ")+`}}}`, &rbacfilterv3.RBAC{})
	}
	for _, c := range []struct {
		filter proto.Message
		denied bool
		policy string
		step   string
	}{
		{rules("DENY", "/x", "/a"), true, "ns[a]-policy[p]-rule[1]", "denied by AuthorizationPolicy a/p spec.rules[1]"},
		{rules("DENY", "/x"), false, "", ""},
		{rules("ALLOW", "/x", "/a"), false, "ns[a]-policy[p]-rule[1]", ""},
		{rules("ALLOW", "/x"), true, "", "denied: no rule of AuthorizationPolicy a/p allows it"},
		{rules("ALLOW"), true, "", "denied: a policy could not be enforced, so all requests are refused"},
		{rules("LOG", "/a"), false, "", ""},
	} {
		w := &walker{Request: Request{Headers: map[string]string{":path": "/a"}}}
		denied := w.denied(config(t, c.filter))
		step := ""
		if len(w.result.Steps) > 0 {
			step = w.result.Steps[0].Text
		}
		if denied != c.denied || w.result.Policy != c.policy || step != c.step {
			t.Errorf("%v: %v %q %q, want %v %q %q", c.filter, denied, w.result.Policy, step, c.denied, c.policy, c.step)
		}
	}
}

// Headers, path and host of a forwarded request.
func TestSent(t *testing.T) {
	for _, c := range []struct{ route, path, authority, user string }{
		{`{"match": {"prefix": "/a"}, "route": {"cluster": "c", "prefix_rewrite": "/r", "host_rewrite_literal": "h"}}`, "/r/b?q", "h", "jan"},
		{`{"match": {"prefix": "/"}, "route": {"cluster": "c", "regex_rewrite": {"pattern": {"regex": "/(.)/(.)"}, "substitution": "/\\2$"}}}`, "/b$?q", "old", "jan"},
		{`{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "request_headers_to_add": [{"header": {"key": "X-User", "value": "bob"}}]}`, "/a/b?q", "old", "jan,bob"},
		{`{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "request_headers_to_remove": ["x-user"]}`, "/a/b?q", "old", ""},
	} {
		w := &walker{Held: &Messages{}, Request: Request{Headers: map[string]string{":path": "/a/b?q", ":authority": "old", "x-user": "jan"}}}
		w.act(&routev3.VirtualHost{}, from(t, c.route, &routev3.Route{}), nil)
		if got := w.result.Sent; got[":path"] != c.path || got[":authority"] != c.authority || got["x-user"] != c.user {
			t.Errorf("%s: %v", c.route, got)
		}
	}
}

func FuzzClaims(f *testing.F) {
	f.Add("a.e30.c")
	f.Add("..")
	f.Fuzz(func(t *testing.T, text string) {
		claims, err := Claims(text)
		if (err == nil) != (claims != nil) {
			t.Errorf("%v, %v", claims, err)
		}
	})
}

// A path that was normalised stays as it is, and has no dot segments.
func FuzzNormalised(f *testing.F) {
	for _, seed := range []string{"/a/../b", "/%2e%2E/x", "/..\\a", "//", "/%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		m := &hcmv3.HttpConnectionManager{NormalizePath: wrapperspb.Bool(true), MergeSlashes: true}
		once, ok := normalised(path, m)
		if twice, _ := normalised(once, m); ok && strings.HasPrefix(once, "/") && !strings.Contains(once, "%") && twice != once {
			t.Errorf("%q, then %q", once, twice)
		}
		plain, _, _ := strings.Cut(once, "?")
		if ok && strings.HasPrefix(once, "/") && slices.Contains(strings.Split(plain, "/"), "..") {
			t.Errorf("%q has dot segments", once)
		}
	})
}

// For each route before the selected one, a walk names the first part of the match that the request does not have. The
// list is bounded, and the others are counted.
func TestPassedRoutes(t *testing.T) {
	matches := []struct{ match, want string }{
		{`{"prefix": "/v2"}`, "not route r0: path /a, want prefix /v2"}, {`{"path": "/b"}`, "not route r1: path /a, want /b"},
		{`{"path_separated_prefix": "/b"}`, "not route r2: path /a, want /b or a path below it"},
		{`{"safe_regex": {"regex": "/x.*"}}`, "not route r3: path /a, want regular expression /x.*"},
		{`{"connect_matcher": {}}`, "not route r4: method GET, want CONNECT"},
		{`{"prefix": "/", "headers": [{"name": "n"}, {"name": "user", "string_match": {"exact": "jason"}}]}`,
			"not route r5: header user is absent, want jason"},
		{`{"prefix": "/", "headers": [{"name": "n", "string_match": {"prefix": "6"}}]}`, "not route r6: header n is 5, want prefix 6"},
		{`{"prefix": "/", "headers": [{"name": "n", "string_match": {"exact": "5"}, "invert_match": true}]}`,
			"not route r7: header n is 5, want any value but 5"},
		{`{"prefix": "/", "headers": [{"name": "n", "present_match": false}]}`, "not route r8: header n is 5"},
		{`{"prefix": "/", "query_parameters": [{"name": "v", "string_match": {"exact": "2"}}]}`,
			"not route r9: query parameter v is 1, want 2"},
		{`{"prefix": "/", "query_parameters": [{"name": "w", "present_match": true}]}`, "not route r10: query parameter w is absent"},
		{`{"prefix": "/", "grpc": {}}`, "not route r11: the request is not gRPC"},
		{`{"prefix": "/", "runtime_fraction": {"default_value": {"numerator": 0}}}`, "not route r12: its share of the requests is 0"},
		{`{"prefix": "/", "dynamic_metadata": [{"filter": "f", "path": [{"key": "k"}], "value": {"present_match": true}}]}`,
			"not route r13: the claims of the token, or other metadata of the request, differ"},
		{`{"prefix": "/y"}`, "not route #15: path /a, want prefix /y"},
	}
	routes, want := []string{}, []string{}
	for i, m := range matches {
		routes, want = append(routes, fmt.Sprintf(`{"name": "r%d", "match": %s}`, i, m.match)), append(want, m.want)
	}
	routes[len(routes)-1] = `{"match": {"prefix": "/y"}}`
	for i := range 8 {
		routes = append(routes, fmt.Sprintf(`{"name": "m%d", "match": {"path": "/m"}}`, i))
	}
	for _, last := range []string{`, {"name": "last", "match": {"prefix": "/"}, "direct_response": {"status": 200}}`, ""} {
		rc := from(t, `{"name": "80", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [`+strings.Join(routes, ",")+last+`]}]}`,
			&routev3.RouteConfiguration{})
		w := &walker{Held: &Messages{}, Request: Request{Headers: map[string]string{":path": "/a?v=1", ":method": "GET", "n": "5"}}}
		w.routed(rc, w.selectRoute(rc), nil)
		step := w.result.Steps[0]
		if len(step.Passed) != MaxPassed || step.MorePassed != len(routes)-MaxPassed || (w.result.Status == 404) != (last == "") {
			t.Errorf("%d routes listed, %d more, status %d", len(step.Passed), step.MorePassed, w.result.Status)
		}
		for i := range want {
			if got := step.Passed[i].String(); got != want[i] {
				t.Errorf("got %q, want %q", got, want[i])
			}
		}
	}
}
