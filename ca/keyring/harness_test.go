package keyring_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

var td = spiffeid.RequireTrustDomainFromString("cluster.local")

// harness is an etcd, a key encryption key and a clock, for any number of replicas.
type harness struct {
	*kvtest.Server
	t       testing.TB
	kek     string
	ahead   atomic.Int64 // of the clock, nanoseconds
	logs    envoytest.Output
	cacerts string
	client  *kv.Store // of replicas that start while etcd is away; nil: each has its own
	serving sync.Map  // serial -> private key of a server's own certificate
}

func newHarness(t testing.TB, tune ...kvtest.Option) *harness {
	return &harness{Server: kvtest.Start(t, tune...), t: t, kek: filepath.Join(t.TempDir(), "kek")}
}

func (w *harness) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func (w *harness) later(d time.Duration) { w.ahead.Add(int64(d)) }

// replica is a running keyring.
type replica struct {
	*keyring.Keyring
	t    testing.TB
	w    *harness
	stop func()
}

func (w *harness) sealer() seal.Sealer {
	w.t.Helper()
	f, err := seal.NewFile(w.kek)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := seal.New(f)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *harness) replica(change ...func(*keyring.Config)) *replica {
	w.t.Helper()
	r := &replica{t: w.t, w: w}
	cfg := w.config(change...)
	k, err := keyring.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Keyring = k
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := k.Run(ctx); err != nil {
			w.t.Errorf("keyring ended: %v", err)
		}
	}()
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(r.stop)
	return r
}

func (w *harness) config(change ...func(*keyring.Config)) keyring.Config {
	w.t.Helper()
	client := w.client
	if client == nil {
		client = w.Connect()
	}
	cfg := keyring.Config{Store: client, Mesh: "mesh", TrustDomain: td, Now: w.now, Retry: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if w.cacerts != "" {
		cfg.CACerts = keyring.Folder(w.cacerts)
	}
	for _, c := range change {
		c(&cfg)
	}
	if cfg.Sealer == nil {
		cfg.Sealer = w.sealer()
	}
	return cfg
}

// settle waits until the replica has read etcd and the clock.
func (r *replica) settle() *keyring.Report {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	report, err := r.Status(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// leaf signs a certificate as the CA's server does, and journals it.
func (r *replica) leaf(name string, change ...func(*keyring.Issue)) (*issue.Issued, error) {
	r.t.Helper()
	s := r.State()
	if s.Active == nil {
		return nil, s.Sealed
	}
	id := spiffeid.RequireFromPath(td, "/ns/default/sa/"+name)
	out, err := issue.Issue(s.Active, issue.Request{CSR: csr, Identity: id, TTL: 24 * time.Hour}, issue.Policy{Jitter: -1}, r.w.now(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	i := keyring.Issue{Serial: out.Serial, Identity: id.String(), Epoch: out.Epoch, Generation: s.Generation, NotBefore: out.Leaf.NotBefore, NotAfter: out.Leaf.NotAfter}
	for _, c := range change {
		c(&i)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	return out, r.Append(ctx, i)
}

func (r *replica) mustLeaf(name string, change ...func(*keyring.Issue)) *issue.Issued {
	r.t.Helper()
	out, err := r.leaf(name, change...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func pod(name string) func(*keyring.Issue) { return func(i *keyring.Issue) { i.Pod = name } }

// trusts returns nil if a peer with a bundle accepts a certificate.
func trusts(bundle []*x509.Certificate, c *issue.Issued, now time.Time) error {
	roots, between := certPool(bundle), x509.NewCertPool()
	for _, link := range c.Chain[1:] {
		between.AddCert(link)
	}
	_, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

func certPool(bundle []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, root := range bundle {
		pool.AddCert(root)
	}
	return pool
}

func (w *harness) blobs(folder string) []kv.Blob {
	w.t.Helper()
	blobs, _, err := w.Blobs(w.t.Context(), folder, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return blobs
}

// overwrite replaces all keys, as a backup of etcd that is restored does.
func (w *harness) overwrite(blobs []kv.Blob) {
	w.t.Helper()
	w.Delete(w.Prefix()+"keys/", w.Prefix()+"keys0")
	for _, b := range blobs {
		w.Put(b.Path, string(b.Raw))
	}
}

var csr = func() []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}()
