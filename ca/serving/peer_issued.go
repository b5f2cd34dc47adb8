package serving

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

const (
	peerPause    = time.Second // pause after a failed request; doubled after each further failure, up to maxPeerPause
	maxPeerPause = 10 * time.Second
	peerBudget   = 20 * time.Second // timeout of one request to all peers
	idle         = time.Hour        // pause if nothing is to be done before the keyring changes
)

// Ring provides the roots of the mesh, and whether this process can sign. keyring.Keyring and Roots implement Ring.
type Ring interface {
	State() *keyring.State    // never nil
	Changed() <-chan struct{} // closed once the State has changed since this call
}

// PeerConfig configures how a process that cannot sign requests a certificate from peers (replicas that can sign).
// TLS, Ring, ServerName, TokenFile and Log are required.
type PeerConfig struct {
	TLS  *TLS // receives the certificate
	Ring Ring
	// Held journals that this process has the roots with the fingerprints in the argument roots. The arguments serial,
	// identity and end (NotAfter) describe a certificate that a peer issued to this process. The argument origin is
	// empty. Once this process can sign, Held is called for each unexpired certificate that peers issued, and again
	// after each change of the roots. An error is logged, and all calls are repeated after 10 s at the latest. Held may
	// be nil if the process can never sign.
	Held       func(ctx context.Context, serial, identity, origin string, roots []string, end time.Time) error
	Store      *kv.Store // to read the addresses of all replicas; nil: only Peers are known
	Peers      []string  // host:port (--ca-peers), in addition to the replicas in etcd
	Self       string    // this process's own address in etcd, which is not queried
	ServerName string    // DNS name that the peers' certificates and the requested certificate must have
	TokenFile  string    // path of the file with the token of the control plane's own service account
	Log        *slog.Logger
}

// PeerIssued maintains the serving certificate of a process while the process cannot sign. A peer then signs the
// certificate. Once the process can sign, TLS makes the certificate without a peer.
type PeerIssued struct {
	PeerConfig
	ask func(ctx context.Context, state *keyring.State) (*caserve.PeerCertificate, error)

	// Only Run uses the fields below.
	fleet    []member.Record     // replicas in etcd
	issued   []*x509.Certificate // certificates of peers; report removes expired ones
	under    string              // result of rootsOf when the last certificate was issued
	notified uint64              // Generation of the State whose roots were reported last
	next     time.Time           // earliest time of the next request
	pause    time.Duration       // pause after the last request; 0: the request succeeded
	said     string              // text of the last logged error
}

// NewPeerIssued returns a PeerIssued. The caller must call Run once.
func NewPeerIssued(c PeerConfig) *PeerIssued {
	b := &PeerIssued{PeerConfig: c}
	b.ask = b.askPeers
	return b
}

