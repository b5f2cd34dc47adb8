package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// oneEach makes every request a connection, and so a handshake, which resumes a session where it may.
const oneEach = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: server, namespace: shop}
spec: {host: server.shop.svc.cluster.local, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: other, namespace: shop}
spec:
  workloadSelector: {labels: {app: other}}
  egress: [{port: {number: 8000, protocol: HTTP, name: http}, bind: 127.0.88.3, captureMode: NONE, hosts: ["./*"]}]
`

// stat returns the sum of Envoy's counters whose names end with suffix.
func (p proxy) stat(suffix string) (sum int, err error) {
	stats, err := envoytest.Stats(p.admin)
	for name, n := range stats {
		if strings.HasSuffix(name, suffix) {
			sum += n
		}
	}
	return sum, err
}

// certificates returns the serial numbers of the root certificates that Envoy uses, and of its own certificates.
func (p proxy) certificates() (roots, own map[string]bool, err error) {
	text, err := get(p.admin, "/certs")
	if err != nil {
		return nil, nil, err
	}
	type certificate struct {
		Serial string `json:"serial_number"`
	}
	var page struct {
		Certificates []struct {
			CACert []certificate `json:"ca_cert"`
			Chain  []certificate `json:"cert_chain"`
		}
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return nil, nil, err
	}
	roots, own = map[string]bool{}, map[string]bool{}
	for _, c := range page.Certificates {
		for _, ca := range c.CACert {
			roots[ca.Serial] = true
		}
		for _, leaf := range c.Chain {
			own[leaf.Serial] = true
		}
	}
	return roots, own, nil
}

// roots counts the root certificates that Envoy uses.
func (p proxy) roots() (int, error) {
	roots, _, err := p.certificates()
	return len(roots), err
}

// flows returns a check that requests pass from a client's proxy to the server's over mTLS.
func flows(entry, account string) func() error {
	return func() error {
		code, seen, err := call(entry)
		if err != nil || code != 200 || !strings.Contains(seen, "URI=spiffe://cluster.local/ns/shop/sa/"+account) {
			return fmt.Errorf("%s: %d %q %v", account, code, seen, err)
		}
		return nil
	}
}

// An identity is revoked: within seconds the server's Envoy refuses its requests, its stream ends, and it gets no new
// certificate, while another client continues. Then a root rotation begins: the second root reaches the Envoys only by
// push, with its revocation list, because the agents' root file never changes. Finally the other client's certificate
// is revoked: the server's Envoy refuses its handshakes, including resumed sessions, and the stream that was opened
// with it ends.
// Promise: security-ca.md#what-revoking-an-identity-does, security-workloads.md#renewals-and-revocation
func TestRevocationAndRootsReachEnvoys(t *testing.T) {
	parallel(t)
	at := loopback.NetFor(t)
	seenBy(t, at+".2:9080")
	data, dir := t.TempDir(), t.TempDir()
	write(t, dir, "mesh.yaml", strings.ReplaceAll(shopMesh, someNet, at))
	write(t, dir, "peers.yaml", peers("STRICT"))
	write(t, dir, "rule.yaml", strings.ReplaceAll(oneEach, someNet, at))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	still, pem := stillRoots(t, data)
	ca := operator(t, data)
	runAgent(t, d, data, still, "client", at+".1")
	other := runAgent(t, d, data, still, "other", at+".3")
	server := runAgent(t, d, data, still, "server", at+".2")
	served, good := flows(at+".1:8000", "client"), flows(at+".3:8000", "other")
	answers := func(port string, want int) func() error {
		return func() error {
			if code, _, err := call(at + port); err != nil || code != want {
				return fmt.Errorf("the revoked client: %d %v, want %d", code, err, want)
			}
			return nil
		}
	}
	eventually(t, patience, served)
	eventually(t, patience, good)

	ca("revoke", "--identity", "spiffe://cluster.local/ns/shop/sa/client")
	refused := answers(".1:8000", 403)
	refusedSoon(t, refused, good)
	d.said(t, 1, "stream closed", "sa/client")
	stays(t, "again", refused, good)
	certificateRefused(t, d, data, pem)

	rootsArrive(t, map[string]proxy{"other": other, "server": server}, func() { ca("rotate") }, good)
	stays(t, "with two roots", refused, good)
	if now, err := os.ReadFile(still); err != nil || string(now) != string(pem) {
		t.Errorf("the root file of the agents changed: %v", err)
	}
	certificateRevoked(t, ca, other, server, answers(".3:8000", 503), good)
	d.said(t, 1, "stream closed", "sa/other")
}

// certificateRevoked revokes a client's certificate by its serial number, when there is a session to resume: the
// server's Envoy refuses handshakes.
func certificateRevoked(t *testing.T, ca func(...string) string, client, server proxy, refused, good func() error) {
	t.Helper()
	eventually(t, patience, func() error {
		if err := good(); err != nil {
			return err
		}
		if n, err := client.stat("ssl.session_reused"); err != nil || n == 0 {
			return fmt.Errorf("the client's Envoy resumed %d sessions, %v", n, err)
		}
		return nil
	})
	_, own, err := client.certificates()
	if err != nil || len(own) == 0 {
		t.Fatalf("the client's certificates: %v, %v", own, err)
	}
	for serial := range own {
		ca("revoke", "--serial", serial)
	}
	eventually(t, patience, refused)
	handshakes, err := server.stat("ssl.fail_verify_error")
	if err != nil || handshakes == 0 {
		t.Errorf("the server's Envoy refused %d handshakes, %v", handshakes, err)
	}
}

// refusedSoon waits until the client is refused, which happens within seconds; another keeps working meanwhile.
func refusedSoon(t *testing.T, refused, good func() error) {
	t.Helper()
	began := time.Now()
	eventually(t, patience, func() error {
		if err := good(); err != nil {
			t.Fatalf("while another is revoked: %v", err)
		}
		return refused()
	})
	within(t, 5*time.Second, time.Since(began), "refused")
}

// stays checks many times that one is refused, and the other is not.
func stays(t *testing.T, when string, refused, good func() error) {
	t.Helper()
	for range 20 {
		if err := refused(); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if err := good(); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
}

// rootsArrive begins a rotation of the root: the second one reaches the Envoys within seconds, and traffic goes on
// meanwhile.
func rootsArrive(t *testing.T, proxies map[string]proxy, rotate func(), good func() error) {
	t.Helper()
	for name, p := range proxies {
		if n, err := p.roots(); err != nil || n != 1 {
			t.Errorf("%s: %d roots before the rotation, %v", name, n, err)
		}
	}
	rotate()
	began := time.Now()
	for name, p := range proxies {
		eventually(t, patience, func() error {
			if err := good(); err != nil {
				t.Fatalf("while roots change: %v", err)
			}
			if n, err := p.roots(); err != nil || n != 2 {
				return fmt.Errorf("%s: %d roots, %v", name, n, err)
			}
			return nil
		})
	}
	within(t, 5*time.Second, time.Since(began), "both roots are there")
}

// stillRoots returns a root file that is not updated.
func stillRoots(t *testing.T, data string) (file string, pem []byte) {
	t.Helper()
	eventually(t, patience, func() (err error) {
		pem, err = os.ReadFile(filepath.Join(data, "root-cert.pem"))
		return err
	})
	file = filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(file, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, pem
}

// operator runs navarchctl ca.
func operator(t *testing.T, data string) func(args ...string) string {
	return func(args ...string) string {
		t.Helper()
		out, err := exec.Command(binary(t, "navarchctl"), append(append([]string{"ca"}, args...), "--data-dir", data)...).CombinedOutput()
		if err != nil {
			t.Fatalf("navarchctl ca %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
}

// A rotation is completed by push: both Envoys get the second root with its list, their agents report it, the signer
// switches, and a workload with a certificate of the new root is accepted by those with one of the old root.
func TestRotationByPush(t *testing.T) {
	parallel(t)
	at := loopback.NetFor(t)
	seenBy(t, at+".2:9080")
	data, dir := t.TempDir(), t.TempDir()
	write(t, dir, "mesh.yaml", strings.ReplaceAll(shopMesh, someNet, at))
	write(t, dir, "peers.yaml", peers("STRICT"))
	write(t, dir, "rule.yaml", strings.ReplaceAll(oneEach, someNet, at))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	still, _ := stillRoots(t, data)
	ca := operator(t, data)
	runAgent(t, d, data, still, "client", at+".1")
	runAgent(t, d, data, still, "server", at+".2")
	old, young := flows(at+".1:8000", "client"), flows(at+".3:8000", "other")
	eventually(t, patience, old)
	ca("rotate")
	eventually(t, patience, func() error {
		if err := old(); err != nil {
			t.Fatalf("while roots change: %v", err)
		}
		if out := ca("status"); !regexp.MustCompile(`(?m)^2 +active`).MatchString(out) {
			return fmt.Errorf("status:\n%s", out)
		}
		return nil
	})
	runAgent(t, d, data, filepath.Join(data, "root-cert.pem"), "other", at+".3")
	eventually(t, patience, young)
	for range 20 {
		if err := errors.Join(old(), young()); err != nil {
			t.Fatalf("under two signers: %v", err)
		}
	}
}

// certificateRefused checks that the revoked identity is refused with a token that is still valid.
func certificateRefused(t *testing.T, d *daemon, data string, pem []byte) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	conf := &tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"}
	if _, _, err := signed(bearer(t.Context(), token(t, data, "shop", "client")), t, d.secure, conf); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a certificate for a revoked identity: %v", err)
	}
}
