// Package servetest runs a CA for tests on a loopback address. It is the real server of ca/serve over TLS, with a
// signing authority, tokens and a journal for the test only.
//
// Owns: the CA's keys, in memory.
// Reads: nothing.
// Never: is used outside of a test's process.
package servetest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/loopback"
)

// TrustDomain is the trust domain of every test CA.
var TrustDomain = spiffeid.RequireTrustDomainFromString("cluster.local")

// ServerName is the DNS name in the CA's serving certificate.
const ServerName = "istiod.istio-system.svc"

// CA is a running CA. Its methods are safe for concurrent use, except for Up. If the CA cannot make a key or
// certificate, or cannot listen, the test fails at once.
type CA struct {
	Address string // host:port, unchanged for the whole test

	t       testing.TB
	tokens  *ecdsa.PrivateKey
	mu      sync.Mutex
	current *serve.Current
	sealed  error
	journal error
	entries []serve.Entry
	holders []serve.Holder
	revoked map[string]bool
	signed  int
	server  *grpc.Server
	Service *serve.Server               // made by Start, and not changed afterwards
	serving map[uint64]*tls.Certificate // by the signing authority's epoch
}

// Start runs a CA until the test ends, with an authority of epoch 1. If a field Authorities, Authenticator, Journal,
// Revocations or Holders of cfg is nil, Start sets it to the CA itself. If cfg sets such a field, the CA's methods have
// no effect on the value of the field. So Seal concerns only the default Authorities. BreakJournal and Entries concern
// only the default Journal, Revoke the default Revocations, and Reports the default Holders.
func Start(t testing.TB, cfg serve.Config) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &CA{t: t, tokens: key, revoked: map[string]bool{}, serving: map[uint64]*tls.Certificate{}}
	ca.Sign(ca.NewAuthority(1))
	if cfg.Authorities == nil {
		cfg.Authorities = ca
	}
	if cfg.Authenticator == nil {
		cfg.Authenticator = ca
	}
	if cfg.Journal == nil {
		cfg.Journal = ca
	}
	if cfg.Revocations == nil {
		cfg.Revocations = ca
	}
	if cfg.Holders == nil {
		cfg.Holders = ca
	}
	if ca.Service, err = serve.New(cfg); err != nil {
		t.Fatal(err)
	}
	ca.Up()
	t.Cleanup(ca.Down)
	return ca
}

// NewAuthority makes a self-signed root of TrustDomain with this epoch, valid for 3,650 days. The CA uses the root only
// after a call of Sign.
func (ca *CA) NewAuthority(epoch uint64) *issue.Authority {
	a, err := issue.SelfSigned(TrustDomain, epoch, 10*365*24*time.Hour, time.Now(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	return a
}

// Sign makes the first argument the signing authority. The new root bundle contains the roots of all arguments, in this
// order. Sign also replaces the server's own certificate, and increments Current.Publication, which Start sets to 1.
func (ca *CA) Sign(a *issue.Authority, others ...*issue.Authority) {
	bundle := []*x509.Certificate{a.Certificate}
	for _, o := range others {
		bundle = append(bundle, o.Certificate)
	}
	own, err := issue.Serving(a, issue.ServingRequest{Names: []string{ServerName}}, issue.Policy{}, time.Now(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	ca.mu.Lock()
	defer ca.mu.Unlock()
	publication := uint64(1)
	if ca.current != nil {
		publication = ca.current.Publication + 1
	}
	ca.serving[a.Epoch] = &own
	ca.current = &serve.Current{Authority: a, Bundle: bundle, Publication: publication}
}

// Roots returns the present root bundle as PEM.
func (ca *CA) Roots() []byte {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return issue.EncodeCertificates(ca.current.Bundle...)
}

// Up starts the server again at the same address, after Down. The test fails at once if the address is in use.
func (ca *CA) Up() {
	if ca.Address == "" {
		ca.Address = loopback.For(ca.t)
	}
	l, err := net.Listen("tcp", ca.Address)
	if err != nil {
		ca.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: ca.tls})))
	ca.Service.Register(server)
	ca.mu.Lock()
	ca.server = server
	ca.mu.Unlock()
	go server.Serve(l) //nolint:errcheck // ends with Down
}

// Down stops the server, if it runs, and aborts its calls. The CA's state is kept for Up.
func (ca *CA) Down() {
	ca.mu.Lock()
	server := ca.server
	ca.server = nil
	ca.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (ca *CA) tls(*tls.ClientHelloInfo) (*tls.Config, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	pool := x509.NewCertPool()
	for _, r := range ca.current.Bundle {
		pool.AddCert(r)
	}
	own := ca.serving[ca.current.Authority.Epoch]
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*own},
		ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, NextProtos: []string{"h2"}}, nil
}

