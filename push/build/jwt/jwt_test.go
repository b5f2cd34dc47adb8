package jwt

import (
	"crypto/ecdsa"
	"encoding/json"
	"testing"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
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
	m := &securityv1.RequestAuthentication{}
	unyaml(t, text, m)
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	r, err := model.New(model.Key{Kind: model.KindRequestAuthentication, Namespace: "shop", Name: name}, 0, &model.PolicySpec{Istio: raw})
	if err != nil {
		t.Fatal(err)
	}
	return r.(*model.Policy)
}

// The setting of the filter for each field of a rule, and the combined requirement of several rules.
func TestFilter(t *testing.T) {
	const metadata = "payload_in_metadata: payload, normalize_payload_in_metadata: {space_delimited_claims: [permission, scope]}"
	for _, c := range []struct {
		name, want string
		policies   []string
	}{
		{"no rules", "", []string{"{}", "{selector: {matchLabels: {a: b}}}"}},
		{"all fields of one rule", `{providers: {origins-0: {issuer: i, audiences: [a, b], from_headers: [{name: X-Token, value_prefix: 'Bearer '}], from_params: [p], from_cookies: [c], forward: true,
			forward_payload_header: x-payload, claim_to_headers: [{header_name: x-sub, claim_name: sub}], payload_in_metadata: payload,
			normalize_payload_in_metadata: {space_delimited_claims: [groups, permission, scope]}, local_jwks: {inline_string: KEYS}}},
			rules: [{match: {prefix: /}, requires: {requires_any: {requirements: [{provider_name: origins-0}, {allow_missing: {}}]}}}], bypass_cors_preflight: true}`,
			[]string{`{jwtRules: [{issuer: i, audiences: [a, b], jwks: KEYS, fromHeaders: [{name: X-Token, prefix: 'Bearer '}], fromParams: [p], fromCookies: [c], forwardOriginalToken: true,
			outputPayloadToHeader: x-payload, outputClaimToHeaders: [{header: x-sub, claim: sub}], spaceDelimitedClaims: [scope, groups]}]}`}},
		{"two rules, sorted by issuer", `{providers: {origins-0: {issuer: i, local_jwks: {inline_string: A}, ` + metadata + `}, origins-1: {issuer: j, local_jwks: {inline_string: B}, ` + metadata + `}},
			rules: [{match: {prefix: /}, requires: {requires_any: {requirements: [{provider_name: origins-0}, {provider_name: origins-1}, {requires_all: {requirements: [
			{requires_any: {requirements: [{provider_name: origins-0}, {allow_missing: {}}]}}, {requires_any: {requirements: [{provider_name: origins-1}, {allow_missing: {}}]}}]}}]}}}],
			bypass_cors_preflight: true}`, []string{"{jwtRules: [{issuer: j, jwks: B}]}", "{jwtRules: [{issuer: i, jwks: A}]}"}},
		{"a required one", `{providers: {origins-0: {issuer: i, local_jwks: {inline_string: A}, ` + metadata + `}},
			rules: [{match: {prefix: /}, requires: {provider_name: origins-0}}], bypass_cors_preflight: true}`, []string{"{jwtRules: [{issuer: i, jwks: A, presence: REQUIRED}]}"}},
		{"two required ones, and one at another place", `{providers: {origins-0: {issuer: i, local_jwks: {inline_string: A}, ` + metadata + `}, origins-1: {issuer: j, local_jwks: {inline_string: B}, ` + metadata + `},
			origins-2: {issuer: k, from_params: [p], local_jwks: {inline_string: C}, ` + metadata + `}},
			rules: [{match: {prefix: /}, requires: {requires_all: {requirements: [{provider_name: origins-0}, {provider_name: origins-1}, {requires_any: {requirements: [{provider_name: origins-2}, {allow_missing: {}}]}}]}}}],
			bypass_cors_preflight: true}`, []string{"{jwtRules: [{issuer: k, jwks: C, fromParams: [p]}, {issuer: j, jwks: B, presence: REQUIRED}]}", "{jwtRules: [{issuer: i, jwks: A, presence: REQUIRED}]}"}},
		{"a required one where another one may stand", `{providers: {origins-0: {issuer: i, local_jwks: {inline_string: A}, ` + metadata + `}, origins-1: {issuer: j, local_jwks: {inline_string: B}, ` + metadata + `}},
			rules: [{match: {prefix: /}, requires: {requires_all: {requirements: [{provider_name: origins-0}, {requires_any: {requirements: [{provider_name: origins-1}, {provider_name: origins-0}]}}]}}}],
			bypass_cors_preflight: true}`, []string{"{jwtRules: [{issuer: i, jwks: A, presence: REQUIRED}, {issuer: j, jwks: B, presence: OPTIONAL}]}"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []*model.Policy
			for i, text := range c.policies {
				all = append(all, policy(t, string(rune('a'+i)), text))
			}
			got := Filter(all, false)
			if c.want == "" {
				if got != nil {
					t.Error(got)
				}
				return
			}
			want := &jwtv3.JwtAuthentication{}
			unyaml(t, c.want, want)
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if err := got.ValidateAll(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The key of a provider without keys decodes, is a point of its curve, and is equal in every process.
func TestNoKeys(t *testing.T) {
	got := Filter([]*model.Policy{policy(t, "a", "{jwtRules: [{issuer: i, jwksUri: 'https://i/keys'}]}")}, true)
	if !got.Providers["origins-0"].ClearRouteCache {
		t.Error("claims decide routes, and the route is not chosen again")
	}
	text := got.Providers["origins-0"].GetLocalJwks().GetInlineString()
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		t.Fatal(text, err)
	}
	if key, ok := set.Keys[0].Key.(*ecdsa.PublicKey); len(set.Keys) != 1 || !ok || !set.Keys[0].Valid() || key.Curve == nil {
		t.Errorf("%s", text)
	}
}
