package e2e

import (
	"cmp"
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
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	sim "navarch.io/navarch/loadtest/proxy"
)

// shareOne is the number of proxies of a fleet that share a certificate, which is bound to the Pod of one of them. In a
// mesh each has its own. A replica limits the streams of a Pod (push/budget: 8 streams); half of them leaves room for
// proxies whose old stream ends after the new one began.
const shareOne = 4

// leafLife is the requested lifetime of a fleet's certificates: renewals without etcd end at most 4 h after that
// lifetime, and must not end before the presented certificate.
const leafLife = time.Hour

// enrolment obtains certificates of the mesh's own CA for the proxies of fleets, as agents do: with a token of their
// service account.
type enrolment struct {
	t      testing.TB
	store  string            // flag of a store that answers
	kek    string            // flag
	tokens *ecdsa.PrivateKey // of the token issuer
	issuer *attest.Issuer
	more   []string          // flags of replicas with role ca, beside the store's
	key    *ecdsa.PrivateKey // one for all proxies, because the test is about the servers
	csr    string

	mu      sync.Mutex
	address string // secure one of a replica that signs
	roots   *x509.CertPool
	skew    func(sim.Identity) time.Duration  // of a proxy's clock; nil: none
	trust   func(sim.Identity) *x509.CertPool // roots by which a proxy verifies servers; nil: roots
	places  map[string]int                    // of proxies, by name
	leaves  map[int]tls.Certificate           // by place / shareOne
}

// newEnrolment returns the enrolment of a mesh in a store, which is stated as a flag; its replicas may use another way
// to it.
func newEnrolment(t testing.TB, store string) *enrolment {
	t.Helper()
	e := blankEnrolment(t)
	e.store, e.tokens = store, newKey(t)
	e.issuer = tokenIssuer(t, "https://issuer.example", e.tokens, time.Now)
	data := t.TempDir()
	e.kek = "--kek=file:" + filepath.Join(data, "kek")
	keys := filepath.Join(data, "keys.json")
	if err := os.WriteFile(keys, e.issuer.JWKS(), 0o600); err != nil {
		t.Fatal(err)
	}
	e.more = []string{e.kek, "--token-issuer=" + e.issuer.Name(), "--token-keys=" + keys}
	return e
}

// blankEnrolment returns an enrolment without token issuer and address.
func blankEnrolment(t testing.TB) *enrolment {
	t.Helper()
	e := &enrolment{t: t, key: newKey(t), places: map[string]int{}, leaves: map[int]tls.Certificate{}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, e.key)
	if err != nil {
		t.Fatal(err)
	}
	e.csr = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	return e
}

