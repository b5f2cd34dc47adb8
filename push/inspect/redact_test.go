package inspect

import (
	"encoding/base64"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
)

// The public parts of a Secret are shown, and no others, wherever Envoy's API has a Secret.
func TestSecretsAreRedacted(t *testing.T) {
	of := func(text string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(text)}}
	}
	chain := base64.StdEncoding.EncodeToString([]byte("public"))
	for name, c := range map[string]struct {
		secret *tlsv3.Secret
		want   string
	}{
		"pair": {&tlsv3.Secret{Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: of("public"), PrivateKey: of("hunter2"),
			Pkcs12: of("hunter2"), Password: of("hunter2")}}}, chain},
		"trust":        {&tlsv3.Secret{Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: of("public"), Crl: of("crl")}}}, chain},
		"ticket keys":  {&tlsv3.Secret{Type: &tlsv3.Secret_SessionTicketKeys{SessionTicketKeys: &tlsv3.TlsSessionTicketKeys{Keys: []*corev3.DataSource{of("hunter2")}}}}, redacted},
		"anything":     {&tlsv3.Secret{Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: of("hunter2")}}}, redacted},
		"several more": {&tlsv3.Secret{Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secrets: map[string]*corev3.DataSource{"a": of("hunter2")}}}}, redacted},
	} {
		c.secret.Name = "kubernetes://site"
		r, err := xds.Encode(xds.Secret, c.secret.Name, c.secret)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := JSON(r)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		if !strings.Contains(text, c.want) || !strings.Contains(text, c.secret.Name) ||
			strings.Contains(text, "hunter2") || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("hunter2"))) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// The configuration of a module is shown without the credential for its registry, on every page that has it.
// Promise: security-workloads.md#identity-and-private-keys
func TestCredentialsAreRedacted(t *testing.T) {
	config := func(filter proto.Message) *xds.Resource {
		r, err := xds.EncodeAs(xds.Extension, "e", "v", &corev3.TypedExtensionConfig{Name: "e", TypedConfig: xds.Any(filter)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	vm := &wasmv3.PluginConfig{Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{Runtime: "public", EnvironmentVariables: &wasmv3.EnvironmentVariables{
		KeyValues: map[string]string{extension.PullSecretVariable: "hunter2", "OTHER": "shown"}}}}}
	for _, filter := range []proto.Message{&httpwasmv3.Wasm{Config: vm}, &networkwasmv3.Wasm{Config: vm}} {
		r := config(filter)
		text, err := JSON(r)
		page, bad := asAny(r)
		if err != nil || bad != nil || !strings.Contains(string(text), redacted) || !strings.Contains(string(text), "shown") || strings.Contains(string(text)+page.String(), "hunter2") {
			t.Errorf("%s %v, %s %v", text, err, page, bad)
		}
	}
	if text, err := JSON(config(&wasmv3.PluginConfig{Name: "hunter2"})); err == nil || strings.Contains(string(text)+err.Error(), "hunter2") {
		t.Errorf("what is no module's: %s %v", text, err)
	}
}
