package keyring

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/store/clock"
	"navarch.io/navarch/store/obs"
)

// Each replica remembers the newest record (the keyring without its keys) that it has verified, and tells its peers. A
// replica that starts without a data directory remembers no record, so it cannot detect an old keyring in etcd by
// itself. A peer's answer is sealed under the key encryption key, for the requester's nonce. An answer can therefore
// not be forged without that key, and cannot be replayed. The connection to a peer needs no certificate, because a
// starting replica cannot present one.
const (
	purposeSeen = "keyring-seen"
	nonceBytes  = 32
	peersBudget = 5 * time.Second // timeout for querying all peers once (a round)
	peersFirst  = time.Second     // longest pause after the first round without answers; doubles up to PeersEvery
)

// answer is a replica's answer to a peer: the remembered record and a clock report.
type answer struct {
	memory
	Clock clock.Word `json:"clock"`
}

// Seen answers a peer: it returns the version and digests of the newest record that this replica has verified, and this
// replica's time. The answer is sealed for the peer's nonce, which has 16 to 64 bytes. The peer opens the answer with
// its own Config.Sealer. The answer contains no secrets. Without a verified record, the version in the answer is 0.
// Seen may wait for the provider of the key encryption key. Errors: a nonce of another length, and the errors of
// Config.Sealer.
func (k *Keyring) Seen(ctx context.Context, nonce []byte) ([]byte, error) {
	if len(nonce) < 16 || len(nonce) > 64 {
		return nil, fmt.Errorf("a nonce of %d bytes, want 16 to 64", len(nonce))
	}
	raw, err := json.Marshal(answer{*k.seen.Load(), k.cfg.Clock.Word()})
	if err != nil {
		return nil, err
	}
	return k.cfg.Sealer.Seal(ctx, raw, k.seenContext(nonce))
}

func (k *Keyring) seenContext(nonce []byte) seal.Context {
	return k.context(0, hex.EncodeToString(nonce), purposeSeen)
}

// pollPeers queries the peers in rounds, with pauses of at most PeersEvery. It wakes Keyring.loop if a peer remembers a
// newer record, and closes peersAsked after the first round.
func (k *Keyring) pollPeers(ctx context.Context) error {
	if k.cfg.Peers == nil {
		close(k.peersAsked)
		<-ctx.Done()
		return ctx.Err()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	first, pause := true, time.Duration(0)
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		highest, answered, err := k.askPeers(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.peers.Store(int64(answered))
		if highest.newer(*k.peersMemory.Load()) {
			k.peersMemory.Store(&highest)
			select {
			case k.nudge <- struct{}{}:
			default:
			}
		}
		if err != nil {
			k.log.Debug("keyring: some peers did not answer, or answered invalidly", slog.Any(obs.KeyError, err))
		}
		if first {
			close(k.peersAsked)
			first = false
			k.log.Info("keyring: asked the peers", slog.Int("answered", answered), slog.Uint64("version", highest.Version))
		}
		if pause = min(max(2*pause, peersFirst), k.cfg.PeersEvery); answered > 0 {
			pause = k.cfg.PeersEvery
		}
		timer.Reset(pause/2 + mathrand.N(pause/2+1)) // spread, so that replicas do not ask at the same time
	}
}

// askPeers queries every peer once. It returns the newest record that a peer remembers, and the number of valid
// answers. The error joins the failures of peers and the invalid answers. An answer is invalid if it does not open or
// decode, or if its record is of another mesh or trust domain.
func (k *Keyring) askPeers(ctx context.Context) (highest memory, answered int, err error) {
	ctx, cancel := context.WithTimeout(ctx, peersBudget)
	defer cancel()
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // never fails
	asked := time.Now()
	answers, err := k.cfg.Peers(ctx, nonce)
	for _, raw := range answers {
		m, bad := k.open(ctx, raw, nonce)
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		answered++
		k.cfg.Clock.Heard(m.Clock, time.Since(asked))
		if m.newer(highest) {
			highest = m.memory
		}
	}
	return highest, answered, err
}

func (k *Keyring) open(ctx context.Context, sealed, nonce []byte) (m answer, err error) {
	raw, err := k.cfg.Sealer.Open(ctx, sealed, k.seenContext(nonce))
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err == nil && m.Version > 0 && (m.Mesh != k.cfg.Mesh || m.TrustDomain != k.cfg.TrustDomain.Name()) {
		err = fmt.Errorf("it remembers mesh %q, trust domain %q", m.Mesh, m.TrustDomain)
	}
	if err != nil {
		return answer{}, fmt.Errorf("a peer's answer: %w", err)
	}
	return m, nil
}

// newer reports whether m has a higher version than the argument, or the same version above 0 and another digest.
func (m memory) newer(other memory) bool {
	return m.Version > other.Version || m.Version > 0 && m.Version == other.Version && m.Digest != other.Digest
}

// behind reports whether a peer remembers a newer record than this replica, or a different record of the same version.
func (k *Keyring) behind() bool { return k.minimum.newer(k.mem) }

// refuses returns ErrRolledBack if this replica or a peer remembers a newer record than r, or a different record of the
// same version. A nil r counts as older than every record. The argument sum is the digest of r.
func (k *Keyring) refuses(r *record, sum []byte) error {
	if err := k.mem.refuses(r, sum); err != nil {
		return err
	}
	if err := k.minimum.refuses(r, sum); err != nil {
		return fmt.Errorf("%w (by a peer)", err)
	}
	return nil
}
