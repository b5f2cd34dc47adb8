package authz

import (
	"regexp"
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

func regex(re string) string { return uri("safe_regex: {regex: '" + re + "'}") }

// One rule of an ALLOW policy for HTTP: principals and permissions.
func TestRules(t *testing.T) {
	for _, c := range []struct{ name, rule, principal, permission string }{
		{"everything", "{}", anyone, anything},
		{"a principal, in all trust domains", "{from: [{source: {principals: [td/ns/a/sa/b]}}]}",
			"{or_ids: {ids: [" + uri("exact: 'spiffe://td/ns/a/sa/b'") + ", " + uri("exact: 'spiffe://old/ns/a/sa/b'") + "]}}", anything},
		{"a foreign principal", "{from: [{source: {principals: [other/ns/a/sa/b]}}]}", uri("exact: 'spiffe://other/ns/a/sa/b'"), anything},
		{"the end of a principal", "{from: [{source: {principals: ['*/sa/b']}}]}", uri("suffix: /sa/b"), anything},
		{"any principal", "{from: [{source: {principals: ['*']}}]}", regex(".+"), anything},
		{"namespaces", "{from: [{source: {namespaces: [a.b, c*]}}]}",
			"{or_ids: {ids: [" + regex(`.*/ns/a\.b/.*`) + ", " + regex(`.*/ns/c.*/.*`) + "]}}", anything},
		{"service accounts", "{from: [{source: {serviceAccounts: [b, a/c]}}]}",
			"{or_ids: {ids: [" + regex(`spiffe://.+/ns/shop/(.+/|)sa/b(/.+)?`) + ", " + regex(`spiffe://.+/ns/a/(.+/|)sa/c(/.+)?`) + "]}}", anything},
		{"trust domains", "{from: [{source: {trustDomains: [a.b, 'c*', '*d', '*'], notTrustDomains: [e]}}]}",
			"{and_ids: {ids: [{or_ids: {ids: [" + regex(`spiffe://a\.b/.*`) + ", " + regex(`spiffe://c[^/]*/.*`) + ", " + regex(`spiffe://[^/]*d/.*`) + ", " + regex(`spiffe://[^/]+/.*`) +
				"]}}, {not_id: " + regex(`spiffe://e/.*`) + "}]}}", anything},
		{"addresses", "{from: [{source: {ipBlocks: [10.1.2.3/8], notIpBlocks: [10.0.0.1]}}, {source: {remoteIpBlocks: ['fd00::/64']}}]}",
			"{or_ids: {ids: [{and_ids: {ids: [{direct_remote_ip: {address_prefix: 10.0.0.0, prefix_len: 8}}, {not_id: {direct_remote_ip: {address_prefix: 10.0.0.1, prefix_len: 32}}}]}}, {remote_ip: {address_prefix: 'fd00::', prefix_len: 64}}]}}", anything},
		{"an operation", "{to: [{operation: {methods: [GET], paths: [/a, '/b*'], notPaths: ['*.c'], hosts: ['*.d'], ports: ['80']}}]}", anyone,
			`{and_rules: {rules: [{destination_port: 80}, {header: {name: ':authority', string_match: {suffix: .d, ignore_case: true}}}, {header: {name: ':method', string_match: {exact: GET}}},
				{or_rules: {rules: [{url_path: {path: {exact: /a}}}, {url_path: {path: {prefix: /b}}}]}}, {not_rule: {url_path: {path: {suffix: .c}}}}]}}`},
		{"conditions", "{when: [{key: 'request.headers[x]', values: [v, '*']}, {key: destination.port, notValues: ['81']}, {key: source.namespace, notValues: [a]}]}",
			"{and_ids: {ids: [{or_ids: {ids: [{header: {name: x, string_match: {exact: v}}}, {header: {name: x, present_match: true}}]}}, {not_id: " + regex(`.*/ns/a/.*`) + "}]}}",
			"{not_rule: {destination_port: 81}}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			deny, allow := Rules([]*model.Policy{policy(t, "p", "{rules: ["+c.rule+"]}")}, &meshv1.MeshConfig{TrustDomain: "td", TrustDomainAliases: []string{"old"}}, true)
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

// Which identities a namespace and a service account mean: also those with further segments in their path, or a DENY policy
// would miss them.
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
		deny, _ := Rules([]*model.Policy{policy(t, "p", "{action: DENY, rules: [{from: [{source: {"+field+"}}]}]}")}, nil, true)
		principal := deny.GetPolicies()["ns[shop]-policy[p]-rule[0]"].GetPrincipals()[0]
		re := regexp.MustCompile("^(?:" + principal.GetAuthenticated().GetPrincipalName().GetSafeRegex().GetRegex() + ")$") // Envoy matches the whole
		for id, want := range identities {
			if got := re.MatchString(id); got != want {
				t.Errorf("%s matches %s: %v", field, id, got)
			}
		}
	}
}

// What several policies say together, and what is left of them where the connection is not HTTP.
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
		{"nothing is allowed", []string{"{}"}, false, -1, 0},
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
			deny, allow := Rules(all, nil, !c.tcp)
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
