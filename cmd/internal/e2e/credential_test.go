package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// pem1 encodes one PEM block.
func pem1(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// siteUntil returns a site whose certificate is valid from and to these times from now.
func siteUntil(t *testing.T, serial int64, from, to time.Duration) site {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"site.test"},
		NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return site{cert: pem1("CERTIFICATE", der), key: pem1("PRIVATE KEY", private)}
}

// enormous returns a site with an RSA key of 15,636 bits, of two Mersenne primes. Envoy takes it.
func enormous(t *testing.T) site {
	t.Helper()
	one := big.NewInt(1)
	p, q := new(big.Int).Sub(new(big.Int).Lsh(one, 4423), one), new(big.Int).Sub(new(big.Int).Lsh(one, 11213), one)
	key := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537}, Primes: []*big.Int{p, q}}
	key.D = new(big.Int).ModInverse(big.NewInt(65537), new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one)))
	key.Precompute()
	template := &x509.Certificate{SerialNumber: one, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return site{cert: pem1("CERTIFICATE", der), key: pem1("PRIVATE KEY", private)}
}

// credential returns the Secret of a site as YAML.
func credential(name string, s site) string {
	encode := func(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) }
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: %s, namespace: shop}
data: {tls.crt: %s, tls.key: %s}
`, name, encode(s.cert), encode(s.key))
}

// clientsOf makes an authority with two clients, one of which it has revoked, as a ConfigMap.
func clientsOf(t *testing.T, name string) (configMap string, good, revoked tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte(name),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(serial int64) tls.Certificate {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		leaf := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			Subject: pkix.Name{CommonName: "client"}}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &own.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}
	}
	good, revoked = issue(2), issue(3)
	entries := []x509.RevocationListEntry{{SerialNumber: big.NewInt(3), RevocationTime: ca.NotBefore}}
	list, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), RevokedCertificateEntries: entries,
		ThisUpdate: ca.NotBefore, NextUpdate: ca.NotAfter}, ca, key)
	if err != nil {
		t.Fatal(err)
	}
	indent := func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") }
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: trust}
data:
  ca.crt: |
    %s
  ca.crl: |
    %s
`, name, indent(pem1("CERTIFICATE", raw)), indent(pem1("X509 CRL", list))), good, revoked
}

