package keyring_test

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loopback"
)

// authorities is the view of a keyring that the CA's server has, wired as in navarchd.
type authorities struct{ *keyring.Keyring }

func (a authorities) Current() (*serve.Current, error) {
	s := a.State()
	if s.Active == nil {
		return nil, s.Sealed
	}
	return &serve.Current{Authority: s.Active, Bundle: s.Bundle, Publication: s.Generation}, nil
}

func (a authorities) Append(ctx context.Context, e serve.Entry) error {
	err := a.Keyring.Append(ctx, keyring.Issue{Serial: e.Serial, Identity: e.Identity.String(), Epoch: e.Epoch, Generation: e.Publication,
		NotBefore: e.NotBefore, NotAfter: e.NotAfter, By: e.By, Pod: e.Pod, Peer: e.Peer, Previous: e.Previous})
	if errors.Is(err, keyring.ErrStale) {
		return errors.Join(serve.ErrStale, err)
	}
	return err
}

func (a authorities) Held(ctx context.Context, h serve.Holder) error {
	return a.Keyring.Held(ctx, h.Serial, h.Identity.String(), keyring.OriginOf(h.Credential), h.Roots, h.NotAfter)
}

// listen serves a replica's CA over TLS, with a certificate of that CA, and returns its address.
func (r *replica) listen(tokens ...attest.Authenticator) string {
	r.t.Helper()
	a := authorities{r.Keyring}
	chain := append([]attest.Authenticator{&attest.Certificates{TrustDomain: td}}, tokens...)
	server, err := serve.New(serve.Config{Authorities: a, Journal: a, Holders: a, Memory: r.Keyring, Authenticator: attest.Chain(chain...),
		Revocations: revocations{r}, Audit: slog.New(slog.NewTextHandler(&r.w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		r.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: r.tls})))
	server.Register(g)
	go g.Serve(l) //nolint:errcheck // ends with Stop
	r.t.Cleanup(g.Stop)
	return l.Addr().String()
}

type revocations struct{ *replica }

func (r revocations) RevokedIdentity(id spiffeid.ID) bool { return r.State().RevokedIdentity(id) }
func (r revocations) RevokedSerial(serial string) bool    { return r.State().RevokedSerial(serial) }

func (r *replica) tls(*tls.ClientHelloInfo) (*tls.Config, error) {
	s := r.State()
	own, err := issue.Serving(s.Active, issue.ServingRequest{Names: []string{"localhost", "127.0.0.1"}}, issue.Policy{}, r.w.now(), nil)
	if err != nil {
		return nil, err
	}
	r.w.serving.Store(issue.SerialString(own.Leaf.SerialNumber), own.PrivateKey)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientCAs: certPool(s.Bundle),
		ClientAuth: tls.VerifyClientCertIfGiven, NextProtos: []string{"h2"}}, nil
}

// asks configures a replica to query the replicas at addresses.
func asks(addresses ...string) func(*keyring.Config) {
	return func(c *keyring.Config) {
		c.PeersEvery = 50 * time.Millisecond
		c.Peers = func(ctx context.Context, nonce []byte) ([][]byte, error) {
			return serve.AskPeers(ctx, addresses, nonce)
		}
	}
}

// A replica without a memory of its own refuses a keyring that was turned back, or that is gone, as long as one lives
// that remembers; it neither signs nor makes another root.
// Promise: security-keys.md#who-reads-or-writes-etcd
func TestPeersRemember(t *testing.T) {
	w := newHarness(t)
	old := w.replica()
	old.settle()
	before := w.blobs("keys/")
	if err := old.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	old.settle()
	newest := w.blobs("keys/")
	peer := old.listen()
	for name, content := range map[string][]kv.Blob{"older": before, "gone": nil} {
		w.overwrite(content)
		fresh := w.replica(asks("127.0.0.1:1", peer)) // no process listens at the first
		fresh.settle()
		if s := fresh.State(); s.Active != nil || !errors.Is(s.Sealed, keyring.ErrRolledBack) {
			t.Errorf("%s: %v", name, s)
		}
		if st := fresh.Stats(); !st.Sealed || !st.Alarm || st.Peers != 1 {
			t.Errorf("%s: %+v", name, st)
		}
		if _, err := fresh.leaf("web"); !errors.Is(err, keyring.ErrRolledBack) {
			t.Errorf("%s: signed: %v", name, err)
		}
		if n := len(w.blobs("keys/")); n != len(content) {
			t.Errorf("%s: %d blobs, want %d: it wrote", name, n, len(content))
		}
		w.overwrite(newest)
		fresh.settle()
		if s := fresh.State(); s.Active == nil || s.Alarm != nil {
			t.Errorf("%s, undone: %v", name, s)
		}
		fresh.stop()
	}
}

