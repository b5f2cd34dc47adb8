package normal

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

func meshMap(mesh, networks string) string {
	indent := func(s string) string { return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ") }
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata:\n  mesh: |\n" + indent(mesh) + "\n  meshNetworks: |\n" + indent(networks) + "\n"
}

func TestMeshOverDefaults(t *testing.T) {
	got := testNormal.ParseMesh(read(t, meshMap(`
enableAutoMtls: false
connectTimeout: 500ms
defaultServiceExportTo: ["."]
defaultVirtualServiceExportTo: []
outboundTrafficPolicy: {mode: REGISTRY_ONLY}
accessLogFile: /dev/stdout
`, "networks: {}")))
	wantProblems(t, got.Problems)
	want := model.MeshDefaults()
	want.EnableAutoMtls.Value = false
	want.ConnectTimeout.Seconds, want.ConnectTimeout.Nanos = 0, 5e8
	want.DefaultServiceExportTo = []string{"."}
	want.DefaultVirtualServiceExportTo = nil
	want.OutboundTrafficPolicy.Mode = 0
	want.AccessLogFile = "/dev/stdout"
	if !proto.Equal(got.Config, want) {
		t.Errorf("got %v\nwant %v", got.Config, want)
	}
	empty := testNormal.ParseMesh(read(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}"))
	if !proto.Equal(empty.Config, model.MeshDefaults()) || len(empty.Problems) > 0 {
		t.Errorf("an empty ConfigMap gives %v, %v", empty.Config, empty.Problems)
	}
}

func TestMeshProblems(t *testing.T) {
	for _, c := range []struct {
		mesh, want string
		usable     bool
	}{
		{"accesLogFile: x", "warning data.mesh.accesLogFile: unknown field", true},
		{"defaultConfig: {discoveryAddres: x}", "warning data.mesh.defaultConfig.discoveryAddres: unknown field", true},
		{"a: [", "data.mesh: |yaml", false},
		{"connectTimeout: x", `data.mesh.connectTimeout: "x" is not a duration`, false},
		{"trustDomain: a\ntrustDomain: b", "data.mesh: |already set", false},
		{"proxyListenPort: 99999", "data.mesh.proxyListenPort: port 99999", false},
		{"proxyHttpPort: 15002", "", true},
		{"proxyHttpPort: -1", "data.mesh.proxyHttpPort: port 4294967295", false},
		{"proxyHttpPort: 15006", "data.mesh.proxyHttpPort: port 15006 is the proxy", false},
		{"- a", "data.mesh: must be an object", false},
		{"localityLbSetting: {distribute: [{from: a, to: {b: 50}}]}", "data.mesh.localityLbSetting.distribute[0].to: the weights add up to 50", false},
		// accepted by istiod
		{"defaultHttpRetryPolicy: {attempts: 0, retryOn: 5xx}", "warning data.mesh.defaultHttpRetryPolicy.attempts: ", true},
		{"localityLbSetting: {failover: [{from: a, to: b/c}]}", "warning data.mesh.localityLbSetting.failover[0]: ", true},
		{"serviceSettings: [{settings: {clusterLocal: true}, hosts: [a.b.svc.cluster.local]}]", "", true},
		{"serviceSettings: [{settings: {clusterLocal: true}, hosts: [a b]}]", "warning data.mesh.serviceSettings[0].hosts[0]: |no service has this host", true},
		{"serviceSettings: [{settings: {clusterLocal: true}}]", "warning data.mesh.serviceSettings[0].hosts: is empty", true},
	} {
		got := testNormal.ParseMesh(read(t, meshMap(c.mesh, "networks: {a: {endpoints: [{fromRegistry: k}]}}")))
		var want []string
		if c.want != "" {
			want = append(want, c.want)
		}
		wantProblems(t, got.Problems, want...)
		if (got.Config != nil) != c.usable || got.Networks == nil {
			t.Errorf("%s: config %v, networks %v", c.mesh, got.Config, got.Networks)
		}
	}
	got := testNormal.ParseMesh(read(t, meshMap("{}", "networks: {a: {endpoints: [{fromCidr: x}]}}")))
	wantProblems(t, got.Problems, "data.meshNetworks.networks[a].endpoints[0].fromCidr: |no CIDR")
	if got.Config == nil || got.Networks != nil {
		t.Error("bad networks must spoil the networks and nothing else")
	}
	if New(Options{Revision: "canary"}).MeshID() != (object.ID{Kind: "ConfigMap", Namespace: "istio-system", Name: "istio-canary"}) {
		t.Error("a revision has a ConfigMap of its own")
	}
}

// Certificates of other CAs are accepted as PEM; fields of them without effect are reported.
func TestCACertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	good := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	secret := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	for _, c := range []struct {
		fields map[string]any
		taken  bool
		want   []string
	}{
		{map[string]any{"pem": good}, true, nil},
		{map[string]any{"pem": good + good}, true, nil},
		{map[string]any{"pem": "x"}, false, []string{"warning data.mesh.caCertificates[0].pem: is not PEM with certificates only"}},
		{map[string]any{"pem": good + secret}, false, []string{"warning data.mesh.caCertificates[0].pem: is not PEM with certificates only"}},
		{map[string]any{"pem": good + "x"}, false, []string{"warning data.mesh.caCertificates[0].pem: is not PEM with certificates only"}},
		{map[string]any{"spiffeBundleUrl": "https://a"}, false, []string{"warning data.mesh.caCertificates[0].spiffeBundleUrl: is not acted on by this version: nothing is fetched"}},
		{map[string]any{"pem": good, "certSigners": []string{"a/b"}, "trustDomains": []string{"t"}}, true,
			[]string{"warning data.mesh.caCertificates[0].trustDomains: is not acted on", "warning data.mesh.caCertificates[0].certSigners: "}},
	} {
		text, err := json.Marshal(map[string]any{"caCertificates": []any{c.fields}})
		if err != nil {
			t.Fatal(err)
		}
		got := testNormal.ParseMesh(read(t, meshMap(string(text), "{}")))
		wantProblems(t, got.Problems, c.want...)
		if by, other := SignerCertificates(got.Config, "a/b"), SignerCertificates(got.Config, "a"); len(by) > 0 != (c.fields["certSigners"] != nil) || len(other) > 0 {
			t.Errorf("%v: of the signer %q, of another %q", c.fields, by, other)
		}
		if taken := CACertificates(got.Config); (len(taken) == 1 && taken[0] == c.fields["pem"]) != c.taken {
			t.Errorf("%v: taken %q", c.fields, taken)
		}
	}
}

// If Kubernetes signers sign, certificates that name them have an effect.
func TestCertSigners(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"caCertificates": []any{map[string]any{"certSigners": []string{"a/b"}, "pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}}})
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, New(Options{Signers: true}).ParseMesh(read(t, meshMap(string(text), "{}"))).Problems)
	wantProblems(t, New(Options{}).ParseMesh(read(t, meshMap(string(text), "{}"))).Problems, "warning data.mesh.caCertificates[0].certSigners: no signers")
}