// Seal makes Current fail with err, so that the CA cannot sign. If err is nil, the CA can sign again.
func (ca *CA) Seal(err error) { ca.mu.Lock(); ca.sealed = err; ca.mu.Unlock() }

// BreakJournal makes Append fail with err. If err is nil, Append succeeds again.
func (ca *CA) BreakJournal(err error) { ca.mu.Lock(); ca.journal = err; ca.mu.Unlock() }

// Revoke revokes a serial number (in the form of serve.Serial) or a SPIFFE ID, for the rest of the test.
func (ca *CA) Revoke(what string) { ca.mu.Lock(); ca.revoked[what] = true; ca.mu.Unlock() }

// Entries returns a copy of the journalled entries, the oldest first, or nil without entries.
func (ca *CA) Entries() []serve.Entry {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return append([]serve.Entry(nil), ca.entries...)
}

// Reports returns a copy of the agents' reports of root bundles, the oldest first, or nil without reports.
func (ca *CA) Reports() []serve.Holder {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return append([]serve.Holder(nil), ca.holders...)
}

// Current implements serve.Authorities. After Seal it returns the authority together with the error. The caller must
// not change the result.
func (ca *CA) Current() (*serve.Current, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	ca.signed++
	return ca.current, ca.sealed
}

// Signed returns the number of calls of Current. The server calls Current once for each attempt to sign.
func (ca *CA) Signed() int {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return ca.signed
}

// Append implements serve.Journal. It fails only with the error of BreakJournal.
func (ca *CA) Append(_ context.Context, e serve.Entry) error {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if ca.journal != nil {
		return ca.journal
	}
	ca.entries = append(ca.entries, e)
	return nil
}

// Held implements serve.Holders. It never fails.
func (ca *CA) Held(_ context.Context, h serve.Holder) error {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	ca.holders = append(ca.holders, h)
	return nil
}

// RevokedIdentity implements serve.Revocations. It reports whether Revoke was called with the SPIFFE ID.
func (ca *CA) RevokedIdentity(id spiffeid.ID) bool { return ca.RevokedSerial(id.String()) }

// RevokedSerial implements serve.Revocations. It reports whether Revoke was called with this serial number.
func (ca *CA) RevokedSerial(serial string) bool {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return ca.revoked[serial]
}

// Token makes a token for the service account sa in the namespace ns. The token never expires. It is not a JWT, but has
// an ECDSA signature that costs the same to verify as that of an ES256 JWT.
func (ca *CA) Token(ns, sa string) string {
	payload := ns + "/" + sa
	sum := sha256.Sum256([]byte(payload))
	sig, err := ca.tokens.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		ca.t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(payload)) + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// Authenticate implements attest.Authenticator. It uses the token if the call has authorization metadata, else the
// connection's verified certificate. attest.ErrNone: the call has neither. Any other error: the token or the
// certificate's SPIFFE ID is not valid. With an error the Caller must not be used.
func (ca *CA) Authenticate(ctx context.Context) (attest.Caller, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if values := md.Get("authorization"); len(values) > 0 {
		return ca.byToken(strings.TrimPrefix(values[0], "Bearer "))
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			leaf := info.State.VerifiedChains[0][0]
			if len(leaf.URIs) != 1 {
				return attest.Caller{}, fmt.Errorf("the certificate has %d URIs, want 1", len(leaf.URIs))
			}
			c, err := caller(leaf.URIs[0].Path, attest.ByCertificate)
			c.Serial = serve.Serial(leaf)
			return c, err
		}
	}
	return attest.Caller{}, attest.ErrNone
}

func (ca *CA) byToken(token string) (attest.Caller, error) {
	head, tail, _ := strings.Cut(token, ".")
	payload, err1 := base64.RawURLEncoding.DecodeString(head)
	sig, err2 := base64.RawURLEncoding.DecodeString(tail)
	sum := sha256.Sum256(payload)
	if err1 != nil || err2 != nil || !ecdsa.VerifyASN1(&ca.tokens.PublicKey, sum[:], sig) {
		return attest.Caller{}, fmt.Errorf("the token's signature is not valid")
	}
	ns, sa, _ := strings.Cut(string(payload), "/")
	return caller("/ns/"+ns+"/sa/"+sa, "token")
}

func caller(path, by string) (attest.Caller, error) {
	id, err := spiffeid.FromPath(TrustDomain, path)
	if err != nil {
		return attest.Caller{}, err
	}
	parts := strings.Split(path, "/")
	if len(parts) != 5 {
		return attest.Caller{}, fmt.Errorf("%s is not of the form /ns/N/sa/S", path)
	}
	return attest.Caller{ID: id, Namespace: parts[2], ServiceAccount: parts[4], By: by}, nil
}