// A replica that accepted an old keyring as the newest, because no peer answered, stops signing when a peer answers.
func TestPeersAreHeardLater(t *testing.T) {
	w := newHarness(t)
	old := w.replica()
	old.settle()
	before := w.blobs("keys/")
	if err := old.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	old.settle()
	w.overwrite(before)
	old.settle()
	var peers []string
	listening := make(chan struct{})
	fresh := w.replica(func(c *keyring.Config) {
		c.PeersEvery = 10 * time.Millisecond
		c.Peers = func(ctx context.Context, nonce []byte) ([][]byte, error) {
			select {
			case <-listening:
				return serve.AskPeers(ctx, peers, nonce)
			default:
				return nil, errors.New("nobody is there")
			}
		}
	})
	fresh.settle()
	if s := fresh.State(); s.Active == nil {
		t.Fatalf("nobody answered, and it does not start: %v", s)
	}
	peers = []string{old.listen()}
	changed := fresh.Changed()
	close(listening)
	deadline := time.After(time.Minute)
	for fresh.State().Active != nil {
		select {
		case <-changed:
			changed = fresh.Changed()
		case <-deadline:
			t.Fatalf("a peer remembers more, and it signs: %v", fresh.State())
		}
	}
	if s := fresh.State(); !errors.Is(s.Sealed, keyring.ErrRolledBack) || len(s.Bundle) == 0 {
		t.Fatalf("%v", s)
	}
}

// Only a holder of the key encryption key can make an answer, and only for the nonce of the request.
func TestPeersAreBelievedByKEK(t *testing.T) {
	w := newHarness(t)
	old := w.replica()
	old.settle()
	before := w.blobs("keys/")
	if err := old.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	old.settle()
	other, err := seal.NewFile(filepath.Join(t.TempDir(), "kek"))
	if err != nil {
		t.Fatal(err)
	}
	foreign, _ := seal.New(other)
	earlier, err := old.Seen(t.Context(), make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	w.overwrite(before)
	for name, answer := range map[string]func(nonce []byte) []byte{
		"another key encryption key": func(nonce []byte) []byte {
			out, _ := foreign.Seal(t.Context(), seal.Secret(`{"mesh":"mesh","trustDomain":"cluster.local","version":99}`),
				seal.Context{Mesh: "mesh", TrustDomain: "cluster.local", KeyID: hex.EncodeToString(nonce), Purpose: "keyring-seen"})
			return out
		},
		"another nonce": func([]byte) []byte { return earlier },
		"garbage":       func([]byte) []byte { return []byte("garbage") },
		"a key":         func([]byte) []byte { return before[0].Raw },
	} {
		r := w.replica(func(c *keyring.Config) {
			c.Peers = func(_ context.Context, nonce []byte) ([][]byte, error) { return [][]byte{answer(nonce)}, nil }
		})
		r.settle()
		if s := r.State(); s.Active == nil || s.Alarm != nil || r.Stats().Peers != 0 {
			t.Errorf("%s was believed: %v, %+v", name, s, r.Stats())
		}
		r.stop()
	}
	if _, err := old.Seen(t.Context(), make([]byte, 8)); err == nil {
		t.Error("a nonce of 8 bytes was taken")
	}
}

// Replicas that start together, each asking all, are not in each other's way.
func TestPeersStartTogether(t *testing.T) {
	w := newHarness(t)
	w.sealer()
	var addresses []string
	for range 3 { // reserved; no process answers there yet
		addresses = append(addresses, loopback.For(t))
	}
	for range 3 {
		r := w.replica(asks(addresses...))
		r.settle()
		r.mustLeaf("web")
	}
}
