package authz

import (
	"regexp"
	"strings"
	"testing"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	meshv1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1beta1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
)

func unyaml(t testing.TB, text string, into proto.Message) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func policy(t testing.TB, name, text string) *model.Policy {
	t.Helper()
	m := &securityv1.AuthorizationPolicy{}
	unyaml(t, text, m)
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	r, err := model.New(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "shop", Name: name}, 0, &model.PolicySpec{Istio: raw})
	if err != nil {
		t.Fatal(err)
	}
	return r.(*model.Policy)
}

const anyone, anything = "{any: true}", "{any: true}"

func uri(matcher string) string { return "{authenticated: {principal_name: {" + matcher + "}}}" }

// Matches on verified tokens: issuer and subject, or a claim that is a list or a text.
func exact(text string) string { return "exact: '" + text + "'" }

const anyText = "safe_regex: {regex: .+}"

func claims(iss, sub string) string {
	one := func(claim, matcher string) string {
		return "{metadata: {filter: envoy.filters.http.jwt_authn, path: [{key: payload}, {key: " + claim + "}], value: {string_match: {" + matcher + "}}}}"
	}
	return "{and_ids: {ids: [" + one("iss", iss) + ", " + one("sub", sub) + "]}}"
}

func listed(path, value string) string {
	return "{metadata: {filter: envoy.filters.http.jwt_authn, path: " + path + ", value: {or_match: {value_matchers: [{list_match: {one_of: {" + value + "}}}, {" + value + "}]}}}}"
}

func regex(re string) string { return uri("safe_regex: {regex: '" + re + "'}") }

func among(re string) string {
	return "{header: {name: x, string_match: {safe_regex: {regex: '(.*,)?" + re + "(,.*)?'}}}}"
}

