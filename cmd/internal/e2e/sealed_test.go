package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/seal/kmstest"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loopback"
)

// sealable is a mesh whose keys are wrapped by a plugin that can go away.
type sealable struct {
	t      *testing.T
	kms    *kmstest.Plugin
	data   string // of the token issuer
	issuer *attest.Issuer
	dir    string
	flags  []string
	roots  *x509.CertPool
	env    []string // environment of its replicas
}

func newSealable(t *testing.T) *sealable { return sealableIn(t, kvtest.Start(t)) }

func sealableIn(t *testing.T, etcd *kvtest.Server) *sealable {
	t.Helper()
	s := &sealable{t: t, kms: kmstest.Start(t), data: t.TempDir(), dir: folder(t)}
	issuer, err := attest.Local(s.data)
	if err != nil {
		t.Fatal(err)
	}
	s.issuer = issuer
	keys, own := filepath.Join(s.data, "keys.json"), filepath.Join(s.data, "token")
	err = errors.Join(os.WriteFile(keys, issuer.JWKS(), 0o600), os.WriteFile(own, []byte(token(t, s.data, "istio-system", "istiod")), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	s.flags = []string{"--etcd-endpoints", etcd.Endpoint(), "--kek", "kms:" + s.kms.Socket(), "--token-issuer", issuer.Name(), "--token-keys", keys,
		"--token-file", own, "--config-dir", s.dir, "--leader-lease", lease}
	return s
}

func (s *sealable) start(more ...string) *daemon {
	return startProgram(s.t, navarchd(s.t), s.env, append(slices.Clone(s.flags), more...)...)
}

// trust writes the mesh's roots to a file, and remembers them.
func (s *sealable) trust() string {
	s.t.Helper()
	path := filepath.Join(s.data, "root-cert.pem")
	eventually(s.t, patience, func() error {
		roots, err := exec.Command(binary(s.t, "navarchctl"), "ca", "roots", s.flags[0], s.flags[1], s.flags[2], s.flags[3]).Output()
		if err == nil {
			err = os.WriteFile(path, roots, 0o600)
		}
		s.roots = x509.NewCertPool()
		if !s.roots.AppendCertsFromPEM(roots) {
			err = errors.Join(err, errors.New("no roots"))
		}
		return err
	})
	return path
}

func (s *sealable) tls(own ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: s.roots, ServerName: "istiod.istio-system.svc", Certificates: own}
}

// enrolment returns an enrolment at a replica, with the roots that trust has stored.
func (s *sealable) enrolment(d *daemon) *enrolment {
	e := blankEnrolment(s.t)
	e.issuer, e.roots, e.address = s.issuer, s.roots, d.secure
	return e
}

// sign requests a certificate from a replica on its secure address.
func (s *sealable) sign(d *daemon) (tls.Certificate, error) {
	s.t.Helper()
	pair, _, err := signed(bearer(s.t.Context(), token(s.t, s.data, "shop", "client")), s.t, d.secure, s.tls())
	return pair, err
}

// plainly requests a certificate in clear.
func (s *sealable) plainly(d *daemon) error {
	s.t.Helper()
	_, _, err := signedOver(bearer(s.t.Context(), token(s.t, s.data, "shop", "client")), s.t, d.grpc, insecure.NewCredentials())
	return err
}

// denied checks a status, and the reason in its text.
func denied(t *testing.T, what string, err error, code codes.Code, why ...string) {
	t.Helper()
	for _, part := range why {
		if status.Code(err) != code || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v; want %v with %q", what, err, code, part)
		}
	}
}

// page returns a check that the answer of /ready contains all of these texts.
func page(d *daemon, want ...string) func() error {
	return func() error {
		text, err := get(d.http, "/ready")
		for _, part := range want {
			if err == nil && !strings.Contains(text, part) {
				err = fmt.Errorf("/ready says %q; want %q", text, part)
			}
		}
		return err
	}
}

