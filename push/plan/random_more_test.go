package plan

import (
	"encoding/base64"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
)

// token makes, changes or deletes a RequestAuthentication or a CUSTOM policy.
func (m *mesh) token() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.tokens.IntN(len(from))] }
	key := model.Key{Kind: model.KindRequestAuthentication, Namespace: pick("a", "b", "istio-system"), Name: pick("t0", "t1")}
	var message proto.Message = &securityv1.RequestAuthentication{JwtRules: []*securityv1.JWTRule{{Issuer: pick("i", "j"), Jwks: pick("", aKey("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"), aKey("MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"))}}}
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

// authorizers returns the providers that CUSTOM policies name, if the mesh has any.
func (m *mesh) authorizers() []string {
	if m.tokens == nil {
		return nil
	}
	return []string{"{name: one, envoyExtAuthzGrpc: {service: s2.a.svc.cluster.local, port: 80}}", "{name: other, envoyExtAuthzHttp: {service: a/ext.example.com, port: 80}}"}
}

// aKey returns a key set with one point of the curve P-256.
func aKey(x, y string) string {
	return fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","x":%q,"y":%q}]}`, x, y)
}

// gateways makes, changes or deletes the gateways of networks.
func (m *mesh) gateways() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.nets.IntN(len(from))] }
	key := model.MeshGatewaysKey
	if m.nets.IntN(2) == 0 {
		key = model.Key{Kind: model.KindNetworkGateways, Namespace: "istio-system", Name: "gw"}
	}
	if old, ok := m.records[key]; ok && m.nets.IntN(2) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	put = rec(m.t, key.Kind, key.Namespace+"/"+key.Name, fmt.Sprintf("gateways: [{network: %s, address: 192.0.2.1, port: 15443}%s]", pick("n1", "n2"),
		pick("", ", {network: n2, address: 192.0.2.2, port: 15443}", ", {network: n1, cluster: west, address: 192.0.2.3, port: 443}")))
	m.records[key] = put
	return put, model.Key{}
}

// joined makes, changes or deletes one of two ServiceEntries of one host, which may be one service, or the workloads
// that are its endpoints; one of these may be a proxy.
func (m *mesh) joined() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.join.IntN(len(from))] }
	name := pick("j0", "j1")
	key := model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: name}
	text := fmt.Sprintf("{hosts: [joined.example.com], exportTo: ['%s'], resolution: %s, addresses: [%s], ports: [%s]}", pick("*", "*", "*", "a"),
		pick("RESOLUTION_EDS", "RESOLUTION_EDS", "RESOLUTION_DNS"), pick("", "10.96.0.3", "10.96.0.4"),
		pick("{name: http, number: 80, protocol: PROTOCOL_HTTP}", "{name: tcp, number: 9000, protocol: PROTOCOL_TCP}",
			"{name: tls, number: 443, protocol: PROTOCOL_TLS}, {name: web, number: 80, protocol: PROTOCOL_HTTP}"))
	if m.join.IntN(2) == 0 {
		key.Kind, key.Name = model.KindEndpoints, model.ServiceEntryPrefix+name
		text = fmt.Sprintf("{hosts: [joined.example.com], ports: [{name: http, number: %s}, {name: tcp, number: 9000}], endpoints: [{address: 10.1.0.%s}]}",
			pick("80", "8080"), pick("1", "1", "77"))
	}
	if old, ok := m.records[key]; ok && m.join.IntN(4) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	put = rec(m.t, key.Kind, key.Namespace+"/"+key.Name, text)
	m.records[key] = put
	return put, model.Key{}
}

