package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"
)

// token makes a token from the data directory with navarchctl, as a developer does.
func token(t testing.TB, data, namespace, account string) string {
	t.Helper()
	out, err := exec.Command(binary(t, "navarchctl"), "token", "create", "--data-dir", data, "--namespace", namespace, "--service-account", account).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// bearer returns a context with a token.
func bearer(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// signed requests a certificate with the credential of the context and the connection.
func signed(ctx context.Context, t *testing.T, address string, conf *tls.Config) (tls.Certificate, []string, error) {
	t.Helper()
	return signedOver(ctx, t, address, credentials.NewTLS(conf))
}

// lasting is the key of a context's value: the requested lifetime of a certificate.
type lasting struct{}

func signedOver(ctx context.Context, t *testing.T, address string, creds credentials.TransportCredentials) (tls.Certificate, []string, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	life, _ := ctx.Value(lasting{}).(time.Duration)
	res, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &securityv1.IstioCertificateRequest{
		ValidityDuration: int64(life / time.Second),
		Csr:              string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
	})
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pair := tls.Certificate{PrivateKey: key}
	for _, text := range res.CertChain[:len(res.CertChain)-1] {
		block, _ := pem.Decode([]byte(text))
		pair.Certificate = append(pair.Certificate, block.Bytes)
	}
	return pair, res.CertChain, nil
}

// A workload gets its certificate with a token, from the service name of stock agents, and then has that identity. xDS
// on the secure address requires a credential, and serves a proxy only to its own identity. The certificate is renewed.
// Signing keys survive a restart, sealed.
// Promise: security-keys.md#the-power-of-each-key, security-workloads.md#identity-and-private-keys
func TestIdentity(t *testing.T) {
	parallel(t)
	data, dir := t.TempDir(), folder(t)
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, serves(t, d, 1))
	var roots *x509.CertPool
	eventually(t, patience, func() error {
		text, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM(text)
		return err
	})
	conf := &tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"}
	mine := token(t, data, "shop", "client")

	pair, chain, err := signed(bearer(t.Context(), mine), t, d.secure, conf)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://cluster.local/ns/shop/sa/client" {
		t.Errorf("names %v", leaf.URIs)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if last := chain[len(chain)-1]; !strings.HasPrefix(last, "-----BEGIN CERTIFICATE-----\n") || !strings.HasSuffix(last, "\n") {
		t.Errorf("the root bundle is %q", last)
	}
	refusals(t, d, conf, mine)

	own := conf.Clone()
	own.Certificates = []tls.Certificate{pair}
	if _, _, err := signed(t.Context(), t, d.secure, own); err != nil {
		t.Errorf("renewal by certificate: %v", err)
	}
	if _, err := everythingAs(t.Context(), credentials.NewTLS(own), d.secure, node("shop", "client", "10.1.9.9")); err != nil {
		t.Errorf("xDS with the certificate: %v", err)
	}
	if _, err := everythingAs(t.Context(), credentials.NewTLS(own), d.secure, node("shop", "web", "10.1.9.8")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("xDS for another's proxy: %v", err)
	}
	if _, err := everythingAs(t.Context(), credentials.NewTLS(conf), d.secure, node("shop", "client", "10.1.9.9")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("xDS without a credential: %v", err)
	}

	operated(t, d, conf, data)

	_ = d.cmd.Process.Kill()
	<-d.exited
	again := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, again.ready)
	if _, _, err := signed(t.Context(), t, again.secure, own); err != nil {
		t.Errorf("after a restart the certificate and the root of before: %v", err)
	}
	unreadable(t, data)
}

// refusals checks that a caller without a credential, with an invalid one, or with another identity's gets only the
// reason.
func refusals(t *testing.T, d *daemon, conf *tls.Config, good string) {
	t.Helper()
	for name, ctx := range map[string]context.Context{
		"nothing": t.Context(),
		"garbage": bearer(t.Context(), "garbage"),
		"forged":  bearer(t.Context(), good[:len(good)-8]+"AAAAAAAA"),
		"large":   bearer(t.Context(), strings.Repeat("a", 9<<10)), // larger tokens exceed the header limit (cmd/internal/preauth)
	} {
		if _, _, err := signed(ctx, t, d.secure, conf); status.Code(err) != codes.Unauthenticated || strings.Contains(err.Error(), good) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// operated revokes an identity, and begins and aborts a rotation, which lists the callers that it waits for.
func operated(t *testing.T, d *daemon, conf *tls.Config, data string) {
	t.Helper()
	ca := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(binary(t, "navarchctl"), append(append([]string{"ca"}, args...), "--data-dir", data)...).CombinedOutput()
		if err != nil {
			t.Fatalf("navarchctl ca %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := ca("status"); !strings.Contains(out, "active") || strings.Contains(out, "waits") {
		t.Errorf("status:\n%s", out)
	}
	thief := token(t, data, "shop", "thief")
	if _, _, err := signed(bearer(t.Context(), thief), t, d.secure, conf); err != nil {
		t.Errorf("before the revocation: %v", err)
	}
	ca("revoke", "--identity", "spiffe://cluster.local/ns/shop/sa/thief")
	eventually(t, patience, func() error {
		if _, _, err := signed(bearer(t.Context(), thief), t, d.secure, conf); status.Code(err) != codes.PermissionDenied {
			return fmt.Errorf("a revoked identity: %v", err)
		}
		return nil
	})
	ca("rotate")
	if out := ca("status"); !strings.Contains(out, "prepared") || !strings.Contains(out, "spiffe://cluster.local/ns/shop/sa/client") {
		t.Errorf("status of a rotation:\n%s", out)
	}
	ca("abort")
	if out := ca("status"); strings.Contains(out, "prepared") || !strings.Contains(out, "sa/thief") {
		t.Errorf("status after it was taken back:\n%s", out)
	}
}

// unreadable checks that no file of the data directory contains unencrypted key material, except the two that are
// intended to.
func unreadable(t *testing.T, data string) {
	t.Helper()
	err := filepath.WalkDir(data, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || entry.Name() == "kek.key" || entry.Name() == "token-issuer.key" {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), "PRIVATE KEY") {
			t.Errorf("%s holds a private key", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
