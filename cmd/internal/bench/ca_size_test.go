package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/kv/embedded"
)

var trustDomain = spiffeid.RequireTrustDomainFromString("cluster.local")

// authority is the whole CA as navarchd runs it: an embedded etcd that syncs its log to disk, the keyring and its
// journal in it, verification of tokens by a JWKS file, and the server behind TLS on loopback.
type authority struct {
	ring    *keyring.Keyring
	server  *serve.Server
	tokens  *attest.Issuer
	address string
	roots   *x509.CertPool
}

// newAuthority runs a CA until the test ends; key is the key of the token issuer.
func newAuthority(b testing.TB, limits serve.Limits, key *ecdsa.PrivateKey) *authority {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	store, err := embedded.Start(embedded.Config{Mesh: "bench", Dir: filepath.Join(dir, "etcd"), Logger: quiet})
	must(err)
	b.Cleanup(func() { _ = store.Close() })
	kek, err := seal.NewFile(filepath.Join(dir, "kek"))
	must(err)
	sealer, err := seal.New(kek)
	must(err)
	a := &authority{}
	a.ring, err = keyring.New(keyring.Config{Store: store.Store, Sealer: sealer, Mesh: "bench", TrustDomain: trustDomain, Dir: dir, Logger: quiet})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.ring.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	for a.ring.State().Active == nil {
		changed := a.ring.Changed()
		if a.ring.State().Active == nil {
			<-changed
		}
	}
	a.tokens, err = attest.NewIssuer("https://issuer.example", key, nil)
	must(err)
	jwks := filepath.Join(dir, "jwks.json")
	must(os.WriteFile(jwks, a.tokens.JWKS(), 0o600))
	keys, err := attest.NewKeys(attest.KeysConfig{File: jwks})
	must(err)
	must(keys.Refresh(ctx))
	tokens, err := attest.NewTokens(attest.TokensConfig{TrustDomain: trustDomain, Issuers: []attest.TokenIssuer{{Name: a.tokens.Name(), Keys: keys}}})
	must(err)
	a.server, err = serve.New(serve.Config{Authorities: a, Journal: a, Revocations: a, Limits: limits, Audit: quiet,
		Authenticator: attest.Chain(&attest.Certificates{TrustDomain: trustDomain}, tokens)})
	must(err)
	a.listen(b)
	return a
}

func (a *authority) listen(b testing.TB) {
	state := a.ring.State()
	own, err := issue.Serving(state.Active, issue.ServingRequest{Names: []string{"localhost"}}, issue.Policy{}, time.Now(), nil)
	if err != nil {
		b.Fatal(err)
	}
	a.roots = x509.NewCertPool()
	for _, root := range state.Bundle {
		a.roots.AddCert(root)
	}
	// A configuration for each connection, as navarchd has it. Tickets of one would never open under another.
	conf := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{own},
			ClientCAs: a.roots, ClientAuth: tls.VerifyClientCertIfGiven, SessionTicketsDisabled: true}, nil
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)))
	a.server.Register(g)
	go g.Serve(l) //nolint:errcheck // ends with Stop
	b.Cleanup(g.Stop)
	a.address = l.Addr().String()
}

// Current and the methods below implement the interfaces of the CA service, as those in cmd/navarchd/adapters.go do.
func (a *authority) Current() (*serve.Current, error) {
	s := a.ring.State()
	if s.Active == nil {
		return nil, s.Sealed
	}
	return &serve.Current{Authority: s.Active, Bundle: s.Bundle, Publication: s.Generation}, nil
}

func (a *authority) Append(ctx context.Context, e serve.Entry) error {
	return a.ring.Append(ctx, keyring.Issue{Serial: e.Serial, Identity: e.Identity.String(), Epoch: e.Epoch, Generation: e.Publication,
		NotBefore: e.NotBefore, NotAfter: e.NotAfter, By: e.By, Pod: e.Pod, Peer: e.Peer, Previous: e.Previous})
}

func (a *authority) RevokedIdentity(id spiffeid.ID) bool { return a.ring.State().RevokedIdentity(id) }
func (a *authority) RevokedSerial(serial string) bool    { return a.ring.State().RevokedSerial(serial) }

// dial opens a connection; own is the client's certificate, if any.
func (a *authority) dial(b testing.TB, own *tls.Certificate) *grpc.ClientConn {
	conf := &tls.Config{RootCAs: a.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	if own != nil {
		conf.Certificates = []tls.Certificate{*own}
	}
	conn, err := grpc.NewClient("passthrough:///"+a.address, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

func (a *authority) token(b testing.TB, account int) string {
	token, _, err := a.tokens.Mint("load", fmt.Sprintf("account-%d", account), "istio-ca", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	return token
}

func create(ctx context.Context, conn *grpc.ClientConn, token, csr string) ([]string, error) {
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	resp, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &securityv1.IstioCertificateRequest{Csr: csr})
	return resp.GetCertChain(), err
}

var request = sync.OnceValues(func() (string, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), key
})

// certificate requests a certificate with a token, for later renewals.
func (a *authority) certificate(b testing.TB, account int) *tls.Certificate {
	b.Helper()
	csr, key := request()
	conn := a.dial(b, nil)
	defer conn.Close()
	chain, err := create(b.Context(), conn, a.token(b, account), csr)
	if err != nil {
		b.Fatal(err)
	}
	block, _ := pem.Decode([]byte(chain[0]))
	return &tls.Certificate{PrivateKey: key, Certificate: [][]byte{block.Bytes}}
}

// BenchmarkServeCA measures nothing: it runs the CA in a separate process, so that the costs of a storm's clients are
// not counted with it. It ends with its standard input.
func BenchmarkServeCA(t *testing.B) {
	file := os.Getenv("BENCH_CA")
	if file == "" {
		t.Skip("started by BenchmarkCSRStorm")
	}
	raw, err := os.ReadFile(file + ".key")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParseECPrivateKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthority(t, serve.Limits{}, key)
	text := a.address + "\n" + string(issue.EncodeCertificates(a.ring.State().Bundle...))
	if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// elsewhere starts a CA in a separate process. peak returns the greatest resident memory so far, in bytes.
func elsewhere(b testing.TB) (a *authority, peak func() uint64) {
	b.Helper()
	key := signingKey(b)
	raw, err := x509.MarshalECPrivateKey(key)
	file := filepath.Join(b.TempDir(), "ca")
	if err = errors.Join(err, os.WriteFile(file+".key", raw, 0o600)); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkServeCA$", "-test.benchtime=1x")
	cmd.Env = append(os.Environ(), "BENCH_CA="+file)
	stdin, err := cmd.StdinPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	var text []byte
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if text, err = os.ReadFile(file); err == nil {
			break
		}
		if time.Now().After(end) {
			b.Fatal("the CA did not start")
		}
	}
	address, roots, _ := strings.Cut(string(text), "\n")
	a = &authority{address: address, roots: x509.NewCertPool()}
	a.roots.AppendCertsFromPEM([]byte(roots))
	if a.tokens, err = attest.NewIssuer("https://issuer.example", key, nil); err != nil {
		b.Fatal(err)
	}
	return a, func() uint64 {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		_, after, _ := strings.Cut(string(status), "VmHWM:")
		var kib uint64
		_, _ = fmt.Sscan(after, &kib)
		return kib << 10
	}
}

func signingKey(b testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	return key
}

func cpu(b testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// counter counts upwards and returns each number once.
type counter struct{ n atomic.Int64 }

func (c *counter) next() int { return int(c.n.Add(1) - 1) }