// builtIn returns the enrolment of a process with all roles and its own etcd in a data directory.
func builtIn(t testing.TB, d *daemon, data string) *enrolment {
	t.Helper()
	e := blankEnrolment(t)
	e.address = d.secure
	eventually(t, patience, func() error {
		text, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
		if e.roots = x509.NewCertPool(); err == nil && !e.roots.AppendCertsFromPEM(text) {
			err = fmt.Errorf("no root: %q", text)
		}
		return err
	})
	var err error
	if e.issuer, err = attest.OpenLocal(data); err != nil {
		t.Fatal(err)
	}
	return e
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// tokenIssuer makes service-account tokens at a time of its own.
func tokenIssuer(t testing.TB, name string, key *ecdsa.PrivateKey, now func() time.Time) *attest.Issuer {
	t.Helper()
	issuer, err := attest.NewIssuer(name, key, now)
	if err != nil {
		t.Fatal(err)
	}
	return issuer
}

// replica starts one with roles xds and ca.
func (e *enrolment) replica(more ...string) *daemon {
	e.t.Helper()
	return start(e.t, append(append([]string{"--roles=xds,ca"}, e.more...), more...)...)
}

// by makes later requests go to a replica, verified by the roots that are in etcd now.
func (e *enrolment) by(d *daemon) {
	e.t.Helper()
	eventually(e.t, patience, d.ready)
	eventually(e.t, patience, func() error {
		text, err := exec.Command(binary(e.t, "navarchctl"), "ca", "roots", e.store, e.kek).Output()
		roots := x509.NewCertPool()
		if err == nil && !roots.AppendCertsFromPEM(text) {
			err = fmt.Errorf("no roots")
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.address, e.roots = d.secure, roots
		return err
	})
}

// overTLS returns the configuration of a fleet for the secure addresses of the given replicas.
func (e *enrolment) overTLS(cfg sim.Config, servers ...*daemon) sim.Config {
	cfg.TLS = e.config
	for _, d := range servers {
		cfg.Addrs = append(cfg.Addrs, d.secure)
	}
	return cfg
}

// fleet starts n citizens over mTLS, and returns once they have joined.
func (e *enrolment) fleet(n int, cfg sim.Config, servers ...*daemon) *sim.Fleet {
	e.t.Helper()
	return fleet(e.t, n, e.overTLS(cfg, servers...))
}

// client returns the TLS configuration of a client with or without this certificate.
func (e *enrolment) client(leaf ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: e.roots, ServerName: "istiod.istio-system.svc", NextProtos: []string{"h2"}, Certificates: leaf}
}

// config returns the TLS configuration of a proxy (sim.Config.TLS): with its certificate, or a new one after its end.
func (e *enrolment) config(id sim.Identity) (*tls.Config, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	place, known := e.places[id.Name]
	if !known {
		place = len(e.places)
		e.places[id.Name] = place
	}
	leaf, has := e.leaves[place/shareOne]
	if !has || time.Until(leaf.Leaf.NotAfter) < time.Minute {
		var err error
		if leaf, _, err = e.bound(e.t.Context(), e.address, id); err != nil {
			return nil, err
		}
		e.leaves[place/shareOne] = leaf
	}
	conf := e.client(leaf)
	if e.trust != nil {
		conf.RootCAs = cmp.Or(e.trust(id), e.roots)
	}
	if e.skew != nil {
		off := e.skew(id)
		conf.Time = func() time.Time { return time.Now().Add(off) }
	}
	return conf, nil
}

// first requests a certificate with a token of a service account.
func (e *enrolment) first(ctx context.Context, address, namespace, account string) (tls.Certificate, []*x509.Certificate, error) {
	return e.bound(ctx, address, sim.Identity{Namespace: namespace, ServiceAccount: account})
}

// bound requests a certificate with a token that is bound to a proxy's Pod, as in Kubernetes. Streams are limited for
// each Pod, and the credentials of one account without a Pod share 1,024 streams.
func (e *enrolment) bound(ctx context.Context, address string, id sim.Identity) (tls.Certificate, []*x509.Certificate, error) {
	proof, _, err := e.issuer.MintBound(id.Namespace, id.ServiceAccount, id.Name, "istio-ca", time.Hour)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return e.ask(bearer(ctx, proof), address, e.client())
}

// renewed requests a certificate with a certificate.
func (e *enrolment) renewed(ctx context.Context, address string, leaf tls.Certificate) (tls.Certificate, []*x509.Certificate, error) {
	return e.ask(ctx, address, e.client(leaf))
}

// ask requests a certificate with the credential of the context and the connection. The returned roots are those that
// came with it.
func (e *enrolment) ask(ctx context.Context, address string, conf *tls.Config) (leaf tls.Certificate, roots []*x509.Certificate, err error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		return leaf, nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx,
		&securityv1.IstioCertificateRequest{Csr: e.csr, ValidityDuration: int64(leafLife / time.Second)})
	if err != nil {
		return leaf, nil, err
	}
	chain := res.GetCertChain()
	leaf.PrivateKey = e.key
	certs, err := parsed(strings.Join(chain[:len(chain)-1], ""))
	if err != nil || len(certs) == 0 {
		return leaf, nil, fmt.Errorf("a chain of %d certificates: %w", len(certs), err)
	}
	for _, c := range certs {
		leaf.Certificate = append(leaf.Certificate, c.Raw)
	}
	leaf.Leaf = certs[0]
	roots, err = parsed(chain[len(chain)-1])
	return leaf, roots, err
}

// parsed returns the certificates of a PEM text.
func parsed(text string) (all []*x509.Certificate, err error) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all, nil
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
}
