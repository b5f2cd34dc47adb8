package judge

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	meshv1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A record that blocks traffic gets a warning when it is applied: a CUSTOM policy with an unknown provider, or a module
// that navarch-agent does not fetch.
func TestJudgeWarnsOfWhatCloses(t *testing.T) {
	provider := func(name, service string) *meshv1.MeshConfig_ExtensionProvider {
		return &meshv1.MeshConfig_ExtensionProvider{Name: name, Provider: &meshv1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc{
			EnvoyExtAuthzGrpc: &meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider{Service: service, Port: 9000}}}
	}
	mesh, err := model.New(model.MeshKey, 0, &meshv1.MeshConfig{ExtensionProviders: []*meshv1.MeshConfig_ExtensionProvider{
		provider("good", "authz.shop"), provider("gone", "gone.shop"), provider("twice", "twice")}})
	if err != nil {
		t.Fatal(err)
	}
	service := func(namespace, host string) model.Record {
		r, err := model.New(model.Key{Kind: model.KindService, Namespace: namespace, Name: "authz"}, 0, &model.ServiceSpec{Hosts: []string{host}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	known := mirror.Empty().Apply(1, []model.Record{mesh, service("shop", "authz.shop"), service("a", "twice"), service("b", "twice")}, nil).New
	policy := func(provider string) model.Record {
		raw, err := proto.Marshal(&securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_CUSTOM, Rules: []*securityv1.Rule{{}},
			ActionDetail: &securityv1.AuthorizationPolicy_Provider{Provider: &securityv1.AuthorizationPolicy_ExtensionProvider{Name: provider}}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := model.New(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "shop", Name: "p"}, 0, &model.PolicySpec{Istio: raw})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	module := func(kind model.Kind, wasm *extensionsv1.WasmConfig) model.Record {
		r, err := model.New(model.Key{Kind: kind, Namespace: "shop", Name: "w"}, 0,
			&extensionsv1.TrafficExtension{FilterConfig: &extensionsv1.TrafficExtension_Wasm{Wasm: wasm}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, c := range map[string]struct {
		r     model.Record
		known *mirror.Snapshot
		want  string // empty: nothing
	}{
		"a provider that is there": {policy("good"), known, ""},
		"no such provider":         {policy("bad"), known, `spec.provider.name: "bad" cannot be queried: MeshConfig has no valid extensionProviders`},
		"no service of it":         {policy("gone"), known, `there is no service "gone.shop"; requests that the policy matches are refused`},
		"services of two":          {policy("twice"), known, `services of 2 namespaces have the host "twice"`},
		"nothing is known":         {policy("bad"), nil, ""},
		"an image":                 {module(model.KindWasmPlugin, &extensionsv1.WasmConfig{Url: "ghcr.io/a/b:1"}), nil, "spec.url: does not load with navarch-agent (proxies whose agent does not fetch images)"},
		"an image that may be missing": {module(model.KindTrafficExtension, &extensionsv1.WasmConfig{Url: "oci://ghcr.io/a/b:1", FailStrategy: extensionsv1.FailStrategy_FAIL_OPEN}), nil,
			"passes without it"},
		"a module with its sum":    {module(model.KindWasmPlugin, &extensionsv1.WasmConfig{Url: "https://example.com/a.wasm", Sha256: strings.Repeat("0", 64)}), nil, ""},
		"a module without its sum": {module(model.KindWasmPlugin, &extensionsv1.WasmConfig{Url: "https://example.com/a.wasm"}), nil, "the traffic that it matches is refused"},
	} {
		refused, warned := Record(c.r, c.known)
		said := ""
		for _, err := range warned {
			said += err.Error() + "\n"
		}
		if len(refused) > 0 || (c.want == "") != (said == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: refused %v, warned %q, want %q", name, refused, said, c.want)
		}
	}
}