// One rule of an ALLOW policy for HTTP: its principals and permissions.
func TestRules(t *testing.T) {
	for _, c := range []struct{ name, rule, principal, permission string }{
		{"everything", "{}", anyone, anything},
		{"a principal, in all trust domains", "{from: [{source: {principals: [td/ns/a/sa/b]}}]}",
			"{or_ids: {ids: [" + uri("exact: 'spiffe://td/ns/a/sa/b'") + ", " + uri("exact: 'spiffe://old/ns/a/sa/b'") + "]}}", anything},
		{"a principal of the mesh's own trust domain", "{from: [{source: {principals: [cluster.local/ns/a/sa/b]}}]}",
			"{or_ids: {ids: [" + uri("exact: 'spiffe://td/ns/a/sa/b'") + ", " + uri("exact: 'spiffe://old/ns/a/sa/b'") + "]}}", anything},
		{"the end of a trust domain, which an alias has", "{from: [{source: {notPrincipals: ['*ld/ns/a/sa/b']}}]}",
			"{not_id: {or_ids: {ids: [" + uri("exact: 'spiffe://td/ns/a/sa/b'") + ", " + regex("spiffe://.*ld/ns/a/sa/b") + "]}}}", anything},
		{"the beginning of a trust domain, which an alias has", "{when: [{key: source.principal, values: ['o*/ns/a/sa/b*']}]}",
			"{or_ids: {ids: [" + uri("prefix: 'spiffe://td/ns/a/sa/b'") + ", " + uri("prefix: 'spiffe://old/ns/a/sa/b'") + "]}}", anything},
		{"the end of a foreign trust domain", "{from: [{source: {principals: ['*er/ns/a/sa/b']}}]}", regex("spiffe://.*er/ns/a/sa/b"), anything},
		{"a principal of any trust domain", "{from: [{source: {principals: ['*/ns/a/sa/b']}}]}", regex("spiffe://.*/ns/a/sa/b"), anything},
		{"the beginning of a path", "{from: [{source: {principals: ['td/ns/a/*']}}]}", uri("prefix: 'spiffe://td/ns/a/'"), anything},
		{"the mesh's trust domain", "{from: [{source: {trustDomains: [old]}}]}", "{or_ids: {ids: [" + regex(`spiffe://td/.*`) + ", " + regex(`spiffe://old/.*`) + "]}}", anything},
		{"a foreign principal", "{from: [{source: {principals: [other/ns/a/sa/b]}}]}", uri("exact: 'spiffe://other/ns/a/sa/b'"), anything},
		{"the end of a principal", "{from: [{source: {principals: ['*/sa/b']}}]}", regex("spiffe://.*/sa/b"), anything},
		{"any principal", "{from: [{source: {principals: ['*']}}]}", regex(".+"), anything},
		{"namespaces", "{from: [{source: {namespaces: [a.b, c*]}}]}",
			"{or_ids: {ids: [" + regex(`.*/ns/a\.b/.*`) + ", " + regex(`.*/ns/c.*/.*`) + "]}}", anything},
		{"service accounts", "{from: [{source: {serviceAccounts: [b, a/c]}}]}",
			"{or_ids: {ids: [" + regex(`spiffe://.+/ns/shop/(.+/|)sa/b(/.+)?`) + ", " + regex(`spiffe://.+/ns/a/(.+/|)sa/c(/.+)?`) + "]}}", anything},
		{"trust domains", "{from: [{source: {trustDomains: [a.b, 'c*', '*d', '*'], notTrustDomains: [e]}}]}",
			"{and_ids: {ids: [{or_ids: {ids: [" + regex(`spiffe://a\.b/.*`) + ", " + regex(`spiffe://c[^/]*/.*`) + ", " + regex(`spiffe://[^/]*d/.*`) + ", " + regex(`spiffe://[^/]+/.*`) +
				"]}}, {not_id: " + regex(`spiffe://e/.*`) + "}]}}", anything},
		{"addresses", "{from: [{source: {ipBlocks: [10.1.2.3/8], notIpBlocks: [10.0.0.1]}}, {source: {remoteIpBlocks: ['fd00::/64']}}]}",
			"{and_ids: {ids: [{direct_remote_ip: {address_prefix: 10.0.0.0, prefix_len: 8}}, {not_id: {direct_remote_ip: {address_prefix: 10.0.0.1, prefix_len: 32}}}]}}, {remote_ip: {address_prefix: 'fd00::', prefix_len: 64}}", anything},
		{"sources, operations and conditions", "{from: [{source: {ipBlocks: [10.0.0.1]}}, {source: {ipBlocks: [10.0.0.2]}}], to: [{operation: {ports: ['80']}}, {operation: {ports: ['81']}}], when: [{key: remote.ip, values: [10.0.0.3]}, {key: connection.sni, values: [a]}]}",
			"{and_ids: {ids: [{direct_remote_ip: {address_prefix: 10.0.0.1, prefix_len: 32}}, {remote_ip: {address_prefix: 10.0.0.3, prefix_len: 32}}]}}, {and_ids: {ids: [{direct_remote_ip: {address_prefix: 10.0.0.2, prefix_len: 32}}, {remote_ip: {address_prefix: 10.0.0.3, prefix_len: 32}}]}}",
			"{and_rules: {rules: [{destination_port: 80}, {requested_server_name: {exact: a}}]}}, {and_rules: {rules: [{destination_port: 81}, {requested_server_name: {exact: a}}]}}"},
		{"an operation", "{to: [{operation: {methods: [GET], paths: [/a, '/b*'], notPaths: ['*.c'], hosts: ['*.d'], ports: ['80']}}]}", anyone,
			`{and_rules: {rules: [{destination_port: 80}, {header: {name: ':authority', string_match: {suffix: .d, ignore_case: true}}}, {header: {name: ':method', string_match: {exact: GET}}},
				{or_rules: {rules: [{url_path: {path: {exact: /a}}}, {url_path: {path: {prefix: /b}}}]}}, {not_rule: {url_path: {path: {suffix: .c}}}}]}}`},
		{"a request's principal, also by parts", "{from: [{source: {requestPrincipals: ['https://i/a/s', '*'], notRequestPrincipals: ['*/s', 'i/s*', 'i*', '*s']}}]}",
			"{and_ids: {ids: [{or_ids: {ids: [" + claims(exact("https://i/a"), exact("s")) + ", " + claims(anyText, anyText) + "]}}, {not_id: {or_ids: {ids: [" + claims(anyText, exact("s")) + ", " +
				claims(exact("i"), "prefix: s") + ", " + claims("prefix: i", anyText) + ", " + claims(anyText, "suffix: s") + "]}}}]}}", anything},
		{"claims", "{when: [{key: 'request.auth.claims[a][b]', values: [v, 'w*']}, {key: request.auth.audiences, notValues: [x]}, {key: request.auth.presenter, values: [z]}, {key: request.auth.principal, values: [i/s]}]}",
			"{and_ids: {ids: [" + listed("[{key: payload}, {key: a}, {key: b}]", "or_match: {value_matchers: [{string_match: {exact: v}}, {string_match: {prefix: w}}]}") +
				", {not_id: " + listed("[{key: payload}, {key: aud}]", "string_match: {exact: x}") + "}, " + listed("[{key: payload}, {key: azp}]", "string_match: {exact: z}") + ", " + claims(exact("i"), exact("s")) + "]}}", anything},
		{"a name with brackets", "{when: [{key: 'request.auth.claims[https://x/[0]]', values: [v]}]}", listed("[{key: payload}, {key: 'https://x/[0]'}]", "string_match: {exact: v}"), anything},
		{"what another filter has found", "{when: [{key: 'experimental.envoy.filters.network.a[b.c]', values: ['[d]', e], notValues: [f]}]}", anyone,
			"{and_rules: {rules: [{metadata: {filter: envoy.filters.network.a, path: [{key: b.c}], value: {or_match: {value_matchers: [{list_match: {one_of: {string_match: {exact: d}}}}, {string_match: {exact: e}}]}}}}, " +
				"{not_rule: {metadata: {filter: envoy.filters.network.a, path: [{key: b.c}], value: {string_match: {exact: f}}}}}]}}"},
		{"a template of paths", "{to: [{operation: {paths: ['/a/{*}/b/{**}']}}]}", anyone,
			"{uri_template: {name: uri-template, typed_config: {'@type': type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig, path_template: '/a/*/b/**'}}}"},
		{"a path with braces", "{to: [{operation: {paths: ['/users/{id}']}}]}", anyone, "{url_path: {path: {exact: '/users/{id}'}}}"},
		{"a pseudo header", "{when: [{key: 'request.headers[:authority]', values: [v]}]}", "{header: {name: ':authority', string_match: {exact: v}}}", anything},
		{"values of a header", "{when: [{key: 'request.experimental.inline.headers[x]', values: [a.b, '*c', 'd*', '*'], notValues: [e]}]}",
			"{and_ids: {ids: [{or_ids: {ids: [" + among(`a\.b`) + ", " + among(".*c") + ", " + among("d.*") + ", {header: {name: x, present_match: true}}]}}, {not_id: " + among("e") + "}]}}", anything},
		{"conditions", "{when: [{key: 'request.headers[x]', values: [v, '*']}, {key: destination.port, notValues: ['81']}, {key: source.namespace, notValues: [a]}]}",
			"{and_ids: {ids: [{or_ids: {ids: [{header: {name: x, string_match: {exact: v}}}, {header: {name: x, present_match: true}}]}}, {not_id: " + regex(`.*/ns/a/.*`) + "}]}}",
			"{not_rule: {destination_port: 81}}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			deny, allow := Build([]*model.Policy{policy(t, "p", "{rules: ["+c.rule+"]}")}, &meshv1.MeshConfig{TrustDomain: "td", TrustDomainAliases: []string{"old"}}, Requests).Rules()
			want := &rbacv3.RBAC{}
			unyaml(t, "{action: ALLOW, policies: {'ns[shop]-policy[p]-rule[0]': {principals: ["+c.principal+"], permissions: ["+c.permission+"]}}}", want)
			if diff := cmp.Diff(want, allow, protocmp.Transform()); diff != "" || deny != nil {
				t.Errorf("deny %v, allow (-want +got)\n%s", deny, diff)
			}
			if err := allow.ValidateAll(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The identities that a namespace and a service account match, also with further segments in their path: a DENY policy
// must cover those.
func TestIdentities(t *testing.T) {
	for field, identities := range map[string]map[string]bool{
		"serviceAccounts: [a/b.c]": {
			"spiffe://td/ns/a/sa/b.c": true, "spiffe://td/x/ns/a/sa/b.c": true, "spiffe://td/ns/a/x/y/sa/b.c": true, "spiffe://td/ns/a/sa/b.c/x": true,
			"spiffe://td/ns/a/sa/b.cd": false, "spiffe://td/ns/a/sa/bxc": false, "spiffe://td/ns/ab/sa/b.c": false, "spiffe://td/ns/a/xsa/b.c": false, "spiffe://td/ns/a/sa/b.c/": false,
		},
		"namespaces: [a]": {
			"spiffe://td/ns/a/sa/b": true, "spiffe://td/x/ns/a/sa/b": true, "spiffe://td/ns/a/x/sa/b": true,
			"spiffe://td/ns/ab/sa/b": false, "spiffe://td/ns/b/sa/a": false, "spiffe://td/xns/a/sa/b": false,
		},
		"namespaces: [a*]": {"spiffe://td/ns/ab/sa/b": true, "spiffe://td/x/ns/a/sa/b": true, "spiffe://td/ns/ba/sa/a": false},
	} {
		deny, _ := Build([]*model.Policy{policy(t, "p", "{action: DENY, rules: [{from: [{source: {"+field+"}}]}]}")}, nil, Requests).Rules()
		principal := deny.GetPolicies()["ns[shop]-policy[p]-rule[0]"].GetPrincipals()[0]
		re := regexp.MustCompile("^(?:" + principal.GetAuthenticated().GetPrincipalName().GetSafeRegex().GetRegex() + ")$") // Envoy matches the whole
		for id, want := range identities {
			if got := re.MatchString(id); got != want {
				t.Errorf("%s matches %s: %v", field, id, got)
			}
		}
	}
}

// The rules of several policies together, and those that remain for connections that are not HTTP.
func TestActions(t *testing.T) {
	const http, tcp = "{to: [{operation: {methods: [GET]}}]}", "{to: [{operation: {ports: ['80']}}]}"
	for _, c := range []struct {
		name        string
		policies    []string
		tcp         bool
		deny, allow int // rules; -1: no filter
	}{
		{"nothing", nil, false, -1, -1},
		{"audit", []string{"{action: AUDIT, rules: [{}]}"}, false, -1, -1},
		{"nothing is allowed", []string{"{}"}, false, -1, 1},
		{"tokens allow nothing on TCP", []string{"{rules: [{from: [{source: {requestPrincipals: ['*']}}]}, {when: [{key: request.auth.audiences, values: [a]}]}]}"}, true, -1, 0},
		{"rules about tokens deny without their fields", []string{"{action: DENY, rules: [{from: [{source: {notRequestPrincipals: ['*'], namespaces: [a]}}]}]}"}, true, 1, -1},
		{"nothing is denied", []string{"{action: DENY}"}, false, -1, -1},
		{"both", []string{"{rules: [" + http + "]}", "{action: DENY, rules: [" + http + ", {}]}", "{rules: [" + tcp + "]}"}, false, 2, 2},
		{"HTTP rules allow nothing on TCP", []string{"{rules: [" + http + "]}"}, true, -1, 0},
		{"nor do conditions", []string{"{rules: [{when: [{key: 'request.headers[x]', values: [v]}]}, " + tcp + "]}"}, true, -1, 1},
		{"one of two operations is left", []string{"{rules: [{to: [{operation: {methods: [GET]}}, {operation: {ports: ['80']}}]}]}"}, true, -1, 1},
		{"HTTP rules deny without their fields", []string{"{action: DENY, rules: [" + http + "]}"}, true, 1, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []*model.Policy
			for i, text := range c.policies {
				all = append(all, policy(t, string(rune('a'+i)), text))
			}
			of := Requests
			if c.tcp {
				of = Connections
			}
			deny, allow := Build(all, nil, of).Rules()
			count := func(r *rbacv3.RBAC) int {
				if r == nil {
					return -1
				}
				return len(r.Policies)
			}
			if count(deny) != c.deny || count(allow) != c.allow {
				t.Errorf("deny %v, allow %v", deny, allow)
			}
			for _, p := range deny.GetPolicies() {
				if c.tcp && !p.Permissions[0].GetAny() {
					t.Errorf("on TCP the rule denies less: %v", p)
				}
			}
		})
	}
}

// The filters of a set: one for each provider of CUSTOM policies, with the rules of all its policies, sorted by name;
// audit; dry runs beside the enforced rules.
func TestSet(t *testing.T) {
	of := func(name, text string, dry model.DryRun) *model.Policy {
		p := policy(t, name, text)
		p.Spec.DryRun = dry
		return p
	}
	s := Build([]*model.Policy{
		of("c1", "{action: CUSTOM, provider: {name: two}, rules: [{}]}", 0), of("c2", "{action: CUSTOM, provider: {name: one}, rules: [{}]}", 0), of("c3", "{action: CUSTOM, provider: {name: two}, rules: [{}, {}]}", 0),
		of("a", "{action: AUDIT, rules: [{}]}", 0), of("d", "{action: AUDIT, rules: [{}, {}]}", model.DryRun_DRY_RUN_DENY), of("l", "{rules: [{}]}", 0), of("m", "{action: AUDIT}", model.DryRun_DRY_RUN_ALLOW),
		of("b", "{action: AUDIT, provider: {name: two}, rules: [{}]}", model.DryRun_DRY_RUN_AUDIT),
	}, nil, Requests)
	if len(s.Custom) != 2 || s.Custom[0].Provider != "one" || len(s.Custom[1].Rules.Policies) != 3 || s.Custom[1].Rules.Policies["istio-ext-authz-two-ns[shop]-policy[c3]-rule[1]"] == nil {
		t.Errorf("custom %v", s.Custom)
	}
	if refused := s.Custom[0].Refused(); refused.Action != rbacv3.RBAC_DENY || refused.Policies["istio-ext-authz-one-ns[shop]-policy[c2]-rule[0]-deny-due-to-bad-CUSTOM-action"] == nil {
		t.Errorf("refused %v", refused)
	}
	for name, c := range map[string]struct {
		rules  *rbacv3.RBAC
		action rbacv3.RBAC_Action
		count  int
	}{
		"audited": {s.Audit.Rules, rbacv3.RBAC_LOG, 1}, "audit, tried": {s.Audit.Shadow, rbacv3.RBAC_LOG, 1}, "denial, tried": {s.Deny.Shadow, rbacv3.RBAC_DENY, 2},
		"allowed": {s.Allow.Rules, rbacv3.RBAC_ALLOW, 1}, "allowed, tried": {s.Allow.Shadow, rbacv3.RBAC_ALLOW, 1},
	} {
		if c.rules == nil || c.rules.Action != c.action || len(c.rules.Policies) != c.count {
			t.Errorf("%s: %v", name, c.rules)
		}
	}
	if s.Deny.Rules != nil {
		t.Error("a dry run denies")
	}
}

// At a gateway a DENY policy of a host, and an ALLOW policy of all other hosts, hold for the host with a port and a
// trailing dot. In the other direction, and at workloads, the text counts.
func TestHostsAtGateways(t *testing.T) {
	forms := func(text string, of Traffic) int {
		deny, allow := Build([]*model.Policy{policy(t, "p", text)}, nil, of).Rules()
		if deny == nil {
			deny = allow
		}
		raw, err := protojson.Marshal(deny)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(raw), `(?i)`)
	}
	for text, want := range map[string]int{
		"{action: DENY, rules: [{to: [{operation: {hosts: [a.test, '*.b.test']}}]}]}":     2,
		"{action: DENY, rules: [{to: [{operation: {hosts: ['*', 'a.test:*']}}]}]}":        0,
		"{action: DENY, rules: [{to: [{operation: {notHosts: [a.test]}}]}]}":              0,
		"{action: ALLOW, rules: [{to: [{operation: {hosts: [a.test]}}]}]}":                0,
		"{action: ALLOW, rules: [{to: [{operation: {notHosts: [a.test, '*.b.test']}}]}]}": 2,
	} {
		if got := forms(text, GatewayRequests); got != want {
			t.Errorf("%s: %d hosts in any form, want %d", text, got, want)
		}
		if got := forms(text, Requests); got != 0 {
			t.Errorf("%s at a workload: %d hosts in any form", text, got)
		}
	}
}

// A host with a port matches with trailing dots and in upper case too. It matches no other port. A host without a port
// matches with any port.
func TestFormsOfHosts(t *testing.T) {
	for host, forms := range map[string][]struct {
		authority string
		want      bool
	}{
		"exact.test": {{"exact.test", true}, {"EXACT.test.", true}, {"exact.test:81", true}, {"exact.test.:81", true}, {"exact.test..", true},
			{"exact.test,other", true}, {"exact.test.net", false}},
		"exact.test:80": {{"exact.test:80", true}, {"EXACT.test.:80", true}, {"exact.test:8080", false}, {"exact.test", false}},
		"*.test:80":     {{"a.test:80", true}, {"a.test.:80", true}, {"a.test.", false}},
		"[::1]":         {{"[::1]", true}, {"[::1]:80", true}, {"[::2]", false}},
	} {
		permissions := anyForm(host).GetOrRules().GetRules()
		form := regexp.MustCompile("^(?:" + permissions[1].GetHeader().GetStringMatch().GetSafeRegex().GetRegex() + ")$")
		for _, f := range forms {
			if got := form.MatchString(f.authority); got != f.want {
				t.Errorf("%s, authority %s: %t, want %t", host, f.authority, got, f.want)
			}
		}
	}
}