// extensions makes, changes or deletes a WasmPlugin or TrafficExtension.
func (m *mesh) extensions() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.exts.IntN(len(from))] }
	kind := []model.Kind{model.KindWasmPlugin, model.KindTrafficExtension}[m.exts.IntN(2)]
	key := model.Key{Kind: kind, Namespace: pick("a", "b", "istio-system"), Name: pick("e0", "e1")}
	if old, ok := m.records[key]; ok && m.exts.IntN(3) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	filter := fmt.Sprintf("wasm: {url: '%s', type: %s, failStrategy: %s, pluginName: %s}", pick("file:///m.wasm", "oci://r/i:1"), pick("HTTP", "NETWORK"),
		pick("FAIL_OPEN", "FAIL_CLOSE"), pick("one", "two"))
	if m.pulls != nil {
		filter = strings.TrimSuffix(filter, "}") + ", imagePullSecret: " + []string{"''", "pull", "pull", "other"}[m.pulls.IntN(4)] + "}"
	}
	if kind == model.KindTrafficExtension && m.exts.IntN(2) == 0 {
		filter = "lua: {inlineCode: '" + pick("--one", "--two") + "'}"
	}
	put = rec(m.t, kind, key.Namespace+"/"+key.Name, fmt.Sprintf("{selector: {matchLabels: {%s}}, phase: %s, priority: %s, match: [%s], %s}",
		pick("", "app: s0", "version: v1"), pick("AUTHN", "AUTHZ", "STATS", "UNSPECIFIED"), pick("1", "2"),
		pick("", "{mode: CLIENT}", "{mode: SERVER}", "{ports: [{number: 80}]}, {mode: SERVER, ports: [{number: 8080}]}"), filter))
	m.records[key] = put
	return put, model.Key{}
}

// credentials makes, changes or deletes a Secret for downloading modules.
func (m *mesh) credentials() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.pulls.IntN(len(from))] }
	key := model.Key{Kind: model.KindSecret, Namespace: pick("a", "b", "istio-system"), Name: pick("pull", "pull", "other")}
	if old, ok := m.records[key]; ok && m.pulls.IntN(4) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	put = rec(m.t, key.Kind, key.Namespace+"/"+key.Name, fmt.Sprintf("{registries: [%s], key: '%s', mac: '%s'}", pick("index.docker.io", "index.docker.io, r.example", "r.example"),
		pick("eA==", "eQ=="), pick("eA==", "eQ==")))
	m.records[key] = put
	return put, model.Key{}
}

// bootstrap makes, changes or deletes an EnvoyFilter for the bootstrap. It depends on the clock, so that the other
// random edits do not depend on it.
func (m *mesh) bootstrap() (put model.Record, del model.Key) {
	key := model.Key{Kind: model.KindEnvoyFilter, Namespace: "a", Name: "bootstrap"}
	if old, ok := m.records[key]; ok && m.clock%4 == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	selected := []string{"", "app: s0", "app: gw"}[m.clock%3]
	put = rec(m.t, key.Kind, "a/bootstrap", fmt.Sprintf("{workloadSelector: {labels: {%s}}, configPatches: [{applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {stats_flush_interval: %ds}}}]}",
		selected, 1+m.clock%2))
	m.records[key] = put
	return put, model.Key{}
}

// ended returns the protocol of an ingress listener, and the TLS that it terminates.
func (m *mesh) ended() (protocol, tls string) {
	if !m.files || m.ends.IntN(2) == 0 {
		return "HTTP", ""
	}
	return []string{"HTTPS", "TLS"}[m.ends.IntN(2)], []string{", tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}",
		", tls: {mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /ca}"}[m.ends.IntN(2)]
}

// proxyPort returns the port of the HTTP proxy, if there is one.
func (m *mesh) proxyPort() string {
	if m.ends == nil {
		return ""
	}
	return []string{"", ", proxyHttpPort: 15002", ", proxyHttpPort: 80"}[m.ends.IntN(3)]
}

// excluded returns the hosts that an egress listener excludes.
func (m *mesh) excluded() []string {
	if m.without == nil || m.without.IntN(2) == 0 {
		return nil
	}
	return [][]string{{"~a/*"}, {"~./*"}, {"~*/*.b.svc.cluster.local"}, {"~*/*.com", "~b/s0.b.svc.cluster.local"}, {"~*/s1.a.svc.cluster.local"}, {"~a/*.example.com"}}[m.without.IntN(6)]
}

// byName returns a mesh's mode for unknown hosts with its TLS; ALLOW_ANY may become a mode that resolves their names.
func (m *mesh) byName(mode string) string {
	if m.unknown == nil || mode != "ALLOW_ANY" {
		return mode
	}
	return []string{mode, "ALLOW_ANY_DYNAMIC_DNS", "ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE}", "ALLOW_ANY_DYNAMIC_DNS, tls: {mode: DISABLE}"}[m.unknown.IntN(4)]
}