// A replica starts while the key encryption key is away, and a peer signs its serving certificate. Proxies connect to
// its secure address and are identified by their certificates; requests for certificates are answered with Unavailable
// and the reason. When the key is back the replica signs, also for itself. Without a peer, it serves plain text, and
// reports what is missing.
func TestSealedFromTheStart(t *testing.T) {
	parallel(t)
	s := newSealable(t)
	first := s.start()
	eventually(t, patience, serves(t, first, 1))
	roots := s.trust()
	pair, err := s.sign(first)
	if err != nil {
		t.Fatal(err)
	}
	denied(t, "in the clear, of a replica that signs", s.plainly(first), codes.FailedPrecondition, "over TLS")

	s.kms.Stop()
	second := s.start()
	eventually(t, patience, page(second, "ok\n", "certificates are not signed here: ", "key encryption key", "from the peer "+first.secure))
	s.servesWithoutSigning(first, second, pair)
	if log := second.log.String(); !strings.Contains(log, "a peer signed its serving certificate") || !strings.Contains(log, "peer="+first.secure) {
		t.Error("the log does not say who signed")
	}
	audited(t, first)

	// An agent that has its certificate comes to the sealed replica when the other is gone.
	ip := loopback.NetFor(t) + ".21"
	agent := runAgent(t, second, s.data, roots, "client", ip, "--ca-address", first.secure)
	connected := func() error {
		p, err := agent.page()
		if err == nil && (!p.Ready || !p.XDS.Connected || p.Certificate.URI != "spiffe://cluster.local/ns/shop/sa/client") {
			err = fmt.Errorf("%+v", p)
		}
		return err
	}
	eventually(t, patience, connected)
	first.kill()
	eventually(t, patience, func() error {
		text, err := get(second.http, "/debug/connections")
		if err == nil && !strings.Contains(text, "sidecar~"+ip+"~client-0.shop") {
			err = errors.New("the agent is not here")
		}
		return errors.Join(err, connected())
	})

	peers := presented(t, s, second)
	s.kms.Resume()
	eventually(t, patience, func() error { _, err := s.sign(second); return err })
	if text, err := get(second.http, "/ready"); err != nil || text != "ok\n" {
		t.Errorf("/ready says %q, %v", text, err)
	}
	if own := presented(t, s, second); own == peers {
		t.Errorf("it still presents certificate %s, which the peer signed", own)
	}
}

// servesWithoutSigning checks that the second replica, which is sealed, serves the owner of a certificate as the first
// does, refuses others, and signs nothing.
func (s *sealable) servesWithoutSigning(first, second *daemon, pair tls.Certificate) {
	s.t.Helper()
	client := node("shop", "client", "10.1.9.9")
	want, err := everythingAs(s.t.Context(), credentials.NewTLS(s.tls(pair)), first.secure, client)
	if err != nil {
		s.t.Fatal(err)
	}
	got, err := everythingAs(s.t.Context(), credentials.NewTLS(s.tls(pair)), second.secure, client)
	if err != nil {
		s.t.Fatal(err)
	}
	same(s.t, want, got)
	_, err = everythingAs(s.t.Context(), credentials.NewTLS(s.tls(pair)), second.secure, node("shop", "web", "10.1.9.8"))
	denied(s.t, "another's proxy", err, codes.PermissionDenied, "sa/client")
	_, err = s.sign(second)
	denied(s.t, "a request for a certificate", err, codes.Unavailable, "cannot sign", "key encryption key")
	denied(s.t, "one in the clear", s.plainly(second), codes.Unavailable, "cannot sign", "key encryption key")
}

// Without a peer that signs, a sealed replica serves plain text, and reports what is missing and why. A replica without
// plain text is not ready.
func TestSealedAndAlone(t *testing.T) {
	parallel(t)
	s := newSealable(t)
	first := s.start()
	eventually(t, patience, serves(t, first, 1))
	s.trust()
	first.kill()
	s.kms.Stop()
	alone := s.start()
	eventually(t, patience, serves(t, alone, 1))
	eventually(t, patience, page(alone, "ok\n", "the secure address does not answer", "key encryption key", "no peer signed one"))
	denied(t, "a request in the clear", s.plainly(alone), codes.Unavailable, "cannot sign", "key encryption key")
	closed := s.start("--grpc-addr", "")
	eventually(t, patience, func() error {
		if _, err := get(closed.http, "/ready"); err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "no peer signed one") {
			return fmt.Errorf("/ready: %v", err)
		}
		return nil
	})
}