// Run requests certificates as needed until ctx ends, and then returns nil. Failed requests are logged and repeated.
// Run returns an error at once if the list of replicas in etcd cannot be followed, which only a defect of this build
// can cause.
func (b *PeerIssued) Run(ctx context.Context) error {
	var fleets <-chan member.Fleet
	if b.Store != nil {
		var err error
		if fleets, err = member.Follow(ctx, b.Store, b.Log); err != nil {
			return err
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed, now := b.Ring.Changed(), time.Now()
		timer.Reset(b.step(ctx, b.Ring.State(), now))
		select {
		case <-changed:
		case fleet := <-fleets:
			b.fleet = fleet.Members
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// step calls report if this process can sign. If not, step requests a certificate from peers when one is due. It
// returns the longest time until the next step. A change of the keyring causes an earlier step.
func (b *PeerIssued) step(ctx context.Context, state *keyring.State, now time.Time) time.Duration {
	own, from := b.TLS.InForce()
	if state.Active != nil {
		return b.report(ctx, state, now)
	}
	roots := rootsOf(state)
	if own != nil && now.Before(halfLife(own.Leaf)) && (from == "" || roots == b.under) {
		return halfLife(own.Leaf).Sub(now)
	}
	if roots == "" { // etcd has not been read, so peers cannot be verified
		return idle
	}
	if now.Before(b.next) {
		return b.next.Sub(now)
	}
	issued, err := b.ask(ctx, state)
	if ctx.Err() != nil {
		return idle
	}
	b.TLS.usePeerIssued(issued, err)
	if err != nil {
		b.pause = min(max(2*b.pause, peerPause), maxPeerPause)
		b.next = now.Add(b.pause/2 + rand.N(b.pause/2))
		if b.said != err.Error() {
			b.said = err.Error()
			b.Log.Warn("no peer signed a serving certificate for this replica, which cannot sign; trying again",
				slog.Any("sealed", state.Sealed), slog.Any(obs.KeyError, err))
		}
		return b.next.Sub(now)
	}
	leaf := issued.Certificate.Leaf
	b.issued, b.under, b.pause, b.said = append(b.issued, leaf), roots, 0, ""
	b.Log.Info("this replica cannot sign: a peer signed its serving certificate", slog.String("peer", issued.Peer),
		slog.String("serial", issue.SerialString(leaf.SerialNumber)), slog.Time("notAfter", leaf.NotAfter),
		slog.Any("sealed", state.Sealed))
	return max(halfLife(leaf).Sub(now), peerPause)
}

// report calls Held for each unexpired certificate that a peer issued, so that the journal knows that this process has
// the newest roots. The process now signs for itself, and does not renew these certificates. Without the report a root
// rotation would wait until these certificates expire.
func (b *PeerIssued) report(ctx context.Context, state *keyring.State, now time.Time) time.Duration {
	b.issued = slices.DeleteFunc(b.issued, func(leaf *x509.Certificate) bool { return now.After(leaf.NotAfter) })
	if len(b.issued) == 0 || b.notified == state.Generation {
		return idle
	}
	ctx, cancel := context.WithTimeout(ctx, peerBudget)
	defer cancel()
	for _, leaf := range b.issued {
		err := b.Held(ctx, issue.SerialString(leaf.SerialNumber), leaf.URIs[0].String(), "", strings.Fields(rootsOf(state)), leaf.NotAfter)
		if err != nil {
			b.Log.Info("the roots that this replica holds could not be journalled; trying again", slog.Any(obs.KeyError, err))
			return maxPeerPause
		}
	}
	b.notified = state.Generation
	return idle
}

// askPeers requests a certificate from the peers of --ca-peers and the replicas in etcd.
func (b *PeerIssued) askPeers(ctx context.Context, state *keyring.State) (*caserve.PeerCertificate, error) {
	ctx, cancel := context.WithTimeout(ctx, peerBudget)
	defer cancel()
	token, err := readToken(b.TokenFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	for _, root := range state.Callers() {
		roots.AddCert(root)
	}
	return caserve.PeerIssued{Peers: b.peers(), Roots: roots, ServerName: b.ServerName, Token: token}.Request(ctx)
}

func (b *PeerIssued) peers() []string {
	peers := slices.Clone(b.PeerConfig.Peers)
	for _, r := range b.fleet {
		if r.Address != "" && r.Address != b.Self {
			peers = append(peers, r.Address)
		}
	}
	return peers
}

const maxToken = 64 << 10 // bytes

// readToken reads the control plane's token. It is called for each request, since the kubelet replaces the file. Errors
// contain no part of the token.
func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("--token-file: %s is not one word of printable ASCII, 1 to %d bytes", path, maxToken)
	}
	return token, nil
}

// rootsOf returns the sorted fingerprints of a state's roots, separated by spaces. The result is empty without roots.
func rootsOf(state *keyring.State) string {
	var out []string
	for _, root := range state.Callers() {
		out = append(out, caserve.Fingerprint(root))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
