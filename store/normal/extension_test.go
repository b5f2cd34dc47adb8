package normal

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// A WasmPlugin becomes the equivalent part of a TrafficExtension.
func TestWasmPlugin(t *testing.T) {
	r := testNormal.Object(read(t, istio("WasmPlugin", `
selector: {matchLabels: {app: web}}
url: registry:5000/image:1
sha256: `+strings.Repeat("a", 64)+`
imagePullPolicy: Always
pluginName: root
pluginConfig: {limit: 1}
phase: AUTHZ
priority: 7
failStrategy: FAIL_OPEN
type: NETWORK
match: [{mode: CLIENT, ports: [{number: 80}]}]
vmConfig: {env: [{name: HOME, valueFrom: HOST}]}
`)), &fake{})
	wantProblems(t, r.Problems)
	wantBody(t, r, key(model.KindWasmPlugin, "x"), `
selector: {matchLabels: {app: web}}
phase: AUTHZ
priority: 7
match: [{mode: CLIENT, ports: [{number: 80}]}]
wasm:
  url: registry:5000/image:1
  sha256: `+strings.Repeat("a", 64)+`
  imagePullPolicy: Always
  pluginName: root
  pluginConfig: {limit: 1}
  failStrategy: FAIL_OPEN
  type: NETWORK
  vmConfig: {env: [{name: HOME, valueFrom: HOST}]}
`)
}

// Values that Istio's definitions or its webhook refuse spoil the object.
func TestExtensionProblems(t *testing.T) {
	target := "{kind: Gateway, group: gateway.networking.k8s.io, name: a}"
	for _, c := range []struct{ kind, spec, field string }{
		{"WasmPlugin", "{}", "spec.url"},
		{"WasmPlugin", "{url: 'ftp://a/b'}", "spec.url"},
		{"WasmPlugin", "{url: 'http://a b/'}", "spec.url"},
		{"WasmPlugin", "{url: 'https:///b'}", "spec.url"},
		{"WasmPlugin", "{url: 'file://'}", "spec.url"},
		{"WasmPlugin", "{url: 'http://a:65536/b'}", "spec.url"},
		{"WasmPlugin", "{url: 'a:0/b'}", "spec.url"},
		{"WasmPlugin", "{url: a, sha256: abc}", "spec.sha256"},
		{"WasmPlugin", "{url: a, sha256: " + strings.Repeat("A", 64) + "}", "spec.sha256"},
		{"WasmPlugin", "{url: a, pluginName: " + strings.Repeat("n", 257) + "}", "spec.pluginName"},
		{"WasmPlugin", "{url: a, selector: {matchLabels: {app: '*'}}}", "spec.selector.matchLabels"},
		{"WasmPlugin", "{url: a, match: [{ports: [{number: 0}]}]}", "spec.match[0].ports[0].number"},
		{"WasmPlugin", "{url: a, match: [{mode: CLIENT}, {ports: [{number: 65536}]}]}", "spec.match[1].ports[0].number"},
		{"WasmPlugin", "{url: a, vmConfig: {env: [{value: b}]}}", "spec.vmConfig.env[0].name"},
		{"WasmPlugin", "{url: a, vmConfig: {env: [{name: b}, {name: b}]}}", "spec.vmConfig.env[1].name"},
		{"WasmPlugin", "{url: a, vmConfig: {env: [{name: b, valueFrom: HOST, value: c}]}}", "spec.vmConfig.env[0].value"},
		{"TrafficExtension", "{}", "spec"},
		{"TrafficExtension", "{lua: {}}", "spec.lua.inlineCode"},
		{"TrafficExtension", "{lua: {inlineCode: " + strings.Repeat("x", maxLua+1) + "}}", "spec.lua.inlineCode"},
		{"TrafficExtension", "{wasm: {}}", "spec.wasm.url"},
		{"TrafficExtension", "{wasm: {url: a, vmConfig: {env: [{name: b}, {name: b}]}}}", "spec.wasm.vmConfig.env[1].name"},
		{"TrafficExtension", "{lua: {inlineCode: x}, selector: {}, targetRefs: [" + target + "]}", "spec.targetRefs"},
	} {
		r := testNormal.Object(read(t, istio(c.kind, c.spec)), &fake{})
		found := ""
		for _, p := range r.Problems {
			if p.Severity == problem.Error {
				found += p.Field + " "
			}
		}
		if !r.Spoiled || found != c.field+" " {
			t.Errorf("%s %.60s: errors at %q, want %s", c.kind, c.spec, found, c.field)
		}
	}
}