// handshake connects to a server by name, without verification of its certificate, and returns the certificate's
// serial number. Envoy ends a connection with a client certificate that it refuses after the handshake.
func handshake(address, name string, client ...tls.Certificate) (int64, error) {
	//nolint:gosec // the serial number tells which certificate it is
	conn, err := tls.Dial("tcp", address, &tls.Config{ServerName: name, InsecureSkipVerify: true, Certificates: client})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name); err != nil {
		return 0, err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return 0, err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// presents returns a check of the serial number that a server presents.
func presents(address, name string, serial int64) func() error {
	return func() error {
		got, err := handshake(address, name)
		if err == nil && got != serial {
			err = fmt.Errorf("%s: certificate %d, want %d", name, got, serial)
		}
		return err
	}
}

var pushed = regexp.MustCompile(`(?m)^pilot_xds_pushes\{[^}]*type="(\w+)"[^}]*\} (\S+)$`)

// pushes returns the numbers of responses so far: of Secrets, and of all other types, as text.
func pushes(t *testing.T, d *daemon) (secrets, others string) {
	t.Helper()
	page, err := get(d.monitoring, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range pushed.FindAllStringSubmatch(page, -1) {
		if m[1] == "sds" {
			secrets = m[2]
		} else {
			others += m[1] + " " + m[2] + "; "
		}
	}
	return secrets, others
}

// credentialGateway has three hosts on one port, the third without a Secret at first, and a port for clients of an
// authority in a ConfigMap.
const credentialGateway = `
apiVersion: v1
kind: Pod
metadata: {name: gateway-0, namespace: shop, labels: {app: gateway}}
spec: {serviceAccountName: gateway}
status: {podIP: %[1]s, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec:
  selector: {app: gateway}
  servers:
  - {bind: %[1]s, port: {number: 8443, name: site, protocol: HTTPS}, hosts: [site.test], tls: {mode: SIMPLE, credentialName: site}}
  - {bind: %[1]s, port: {number: 8443, name: late, protocol: HTTPS}, hosts: [late.test], tls: {mode: SIMPLE, credentialName: late}}
  - {bind: %[1]s, port: {number: 8443, name: old, protocol: HTTPS}, hosts: [old.test], tls: {mode: SIMPLE, credentialName: old}}
  - bind: %[1]s
    port: {number: 8444, name: mutual, protocol: HTTPS}
    hosts: [mutual.test]
    tls: {mode: MUTUAL, credentialName: site, caCertCredentialName: "configmap://trust/clients"}
`

// A missing Secret delays neither the other hosts of its port nor readiness, and is used as soon as it is there. A
// rotated one moves SDS alone. A hostile or broken one is not sent: the certificate before it stays in use, and the
// Secret and the Gateway have a problem. A ConfigMap has the authorities of clients, and their revocation list.
// Promise: security-gateways.md#keys-secrets-and-configmaps
func TestGatewayCredentials(t *testing.T) {
	parallel(t)
	ip := loopback.NetFor(t) + ".7"
	data, dir := t.TempDir(), t.TempDir()
	clients, good, revoked := clientsOf(t, "clients")
	write(t, dir, "services.yaml", services)
	write(t, dir, "gateway.yaml", fmt.Sprintf(credentialGateway, ip))
	write(t, dir, "clients.yaml", clients)
	write(t, dir, "site.yaml", credential("site", newSite(t, 101)))
	write(t, dir, "old.yaml", credential("old", siteUntil(t, 301, -2*time.Hour, -time.Hour)))
	write(t, dir, "readers.yaml", readers("gateway"))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	gateway := runAgent(t, d, data, filepath.Join(data, "root-cert.pem"), "gateway", ip, "--type", "router")
	address, mutual := ip+":8443", ip+":8444"

	eventually(t, patience, presents(address, "site.test", 101))
	eventually(t, patience, func() error {
		page, err := gateway.page()
		if err == nil && !page.Ready {
			err = fmt.Errorf("not ready with a missing Secret: %s", page.NotReady)
		}
		return err
	})
	stats, err := envoytest.Stats(gateway.admin)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range stats {
		if strings.HasSuffix(name, "init_fetch_timeout") && n > 0 {
			t.Errorf("Envoy has waited for what is missing: %s %d", name, n)
		}
	}
	if _, err := handshake(address, "late.test"); err == nil {
		t.Error("a host without a certificate is served")
	}
	if err := presents(address, "old.test", 301)(); err != nil {
		t.Errorf("an expired certificate is better than none: %v", err)
	}
	d.hasProblem(t, "Secret", "shop/old", "data.tls.crt", "the certificate has expired at")
	d.hasProblem(t, "Gateway", "shop/front", "spec.servers[2].tls.credentialName",
		"Secret shop/old: data.tls.crt: the certificate has expired at")
	if _, err := handshake(mutual, "mutual.test", good); err != nil {
		t.Errorf("a client of the ConfigMap's authority: %v", err)
	}
	refused := map[string][]tls.Certificate{"none": nil, "a revoked one": {revoked}, "one of another authority": {newSite(t, 9).pair}}
	for name, client := range refused {
		if _, err := handshake(mutual, "mutual.test", client...); err == nil {
			t.Errorf("a client with %s is admitted", name)
		}
	}

	moves := func(what, file, text string, check func() error) {
		t.Helper()
		secrets, others := pushes(t, d)
		write(t, dir, file, text)
		eventually(t, patience, check)
		if now, rest := pushes(t, d); now == secrets || rest != others {
			t.Errorf("%s: %s responses with Secrets, then %s; others %s, then %s", what, secrets, now, others, rest)
		}
	}
	moves("the missing one", "late.yaml", credential("late", newSite(t, 201)), presents(address, "late.test", 201))
	moves("a rotation", "site.yaml", credential("site", newSite(t, 102)), presents(address, "site.test", 102))
	refuseHostile(t, d, dir, address)
	if err := os.Remove(filepath.Join(dir, "late.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { // absent for a proxy that starts now
		names := []string{"kubernetes://late", "kubernetes://site", "configmap://trust/clients"}
		sent, removed, err := secretsAs(t, d, data, names...)
		if err == nil && (len(sent) != 2 || len(removed) != 1) {
			err = fmt.Errorf("sent %q, removed %q", sent, removed)
		}
		return err
	})
	if err := presents(address, "late.test", 201)(); err != nil {
		t.Errorf("a Secret that was deleted: %v", err)
	}
	moves("after all that", "site.yaml", credential("site", newSite(t, 103)), presents(address, "site.test", 103))

	write(t, dir, "readers.yaml", readers("nobody"))
	eventually(t, patience, func() error { // absent for a proxy without the right
		sent, removed, err := secretsAs(t, d, data, "kubernetes://site")
		if err == nil && (len(sent) != 0 || len(removed) != 1) {
			err = fmt.Errorf("sent %q, removed %q", sent, removed)
		}
		return err
	})
	if err := presents(address, "site.test", 103)(); err != nil {
		t.Errorf("a Secret whose right was withdrawn: %v", err)
	}
}

// secretsAs asks for Secrets as another Pod of the gateway does.
func secretsAs(t *testing.T, d *daemon, data string, names ...string) (sent, removed []string, err error) {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
	if err != nil {
		return nil, nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	creds := credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"})
	ctx := bearer(t.Context(), token(t, data, "shop", "gateway"))
	return secretsOf(t, creds, ctx, d.secure, router("shop", "gateway", "10.1.7.9"), names...)
}

// refuseHostile writes Secrets that must not be sent, one after the other: nothing is sent, and the host keeps its
// certificate 102.
func refuseHostile(t *testing.T, d *daemon, dir, address string) {
	t.Helper()
	fine, other := newSite(t, 104), newSite(t, 105)
	long, foreign := fine, fine
	long.cert += strings.Repeat(other.cert, 1<<20/len(other.cert))
	foreign.key = other.key
	for _, c := range []struct {
		what         string
		of           site
		field, cause string
	}{
		{"RSA 15636", enormous(t), "data.tls.crt", "has an RSA key of 15636 bits: want 2048 to 8192"},
		{"a megabyte of chain", long, "data", "has"},
		{"expired", siteUntil(t, 106, -2*time.Hour, -time.Hour), "data.tls.crt", "the certificate has expired at"},
		{"another's key", foreign, "data.tls.key", "the private key does not belong to the certificate in data.tls.crt"},
	} {
		secrets, others := pushes(t, d)
		write(t, dir, "site.yaml", credential("site", c.of))
		d.hasProblem(t, "Secret", "shop/site", c.field, c.cause)
		d.hasProblem(t, "Gateway", "shop/front", "spec.servers[0].tls.credentialName", "Secret shop/site: "+c.field+": "+c.cause)
		if err := presents(address, "site.test", 102)(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if now, rest := pushes(t, d); now != secrets || rest != others {
			t.Errorf("%s: something was sent: Secrets %s, then %s; others %s, then %s", c.what, secrets, now, others, rest)
		}
	}
}
