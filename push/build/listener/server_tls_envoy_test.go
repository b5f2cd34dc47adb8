package listener

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/envoytest"
)

// withSecrets makes secrets of an authority's files the answers to all requests for secrets over ADS: each name is the
// name of a certificate's file, ca-cacert stands for the authority itself.
func withSecrets(t *testing.T, b envoytest.Bootstrap, ours authority, names ...string) envoytest.Bootstrap {
	t.Helper()
	static := b["static_resources"].(map[string]any)
	file := func(name string) map[string]any { return map[string]any{"filename": ours.file(name)} }
	all := []any{map[string]any{"name": "kubernetes://ca-cacert", "validation_context": map[string]any{"trusted_ca": file("ca")}}}
	for _, name := range names {
		own := map[string]any{"certificate_chain": file(name), "private_key": file(name + ".key")}
		all = append(all, map[string]any{"name": "kubernetes://" + name, "tls_certificate": own})
	}
	static["secrets"] = all
	for i, listener := range static["listeners"].([]any) {
		var whole any
		if err := json.Unmarshal(listener.(json.RawMessage), &whole); err != nil {
			t.Fatal(err)
		}
		envoytest.SDS(whole, func(_ string, source map[string]any) map[string]any {
			if source["ads"] != nil {
				return nil // the secret is that of the bootstrap
			}
			return source
		})
		static["listeners"].([]any)[i] = whole
	}
	return b
}

// credentialServer is an HTTPS server whose certificates and authorities are Secrets.
func credentialServer(t *testing.T, name string, edit func(*ServerTLS)) ServerChain {
	s := httpServer(stock(t), "r", name)
	s.TLS = ServerTLS{Mode: mutual, Secrets: secrets.List(ads("kubernetes://ec")...), Trust: Secret{Name: "kubernetes://ca-cacert"}}
	edit(&s.TLS)
	return s
}

// credentialGateway starts an Envoy with these servers and an application that recognises client.test. The result calls
// a server: what comes back is the kind of the server's key, and the answer; or that the server refuses.
func credentialGateway(t *testing.T, ours authority, chains ...ServerChain) func(config *tls.Config) (key, reply string) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("X-Forwarded-Client-Cert"), "DNS=client.test") {
			fmt.Fprint(w, "known")
		}
	}))
	t.Cleanup(app.Close)
	port, l := at(t, gatewayOf(t, stock(t), chains...))
	bootstrap := fold(t, inboundRoutes("r", "v", "app", "o", false), map[string]int{"app": app.Listener.Addr().(*net.TCPAddr).Port}, l)
	envoytest.Start(t, withSecrets(t, bootstrap, ours, "rsa", "ec")).Live()
	return func(config *tls.Config) (key, reply string) {
		config.InsecureSkipVerify = true
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), config)
		if err != nil {
			return "", "refused"
		}
		return conn.ConnectionState().PeerCertificates[0].PublicKeyAlgorithm.String(), answer(t, conn)
	}
}

// credentials makes the RSA and the ECDSA certificate of two.test.
func credentials(t *testing.T) authority {
	ours := newAuthority(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ours.issueTo("ec", "two.test", ours.newKey())
	ours.issueTo("rsa", "two.test", key)
	return ours
}

// The client of a server with an RSA and an ECDSA certificate (credentialNames) is shown the one that it can verify.
func TestTwoCertificatesThroughEnvoy(t *testing.T) {
	two := func(s *ServerTLS) {
		// Ciphers of TLS 1.2 name the kind of key. Go's clients of TLS 1.3 offer both kinds always.
		*s = ServerTLS{Mode: simple, Secrets: secrets.List(ads("kubernetes://rsa", "kubernetes://ec")...), Most: networkingv1.ServerTLSSettings_TLSV1_2}
	}
	call := credentialGateway(t, credentials(t), credentialServer(t, "two.test", two), credentialServer(t, "unnamed.test", two))
	const ofRSA, ofECDSA = tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	for _, check := range []struct {
		what, name string
		offers     []uint16
		want       string
	}{
		{"RSA alone", "two.test", []uint16{ofRSA}, "RSA 200 "},
		{"ECDSA alone", "two.test", []uint16{ofECDSA}, "ECDSA 200 "},
		{"both", "two.test", []uint16{ofRSA, ofECDSA}, "ECDSA 200 "},
		{"both, and neither certificate has the name", "unnamed.test", []uint16{ofRSA, ofECDSA}, "RSA 200 "}, // the first one
	} {
		key, reply := call(&tls.Config{ServerName: check.name, CipherSuites: check.offers})
		if got := key + " " + reply; got != check.want {
			t.Errorf("%s: got %q, want %q", check.what, got, check.want)
		}
	}
}

// Clients without and with a certificate at servers that request one, and that state names or pins of certificates.
func TestClientCertificatesThroughEnvoy(t *testing.T) {
	ours, theirs := credentials(t), newAuthority(t)
	known, other, stranger := ours.issue("client.test"), ours.issue("other.test"), theirs.issue("client.test")
	leaf, err := x509.ParseCertificate(known.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	key, hash := sha256.Sum256(leaf.RawSubjectPublicKeyInfo), sha256.Sum256(leaf.Raw)
	keys := strs.List(base64.StdEncoding.EncodeToString(key[:]))
	servers := map[string]func(*ServerTLS){
		"optional":        func(s *ServerTLS) { s.Mode = optional },
		"optional, names": func(s *ServerTLS) { s.Mode, s.Clients = optional, strs.List("client.test") },
		"optional, a pin": func(s *ServerTLS) { s.Mode, s.Keys = optional, keys },
		"unverified":      func(s *ServerTLS) { s.Mode, s.Unverified = optional, true },
		"names":           func(s *ServerTLS) { s.Clients = strs.List("client.test", "another.test") },
		"a key":           func(s *ServerTLS) { s.Keys = keys },
		"a hash":          func(s *ServerTLS) { s.Hashes = strs.List(hex.EncodeToString(hash[:])) },
		"colons":          func(s *ServerTLS) { s.Hashes = strs.List(strings.ReplaceAll(fmt.Sprintf("% X", hash[:]), " ", ":")) },
		"malformed":       func(s *ServerTLS) { s.Hashes, s.Keys = strs.List("aa:bb"), strs.List("short") },
	}
	host := func(server string) string { return strings.NewReplacer(",", "", " ", "-").Replace(server) + ".test" }
	var chains []ServerChain
	for name, edit := range servers {
		chains = append(chains, credentialServer(t, host(name), edit))
	}
	call := credentialGateway(t, ours, chains...)
	const anonymous, named, refused = "200 ", "200 known", "refused"
	for name, want := range map[string][4]string{ // without a certificate, of client.test, of another name, of another authority
		"optional":        {anonymous, named, anonymous, refused},
		"optional, names": {refused, named, refused, refused}, // Envoy requires a certificate that it can compare
		"optional, a pin": {refused, named, refused, refused},
		"unverified":      {anonymous, named, anonymous, named},
		"names":           {refused, named, refused, refused},
		"a key":           {refused, named, refused, refused},
		"a hash":          {refused, named, refused, refused},
		"colons":          {refused, named, refused, refused},
		"malformed":       {refused, refused, refused, refused},
	} {
		for i, shown := range [][]tls.Certificate{nil, {known}, {other}, {stranger}} {
			if _, got := call(&tls.Config{ServerName: host(name), Certificates: shown}); got != want[i] {
				t.Errorf("%s, client %d: got %q, want %q", name, i, got, want[i])
			}
		}
	}
}