// The key file is missing while a keyring exists: it was lost, or is not mounted yet. No other key is made, not even by
// navarchctl. Proxies are served, and requests for certificates are answered with Unavailable. Page, log and status
// name the file. Once the file is back the replica signs.
func TestKeyFileIsMissing(t *testing.T) {
	parallel(t)
	s := newSealable(t)
	kek := filepath.Join(s.data, "kek.key")
	s.flags[3] = "file:" + kek
	first := s.start()
	eventually(t, patience, serves(t, first, 1))
	s.trust()
	if _, err := s.sign(first); err != nil {
		t.Fatal(err)
	}
	first.kill()
	if err := os.Rename(kek, kek+".away"); err != nil {
		t.Fatal(err)
	}
	missing := "the file " + kek + " is missing"
	second := s.start()
	eventually(t, patience, serves(t, second, 1))
	eventually(t, patience, page(second, "ok\n", "the secure address does not answer", missing))
	denied(t, "a request in the clear", s.plainly(second), codes.Unavailable, "cannot sign", missing)
	if !strings.Contains(second.log.String(), missing) {
		t.Error("the log does not name the file")
	}
	out, err := exec.Command(binary(t, "navarchctl"), "ca", "status", s.flags[0], s.flags[1], s.flags[2], s.flags[3]).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "sealed: ") || !strings.Contains(string(out), missing) {
		t.Errorf("navarchctl ca status: %v\n%s", err, out)
	}
	if _, err := os.Stat(kek); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a key file was made: %v", err)
	}
	if err := os.Rename(kek+".away", kek); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { _, err := s.sign(second); return err })
	eventually(t, patience, func() error {
		text, err := get(second.http, "/ready")
		if err == nil && text != "ok\n" {
			err = fmt.Errorf("/ready says %q", text)
		}
		return err
	})
}

// audited checks that the journal lists the peer's certificates like all others.
func audited(t *testing.T, d *daemon) {
	t.Helper()
	for line := range strings.Lines(d.log.String()) {
		if strings.Contains(line, "certificate issued") && strings.Contains(line, "spiffe://cluster.local/ns/istio-system/sa/istiod") {
			if !strings.Contains(line, "istiod.istio-system.svc") || !strings.Contains(line, "by=token") {
				t.Errorf("the record: %s", line)
			}
			return
		}
	}
	t.Error("no record of the certificate that was signed for the other replica")
}

// presented returns the serial number of the serving certificate of a replica.
func presented(t *testing.T, s *sealable, d *daemon) string {
	t.Helper()
	conf := s.tls()
	conf.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", d.secure, conf)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// The KMS rotates its key: all sealed data follow, signing keys and those of Secrets, and the old key is unused when
// navarchctl reports so.
func TestSealedKeysFollowTheKMS(t *testing.T) {
	parallel(t)
	s := newSealable(t)
	write(t, s.dir, "rights.yaml", readers("gateway")+"---"+siteGateway)
	write(t, s.dir, "secret.yaml", newSite(t, 201).secret(newSite(t, 202).cert))
	under := func(want string) func() error {
		return func() error {
			out, err := exec.Command(binary(t, "navarchctl"), "ca", "status", s.flags[0], s.flags[1], s.flags[2], s.flags[3]).CombinedOutput()
			if err == nil && !strings.Contains(string(out), "sealed under: "+want+"\n") {
				err = fmt.Errorf("status:\n%s", out)
			}
			return err
		}
	}
	d := s.start()
	eventually(t, patience, serves(t, d, 1))
	s.trust()
	asks := func(d *daemon) error {
		creds, as := credentials.NewTLS(s.tls()), bearer(t.Context(), token(t, s.data, "shop", "gateway"))
		sent, _, err := secretsOf(t, creds, as, d.secure, router("shop", "gateway", "10.1.7.1"), "kubernetes://site")
		if err == nil && len(sent) != 1 {
			err = errors.New("the Secret is not there")
		}
		return err
	}
	eventually(t, patience, func() error { return asks(d) })
	eventually(t, patience, under("kms-v2:key-1"))
	s.kms.RotateKey()
	d.kill()
	d = s.start() // a running one checks once a minute
	eventually(t, patience, under("kms-v2:key-2"))
	s.kms.DropOldKeys()
	d.kill()
	d = s.start()
	eventually(t, patience, func() error { return asks(d) })
	if _, err := s.sign(d); err != nil {
		t.Error(err)
	}
}
