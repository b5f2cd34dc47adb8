package inspect

import (
	"encoding/base64"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/xds"
)

// Of a Secret what is public is shown, and nothing else, wherever Envoy's API has room for it.
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
