package access

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

func record(t *testing.T, kind model.Kind, namespace, text string) model.Record {
	t.Helper()
	body := map[model.Kind]proto.Message{model.KindGateway: &networkingv1.Gateway{}, model.KindDestinationRule: &networkingv1.DestinationRule{},
		model.KindEnvoyFilter: &networkingv1.EnvoyFilter{}, model.KindWasmPlugin: &extensionsv1.TrafficExtension{}, model.KindTrafficExtension: &extensionsv1.TrafficExtension{}, model.KindSecretReader: &model.SecretReaderSpec{}}[kind]
	if err := protojson.Unmarshal([]byte(text), body); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	r, err := model.New(model.Key{Kind: kind, Namespace: namespace, Name: "r"}, 0, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A binding in the identity's own namespace, or one for all namespaces, grants access to the subjects that it names; no
// other binding does.
func TestGranted(t *testing.T) {
	for accounts, want := range map[string]bool{"shop/one": true, "shop/*": true, "*/*": true, "shop/two": false, "bank/one": false, "bank/*": false, "*": false, "shop/o": false} {
		for namespace, counts := range map[string]bool{"shop": true, "": true, "bank": false, "istio-system": false} {
			s := mirror.Empty().Apply(1, []model.Record{record(t, model.KindSecretReader, namespace, `{"accounts": ["`+accounts+`"]}`)}, nil).New
			got, err := Snapshots{Current: func() *mirror.Snapshot { return s }}.MayListSecrets(t.Context(), one)
			if got.Allowed != (want && counts) || err != nil || got.Allowed == (got.Why != "") {
				t.Errorf("%q in namespace %q: %+v %v", accounts, namespace, got, err)
			}
		}
	}
}

// The Secrets that each kind of object refers to, and the workloads that it selects.
func TestUseOf(t *testing.T) {
	const filter = `"configPatches": [{"patch": {"value": {"a": [{"b": {"name": "%"}}, 1, null, "kubernetes"]}}}]`
	const target = `{"kind": "Gateway", "group": "gateway.networking.k8s.io", "name": `
	labels := map[string]string{"app": "gw", "tier": "edge", model.GatewayName: "front"}
	for _, c := range []struct {
		name, namespace string
		kind            model.Kind
		text            string
		want            Use
	}{
		{"a Gateway", "apps", model.KindGateway, `{"selector": {"app": "gw"}, "servers": [{}, {"tls": {"mode": "SIMPLE", "credentialName": "web"}}]}`, Referred},
		{"one of all proxies", "apps", model.KindGateway, `{"servers": [{"tls": {"mode": "OPTIONAL_MUTUAL", "credentialNames": ["x", "web"]}}]}`, Referred},
		{"by its long name", "apps", model.KindGateway, `{"servers": [{"tls": {"mode": "MUTUAL", "credentialName": "kubernetes-gateway://shop/web"}}]}`, Referred},
		{"of another namespace", "apps", model.KindGateway, `{"servers": [{"tls": {"mode": "MUTUAL", "credentialName": "kubernetes-gateway://bank/web"}}]}`, Unreferred},
		{"that selects others", "apps", model.KindGateway, `{"selector": {"app": "gw", "tier": "x"}, "servers": [{"tls": {"mode": "SIMPLE", "credentialName": "web"}}]}`, Unselected},
		{"that ends no TLS", "apps", model.KindGateway, `{"servers": [{"tls": {"credentialName": "web"}}]}`, Unreferred},
		{"another Secret", "apps", model.KindGateway, `{"servers": [{"tls": {"mode": "SIMPLE", "credentialName": "we"}}]}`, Unreferred},
		{"authorities alone", "apps", model.KindGateway, `{"servers": [{"tls": {"mode": "MUTUAL", "credentialName": "x", "caCertCredentialName": "web"}}]}`, Unreferred},
		{"a rule", "shop", model.KindDestinationRule, `{"workloadSelector": {"matchLabels": {"app": "gw"}}, "trafficPolicy": {"tls": {"mode": "MUTUAL", "credentialName": "web"}}}`, Referred},
		{"a subset's port", "shop", model.KindDestinationRule, `{"workloadSelector": {"matchLabels": {"app": "gw"}}, "subsets": [{}, {"trafficPolicy": {"portLevelSettings": [{"tls": {"credentialName": "web"}}]}}]}`, Referred},
		{"a rule for others", "shop", model.KindDestinationRule, `{"workloadSelector": {"matchLabels": {"app": "x"}}, "trafficPolicy": {"tls": {"credentialName": "web"}}}`, Unselected},
		{"a rule elsewhere", "bank", model.KindDestinationRule, `{"workloadSelector": {"matchLabels": {"app": "gw"}}, "trafficPolicy": {"tls": {"credentialName": "web"}}}`, Unreferred},
		{"a rule without selector", "shop", model.KindDestinationRule, `{"trafficPolicy": {"tls": {"credentialName": "web"}}}`, Referred},
		{"an exported rule", "bank", model.KindDestinationRule, `{"exportTo": ["*"], "trafficPolicy": {"tls": {"credentialName": "web"}}}`,
			Unreferred},
		{"a filter", "shop", model.KindEnvoyFilter, `{` + filter + `}`, Referred},
		{"the root's filter", "root", model.KindEnvoyFilter, `{` + filter + `, "workloadSelector": {"labels": {"tier": "edge"}}}`, Referred},
		{"a filter elsewhere", "bank", model.KindEnvoyFilter, `{` + filter + `}`, Unreferred},
		{"a filter for others", "shop", model.KindEnvoyFilter, `{` + filter + `, "workloadSelector": {"labels": {"tier": "x"}}}`, Unselected},
		// The credentials of a registry contain no private key.
		{"a module", "shop", model.KindWasmPlugin, `{"wasm": {"url": "r.example/m", "imagePullSecret": "web"}}`, Unreferred},
		{"a filter of a waypoint", "shop", model.KindEnvoyFilter, `{` + filter + `, "targetRefs": [{"kind": "Service", "name": "x"}]}`, Unreferred},
		{"a filter of another Gateway", "shop", model.KindEnvoyFilter, `{` + filter + `, "targetRefs": [` + target + `"x"}]}`, Unselected},
		{"a filter of a Gateway", "shop", model.KindEnvoyFilter, `{` + filter + `, "targetRefs": [` + target + `"x"}, ` + target + `"front"}]}`, Referred},
		{"a filter of the root namespace's Gateway", "root", model.KindEnvoyFilter, `{` + filter + `, "targetRefs": [` + target + `"front"}]}`, Unreferred},
	} {
		for form, is := range map[string]bool{"kubernetes://web": true, "kubernetes://shop/web": true, "kubernetes-gateway://shop/web": true,
			"web": false, "kubernetes-gateway://web": false, "kubernetes://bank/web": false, "kubernetes://shop/web/x": false} {
			want := c.want
			if c.kind == model.KindEnvoyFilter && !is {
				want = Unreferred
			}
			r := record(t, c.kind, c.namespace, strings.ReplaceAll(c.text, "%", form))
			sets := func() []map[string]string { return []map[string]string{{"app": "other"}, labels} }
			got := UseOf(slices.Values([]model.Record{r}), "root", one, "web", sets)
			if got != want {
				t.Errorf("%s, %s: %v, want %v", c.name, form, got, want)
			}
			unlabelled := UseOf(slices.Values([]model.Record{r}), "root", one, "web", func() []map[string]string { return nil })
			if !SelectsAll(Selectors(r)) && want > Unreferred && unlabelled != Unlabelled {
				t.Errorf("%s, of which no labels are known: %v", c.name, unlabelled)
			}
		}
	}
	if got := UseOf(maps.Values(map[int]model.Record{}), "root", view.Identity{Namespace: "shop"}, "web", nil); got != Unreferred {
		t.Errorf("by nothing: %v", got)
	}
}

// The Secrets that must exist: those with private keys and those with CA certificates, in the workload's namespace.
func TestSecretUses(t *testing.T) {
	const target = `{"kind": "Gateway", "group": "gateway.networking.k8s.io", "name": `
	edge := map[string]string{"app": "gw"}
	any := func(names ...string) (all []SecretUse) {
		for _, name := range names {
			all = append(all, SecretUse{Name: name, Selector: edge})
		}
		return all
	}
	for _, c := range []struct {
		name, namespace string
		kind            model.Kind
		text            string
		want            []SecretUse
	}{
		{"a Gateway", "apps", model.KindGateway, `{"selector": {"app": "gw"}, "servers": [{"tls": {"mode": "SIMPLE", "credentialName": "a"}}, {"tls": {"mode": "PASSTHROUGH", "credentialName": "x"}}]}`, any("a")},
		{"a mutual one", "apps", model.KindGateway, `{"selector": {"app": "gw"}, "servers": [{"tls": {"mode": "MUTUAL", "credentialNames": ["a", "b"], "caCertCredentialName": "ca"}}]}`, any("a", "b", "ca")},
		{"a mutual one with its own authorities", "apps", model.KindGateway, `{"selector": {"app": "gw"}, "servers": [{"tls": {"mode": "MUTUAL", "credentialNames": ["a", "b"]}}]}`, any("a", "b", "a-cacert", "b-cacert")},
		{"one with a ConfigMap", "apps", model.KindGateway, `{"selector": {"app": "gw"}, "servers": [{"tls": {"mode": "OPTIONAL_MUTUAL", "credentialName": "a", "caCertCredentialName": "configmap://trust/m-cacert"}}]}`,
			append(any("a"), SecretUse{Name: "m-cacert", Of: "trust", Selector: edge, ConfigMap: true}, SecretUse{Name: "m", Of: "trust", Selector: edge, ConfigMap: true})},
		{"a ConfigMap as a certificate", "apps", model.KindGateway, `{"servers": [{"tls": {"mode": "SIMPLE", "credentialName": "configmap://trust/m"}}]}`, nil},
		{"by the long name", "apps", model.KindGateway, `{"servers": [{"tls": {"mode": "SIMPLE", "credentialName": "kubernetes-gateway://edge/a"}}]}`, []SecretUse{{Namespace: "edge", Name: "a"}}},
		{"a rule", "apps", model.KindDestinationRule, `{"workloadSelector": {"matchLabels": {"app": "gw"}}, "trafficPolicy": {"tls": {"mode": "MUTUAL", "credentialName": "a"}}}`,
			[]SecretUse{{Namespace: "apps", Name: "a", Selector: edge}, {Namespace: "apps", Name: "a-cacert", Selector: edge}}},
		{"a rule for gateways", "apps", model.KindDestinationRule, `{"trafficPolicy": {"tls": {"mode": "MUTUAL", "credentialName": "a"}}}`,
			[]SecretUse{{Name: "a", Gateways: true}, {Name: "a-cacert", Gateways: true}}},
		{"a rule with a ConfigMap", "apps", model.KindDestinationRule, `{"subsets": [{"name": "s", "trafficPolicy": {"portLevelSettings": [{"tls": {"mode": "SIMPLE", "caCertCredentialName": "configmap://trust/m"}}]}}]}`,
			[]SecretUse{{Name: "m", Of: "trust", Gateways: true, ConfigMap: true}}},
		{"a filter", "apps", model.KindEnvoyFilter, `{"configPatches": [{"patch": {"value": {"a": "kubernetes://a-cacert", "b": "kubernetes-gateway://edge/x"}}}]}`,
			[]SecretUse{{Namespace: "apps", Name: "a"}, {Namespace: "apps", Name: "a-cacert"}}},
		{"a filter of all", "root", model.KindEnvoyFilter, `{"configPatches": [{"patch": {"value": {"b": "kubernetes-gateway://edge/x"}}}]}`, []SecretUse{{Namespace: "edge", Name: "x"}}},
		{"a module", "apps", model.KindWasmPlugin, `{"selector": {"matchLabels": {"app": "gw"}}, "wasm": {"url": "r.example/m", "imagePullSecret": "a"}}`,
			[]SecretUse{{Namespace: "apps", Name: "a", Selector: edge, Of: "apps"}}},
		{"a module for all", "root", model.KindTrafficExtension, `{"wasm": {"url": "oci://r.example/m", "imagePullSecret": "a"}}`, []SecretUse{{Name: "a", Of: "root"}}},
		{"a module that is no image", "root", model.KindTrafficExtension, `{"wasm": {"url": "https://r.example/m", "imagePullSecret": "a"}}`, nil},
		{"a module for waypoints", "apps", model.KindWasmPlugin, `{"targetRefs": [{"kind": "Service", "name": "g"}], "wasm": {"url": "r.example/m", "imagePullSecret": "a"}}`, nil},
		{"a module for Gateways", "root", model.KindWasmPlugin, `{"targetRefs": [` + target + `"g"}], "wasm": {"url": "r.example/m", "imagePullSecret": "a"}}`,
			[]SecretUse{{Namespace: "root", Name: "a", Selector: map[string]string{model.GatewayName: "g"}, Of: "root"}}},
	} {
		got := SecretUses(record(t, c.kind, c.namespace, c.text), "root")
		byName := func(a, b SecretUse) int {
			return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.Of, b.Namespace+"/"+b.Name+"/"+b.Of)
		}
		slices.SortFunc(got, byName)
		slices.SortFunc(c.want, byName)
		if !slices.EqualFunc(got, c.want, func(a, b SecretUse) bool {
			return byName(a, b) == 0 && maps.Equal(a.Selector, b.Selector) && a.Gateways == b.Gateways && a.ConfigMap == b.ConfigMap
		}) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Each use names the field that a problem of the Secret is reported for.
func TestFieldsOfUses(t *testing.T) {
	for text, want := range map[string]string{
		`{"servers": [{}, {"tls": {"mode": "MUTUAL", "credentialNames": ["x", "a"]}}]}`:                                              "spec.servers[1].tls.credentialNames[1]",
		`{"servers": [{"tls": {"mode": "SIMPLE", "credentialName": "a"}}]}`:                                                          "spec.servers[0].tls.credentialName",
		`{"servers": [{"tls": {"mode": "MUTUAL", "credentialName": "x", "caCertCredentialName": "a"}}]}`:                             "spec.servers[0].tls.caCertCredentialName",
		`{"servers": [{"tls": {"mode": "MUTUAL", "credentialName": "x", "caCertCredentialName": "configmap://trust/a"}}]}`:           "spec.servers[0].tls.caCertCredentialName",
		`{"subsets": [{"name": "s", "trafficPolicy": {"portLevelSettings": [{"tls": {"mode": "SIMPLE", "credentialName": "a"}}]}}]}`: "spec.subsets[0].trafficPolicy.portLevelSettings[0].tls.credentialName",
	} {
		kind := model.KindGateway
		if strings.Contains(text, "subsets") {
			kind = model.KindDestinationRule
		}
		got := ""
		for _, u := range SecretUses(record(t, kind, "apps", text), "root") {
			if u.Name == "a" {
				got = u.Field
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
