package serving

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/shard/member"
)

var testDomain = spiffeid.RequireTrustDomainFromString("cluster.local")

// signers is the view of its peers that a sealed replica has.
type signers struct {
	t    *testing.T
	a    *issue.Authority
	now  time.Time
	err  error
	asks int
	held []string // serial numbers
}

func newAuthorityOf(t *testing.T, epoch uint64) *issue.Authority {
	t.Helper()
	a, err := issue.SelfSigned(testDomain, epoch, 365*24*time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (l *signers) ask(context.Context, *keyring.State) (*caserve.PeerCertificate, error) {
	if l.asks++; l.err != nil {
		return nil, l.err
	}
	id := spiffeid.RequireFromPath(testDomain, "/ns/istio-system/sa/istiod")
	pair, err := issue.Serving(l.a, issue.ServingRequest{Names: []string{"istiod.istio-system.svc"}, Identity: id}, issue.Policy{Backdate: -1, Jitter: -1}, l.now, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return &caserve.PeerCertificate{Certificate: pair, Peer: "peer:15012"}, nil
}

func (l *signers) hold(_ context.Context, serial, _, _ string, roots []string, _ time.Time) error {
	if len(roots) == 0 {
		l.t.Error("no roots are reported")
	}
	l.held = append(l.held, serial)
	return nil
}

// A sealed replica requests a certificate only when it needs one: at first, at half of the life, when the roots change;
// after a failure with a growing pause. Once it can sign, it makes its own, sends no request, and reports for each
// certificate of a peer that it has the newest roots.
func TestPeerIssued(t *testing.T) {
	l := &signers{t: t, a: newAuthorityOf(t, 1), now: time.Now(), err: errors.New("all peers are sealed")}
	s, err := New([]string{"localhost"}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	b := &PeerIssued{PeerConfig: PeerConfig{TLS: s, Held: l.hold, Log: slog.New(slog.DiscardHandler)}, ask: l.ask}
	away := errors.New("the KEK is away")
	sealed := &keyring.State{Sealed: away, Claimed: []*x509.Certificate{l.a.Certificate}}
	step := func(state *keyring.State, asks int, what string) time.Duration {
		t.Helper()
		pause := b.step(t.Context(), state, l.now)
		if l.asks != asks {
			t.Fatalf("%s: asked %d times, want %d", what, l.asks, asks)
		}
		return pause
	}
	if step(&keyring.State{Sealed: keyring.ErrNotLoaded}, 0, "before etcd was read") != idle {
		t.Error("it does not wait for the keyring")
	}
	first := step(sealed, 1, "without a certificate")
	if _, err := s.Under(sealed); err == nil || !errors.Is(err, away) || !errors.Is(err, l.err) {
		t.Errorf("why there is none: %v", err)
	}
	step(sealed, 1, "in the pause")
	for l.asks < 9 {
		l.now = l.now.Add(b.step(t.Context(), sealed, l.now))
	}
	if last := b.step(t.Context(), sealed, l.now); last < maxPeerPause/2-time.Second || last > maxPeerPause || first > peerPause {
		t.Errorf("pauses of %v and %v", first, last)
	}
	l.err, l.now = nil, l.now.Add(maxPeerPause)
	asked := l.asks
	step(sealed, asked+1, "a peer signs")
	conf, err := s.Under(sealed)
	if err != nil || conf.ClientCAs.Equal(x509.NewCertPool()) {
		t.Fatalf("%v", err)
	}
	own, from := s.InForce()
	if from != "peer:15012" || !conf.Certificates[0].Leaf.Equal(own.Leaf) {
		t.Errorf("from %q", from)
	}
	step(sealed, asked+1, "with a certificate")
	l.now = own.Leaf.NotBefore.Add(12*time.Hour + time.Minute)
	step(sealed, asked+2, "at half of its life")
	more := newAuthorityOf(t, 2)
	rotated := &keyring.State{Sealed: away, Claimed: []*x509.Certificate{l.a.Certificate, more.Certificate}}
	step(rotated, asked+3, "after a root was published")
	step(rotated, asked+3, "and again")
	unsealed := &keyring.State{Active: l.a, Bundle: []*x509.Certificate{l.a.Certificate}, Generation: 2}
	step(unsealed, asked+3, "when it can sign")
	if len(l.held) != 3 {
		t.Errorf("%d of 3 certificates were reported", len(l.held))
	}
	step(unsealed, asked+3, "and again")
	if len(l.held) != 3 {
		t.Error("reported again")
	}
	servesItsOwn(t, s, unsealed)
}

// servesItsOwn checks that no state of a peer's certificate is left.
func servesItsOwn(t *testing.T, s *TLS, unsealed *keyring.State) {
	t.Helper()
	mine, err := s.certificate(unsealed, time.Now())
	if err != nil || len(mine.Leaf.URIs) != 0 {
		t.Errorf("it still serves with what a peer signed: %v", err)
	}
	if _, from := s.InForce(); from != "" {
		t.Errorf("its own certificate is said to be from %s", from)
	}
}

// Peers are those of --ca-peers and of the records, without the process itself. The token is read again each time, and
// no error contains it.
func TestPeerIssuedPeersAndToken(t *testing.T) {
	b := &PeerIssued{PeerConfig: PeerConfig{Peers: []string{"a:1"}, Self: "127.0.0.1:15012"}, fleet: []member.Record{{Address: "b:2"}, {}, {Address: "127.0.0.1:15012"}}}
	if got := b.peers(); !slices.Equal(got, []string{"a:1", "b:2"}) {
		t.Errorf("peers %v", got)
	}
	path := filepath.Join(t.TempDir(), "token")
	for content, want := range map[string]string{" word\n": "", "two words": "not one word", "": "not one word", "w\x00rd": "not one word"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readToken(path)
		if want == "" && (err != nil || got != "word") {
			t.Errorf("%q: %q %v", content, got, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || content != "" && strings.Contains(err.Error(), content)) {
			t.Errorf("%q: %v", content, err)
		}
	}
	if _, err := readToken(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
