package extension

import (
	"errors"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
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

// wants compares a resource with the expected one, without its version, which is the record's hash.
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
		{"one that it needs a credential for, and has none", "{wasm: {url: 'r:5000/b', imagePullSecret: pull}}", true,
			wasm + `name: NAME, failure_policy: FAIL_CLOSED, vm_config: {runtime: envoy.wasm.runtime.v8,
				environment_variables: {key_values: {ISTIO_META_WASM_IMAGE_PULL_SECRET: '', ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION: HASH}},
				code: {remote: {http_uri: {uri: 'oci://r:5000/b', timeout: 30s, cluster: _}}}}}}`},
		{"no image", "{wasm: {url: 'https://r/b', imagePullSecret: pull}}", true,
			wasm + `name: NAME, failure_policy: FAIL_CLOSED, vm_config: {runtime: envoy.wasm.runtime.v8,
				environment_variables: {key_values: {ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION: HASH}},
				code: {remote: {http_uri: {uri: 'https://r/b', timeout: 30s, cluster: _}}}}}}`},
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

// Agents receive the credential for the registry of the image, and no other. The version reveals nothing of the
// credential, and changes with the credential and the configuration.
// Promise: security-workloads.md#identity-and-private-keys
func TestPulled(t *testing.T) {
	of := func(url, mac, credentials string) (*xds.Resource, error) {
		spec := &extensionsv1.TrafficExtension{}
		fromYAML(t, "{wasm: {url: '"+url+"', imagePullSecret: pull}}", spec)
		key := model.PrivateKey(credentials)
		return Pulled{record(t, model.KindWasmPlugin, spec).(*model.TrafficExtension),
			record(t, model.KindSecret, &model.SecretSpec{Registries: []string{"r:5000"}, Mac: []byte(mac)}).(*model.Secret), &key}.Build()
	}
	const both = `{"auths": {"r:5000": {"auth": "hunter2"}, "other": {"auth": "hunter3"}}, "credsStore": "run-me"}`
	first, err := of("r:5000/b", "mac", both)
	if err != nil || !first.Confidential {
		t.Fatal(first, err)
	}
	got, wasm := &corev3.TypedExtensionConfig{}, &httpwasmv3.Wasm{}
	if err := errors.Join(proto.Unmarshal(first.Body(), got), got.GetTypedConfig().UnmarshalTo(wasm)); err != nil {
		t.Fatal(err)
	}
	if have := wasm.GetConfig().GetVmConfig().GetEnvironmentVariables().GetKeyValues()["ISTIO_META_WASM_IMAGE_PULL_SECRET"]; have != `{"auths":{"r:5000":{"auth":"hunter2"}}}` {
		t.Errorf("the agent is given %s", have)
	}
	for what, other := range map[string]struct {
		url, mac, credentials string
		same                  bool
	}{
		"the same":      {"r:5000/b", "mac", both, true},
		"unseen":        {"r:5000/b", "mac", strings.Replace(both, "hunter2", "hunter4", 1), true}, // never so: the MAC is of the credentials
		"another MAC":   {"r:5000/b", "other", both, false},
		"another image": {"r:5000/c", "mac", both, false},
	} {
		if r, err := of(other.url, other.mac, other.credentials); err != nil || (r.Version == first.Version) != other.same {
			t.Errorf("%s: %v, version %v, at first %s", what, err, r, first.Version)
		}
	}
	if _, err := of("else/b.example/c", "mac", both); err == nil || !strings.HasPrefix(err.Error(), "Secret shop/x: data") || strings.Contains(err.Error(), "hunter") {
		t.Errorf("a registry without credentials: %v", err)
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
