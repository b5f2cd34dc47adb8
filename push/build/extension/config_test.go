package extension

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	_ "navarch.io/navarch/push/build/patch/envoytypes"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

func fromYAML(t *testing.T, text string, into proto.Message) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

func record(t *testing.T, kind model.Kind, spec proto.Message) model.Record {
	t.Helper()
	r, err := model.New(model.Key{Kind: kind, Namespace: "shop", Name: "x"}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wants compares a resource with what Envoy is to be sent, the version that is the record's hash left out.
func wants(t *testing.T, r *xds.Resource, err error, want string) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	got, expected := &corev3.TypedExtensionConfig{}, &corev3.TypedExtensionConfig{}
	if err := proto.Unmarshal(r.Body(), got); err != nil {
		t.Fatal(err)
	}
	fromYAML(t, want, expected)
	if r.Type != xds.Extension || r.Name != got.Name || !proto.Equal(got, expected) {
		t.Errorf("%v %s:\n%s\nwant\n%s", r.Type, r.Name, protojson.Format(got), protojson.Format(expected))
	}
}

const wasm = `{"@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm, config: {`

func TestConfig(t *testing.T) {
	sum := strings.Repeat("a", 64)
	for _, c := range []struct {
		name, spec string
		byAgent    bool
		want       string
	}{
		{"Lua", "{lua: {inlineCode: code}}", false,
			`{"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: code}}`},
		{"a file", "{wasm: {url: 'file:///a/b.wasm', failStrategy: FAIL_OPEN, pluginName: root, pluginConfig: {b: <, a: 1}}}", false,
			wasm + `name: NAME, root_id: root, failure_policy: FAIL_OPEN, configuration: {"@type": type.googleapis.com/google.protobuf.StringValue, value: '{"a":1,"b":"<"}'},
				vm_config: {runtime: envoy.wasm.runtime.v8, code: {local: {filename: /a/b.wasm}}}}}`},
		{"a module that Envoy fetches", "{wasm: {url: 'https://m.example.com/b', sha256: " + sum + ", imagePullPolicy: Always, vmConfig: {env: [{name: A, value: b}, {name: C, valueFrom: HOST}]}}}", false,
			wasm + `name: NAME, failure_policy: FAIL_CLOSED, vm_config: {runtime: envoy.wasm.runtime.v8, environment_variables: {key_values: {A: b}, host_env_keys: [C]},
				code: {remote: {sha256: ` + sum + `, http_uri: {uri: 'https://m.example.com/b', timeout: 30s, cluster: outbound|443||m.example.com}}}}}}`},
		{"at a port", "{wasm: {url: 'http://m.example.com:81/b', sha256: " + sum + ", failStrategy: FAIL_RELOAD}}", false,
			wasm + `name: NAME, failure_policy: FAIL_RELOAD, vm_config: {runtime: envoy.wasm.runtime.v8,
				code: {remote: {sha256: ` + sum + `, http_uri: {uri: 'http://m.example.com:81/b', timeout: 30s, cluster: outbound|81||m.example.com}}}}}}`},
		{"an image that the agent fetches", "{wasm: {url: 'r:5000/b', type: NETWORK, imagePullPolicy: Always}}", true,
			strings.Replace(wasm, "http.wasm", "network.wasm", 1) + `name: NAME, failure_policy: FAIL_CLOSED, vm_config: {runtime: envoy.wasm.runtime.v8,
				environment_variables: {key_values: {ISTIO_META_WASM_IMAGE_PULL_POLICY: Always, ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION: HASH}},
				code: {remote: {http_uri: {uri: 'oci://r:5000/b', timeout: 30s, cluster: _}}}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := &extensionsv1.TrafficExtension{}
			fromYAML(t, c.spec, spec)
			e := record(t, model.KindWasmPlugin, spec).(*model.TrafficExtension)
			const name = "extenstions.istio.io/wasmplugin/shop.x"
			want := strings.NewReplacer("NAME", name, "HASH", "'"+e.Hash.String()+"'").Replace("name: " + name + "\ntyped_config: " + c.want)
			r, err := Config{e, c.byAgent}.Build()
			wants(t, r, err, want)
		})
	}
	other := &extensionsv1.TrafficExtension{}
	fromYAML(t, "{wasm: {url: 'https://a/b'}}", other)
	if _, err := (Config{Extension: record(t, model.KindTrafficExtension, other).(*model.TrafficExtension)}).Build(); err == nil {
		t.Error("a module that Envoy is to fetch without knowing its sum is taken")
	}
}

func TestAdded(t *testing.T) {
	of := func(value string) Added {
		spec := &networkingv1.EnvoyFilter{}
		fromYAML(t, "configPatches: [{applyTo: EXTENSION_CONFIG, patch: {operation: ADD, value: "+value+"}}]", spec)
		return Added{model.Patch{Filter: record(t, model.KindEnvoyFilter, spec).(*model.EnvoyFilter)}}
	}
	const lua = `{"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: a}}`
	r, err := of("{name: mine, typed_config: " + lua + "}").Build()
	wants(t, r, err, "{name: mine, typed_config: "+lua+"}")
	for _, bad := range []string{"{}", "{name: mine}", "{typed_config: " + lua + "}", "{name: mine, typed_config: {'@type': type.googleapis.com/no.Such}}", "{nome: a}"} {
		if _, err := of(bad).Build(); err == nil || !strings.HasPrefix(err.Error(), "EnvoyFilter shop/x: spec.configPatches[0].patch.value") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
