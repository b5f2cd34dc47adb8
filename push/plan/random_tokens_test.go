package plan

import (
	"encoding/base64"
	"fmt"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
)

// token makes, changes or deletes a RequestAuthentication, or a CUSTOM policy.
func (m *mesh) token() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.tokens.IntN(len(from))] }
	key := model.Key{Kind: model.KindRequestAuthentication, Namespace: pick("a", "b", "istio-system"), Name: pick("t0", "t1")}
	var message proto.Message = &securityv1.RequestAuthentication{JwtRules: []*securityv1.JWTRule{{Issuer: pick("i", "j"), Jwks: pick("", "{}", "{\"keys\": []}")}}}
	if m.tokens.IntN(2) == 0 {
		key.Kind = model.KindAuthorizationPolicy
		message = &securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_CUSTOM, Rules: []*securityv1.Rule{{}},
			ActionDetail: &securityv1.AuthorizationPolicy_Provider{Provider: &securityv1.AuthorizationPolicy_ExtensionProvider{Name: pick("one", "one", "other")}}}
	}
	if old, ok := m.records[key]; ok && m.tokens.IntN(3) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		m.t.Fatal(err)
	}
	put = rec(m.t, key.Kind, key.Namespace+"/"+key.Name, fmt.Sprintf("{closed: %s, meshWide: %v, selector: {%s}, istio: '%s'}", pick("false", "false", "false", "true"),
		key.Namespace == "istio-system", pick("", "app: s0", "app: s1"), base64.StdEncoding.EncodeToString(raw)))
	m.records[key] = put
	return put, model.Key{}
}

// providers are what CUSTOM policies name, where there are some.
func (m *mesh) providers() string {
	if m.tokens == nil {
		return ""
	}
	return ", extensionProviders: [{name: one, envoyExtAuthzGrpc: {service: s2.a.svc.cluster.local, port: 80}}, {name: other, envoyExtAuthzHttp: {service: a/ext.example.com, port: 80}}]"
}
