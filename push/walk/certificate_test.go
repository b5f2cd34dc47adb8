package walk

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/xds"
)

// issuer issues certificates that are valid for an hour around a time.
type issuer struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newIssuer(t *testing.T, at time.Time) issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: at.Add(-24 * time.Hour), NotAfter: at.Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err == nil {
		of, err = x509.ParseCertificate(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return issuer{t, key, of}
}

// holds returns what a proxy holds that has a certificate of this issuer, valid for an hour around a time, and accepts
// another issuer's.
func (i issuer) holds(id string, at time.Time, accepts issuer) *Messages {
	uri, err := url.Parse(id)
	if err != nil {
		i.t.Fatal(err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: at.Add(-time.Hour),
		NotAfter: at.Add(time.Hour), URIs: []*url.URL{uri}}, i.cert, i.key.Public(), i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	inline := func(der []byte) *corev3.DataSource {
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
	}
	return holding(
		&tlsv3.Secret{Name: xds.SDSDefault, Type: &tlsv3.Secret_TlsCertificate{
			TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(raw)}}},
		&tlsv3.Secret{Name: xds.SDSRoot, Type: &tlsv3.Secret_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(accepts.cert.Raw)}}})
}

// The certificates that both proxies hold decide on the handshake: their times, their authorities and the server's
// name. Unknown certificates decide nothing. TestCertificatesBetweenProxies of push/plan compares with Envoys.
func TestCertificatesHeld(t *testing.T) {
	now := time.Now()
	mesh, other := newIssuer(t, now), newIssuer(t, now)
	const web, api = "spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/shop/sa/api"
	good := mesh.holds(web, now, mesh)
	for _, c := range []struct {
		name           string
		client, server *Messages
		at             time.Time
		want           string
	}{
		{"both are good", good, mesh.holds(api, now, mesh), now, ""},
		{"the client's has ended", mesh.holds(web, now.Add(-2*time.Hour), mesh), mesh.holds(api, now, mesh), now, "the certificate of the client's proxy ended"},
		{"the server's has ended", good, mesh.holds(api, now.Add(-2*time.Hour), mesh), now, "the certificate of the server's proxy ended"},
		{"the server's begins later", good, mesh.holds(api, now.Add(2*time.Hour), mesh), now, "the certificate of the server's proxy begins"},
		{"at no time", good, mesh.holds(api, now.Add(-2*time.Hour), mesh), time.Time{}, ""},
		{"the server is of another authority", good, other.holds(api, now, mesh), now, "the client's proxy does not accept the authority of the server's"},
		{"the client is of another authority", other.holds(web, now, mesh), mesh.holds(api, now, mesh), now, "the server's proxy does not accept the authority of the client's"},
		{"another server", good, mesh.holds(web, now, mesh), now, "the client's proxy expects " + api + ", and the server's certificate is that of " + web},
		{"nothing is known", &Messages{}, &Messages{}, now, ""},
		{"the client is not known", &Messages{}, other.holds(api, now, mesh), now, ""},
	} {
		call := Call{}
		got := call.handshakeFails(Peer{Held: c.client}, Peer{Held: c.server}, Upstream{Mode: "mtls", Root: xds.SDSRoot, Names: []string{api}}, c.at)
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if known := c.server.Secret(xds.SDSDefault) != nil; c.want == "" && known != slices.ContainsFunc(call.TLS, func(line string) bool {
			return strings.HasPrefix(line, "the server holds the certificate of spiffe://") && strings.Contains(line, ", which ends ")
		}) {
			t.Errorf("%s: %q", c.name, call.TLS)
		}
	}
}

// A gRPC request is known by its content type, and gets the statuses that Envoy maps.
func TestGRPCStatus(t *testing.T) {
	for of, want := range map[string]bool{"application/grpc": true, "application/grpc+proto": true, "application/grpc-web": false, "": false} {
		if got := IsGRPC(map[string]string{"content-type": of}); got != want {
			t.Errorf("%q: %v", of, got)
		}
	}
	for status, want := range map[int]string{400: "13 (Internal)", 401: "16 (Unauthenticated)", 403: "7 (PermissionDenied)",
		404: "12 (Unimplemented)", 503: "14 (Unavailable)", 200: "2 (Unknown)", 301: "2 (Unknown)"} {
		if got := statusText(status, true); got != "gRPC status "+want {
			t.Errorf("%d: %s", status, got)
		}
	}
}
