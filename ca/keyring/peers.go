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

// Peers remember for each other: a replica without a data directory cannot tell a keyring that was turned back from the
// newest. What a peer remembers comes sealed under the key encryption key, for a nonce of the asker: who cannot sign
// cannot make one up either, an old answer does not open, and it needs no certificate, which a replica before its first
// look at the keyring does not have.
const (
	purposeSeen = "keyring-seen"
	nonceBytes  = 32
	peersBudget = 5 * time.Second // of one round
	peersFirst  = time.Second     // pause after a round that nobody answered, doubled up to PeersEvery
)

// answer is what a replica says to a peer: what it remembers, and what its clock says.
type answer struct {
	memory
	Clock clock.Word `json:"clock"`
}

// Seen is what this replica remembers of the keyring, and its time, for a peer that asks with a nonce (16 to 64 bytes of its choice).
// Nothing in it is secret. It needs the key encryption key at most once a day. Errors: a nonce of another length, and those of the sealer.
func (k *Keyring) Seen(ctx context.Context, nonce []byte) ([]byte, error) {
	if len(nonce) < 16 || len(nonce) > 64 {
		return nil, fmt.Errorf("a nonce of %d bytes, want 16 to 64", len(nonce))
	}
	raw, err := json.Marshal(answer{*k.seen.Load(), k.cfg.Clock.Word()})
	if err != nil {
		return nil, err
	}
	return k.cfg.Sealer.Seal(ctx, raw, k.seenBy(nonce))
}

func (k *Keyring) seenBy(nonce []byte) seal.Context {
	return k.context(0, hex.EncodeToString(nonce), purposeSeen)
}

// listen asks the peers, and lets the loop know what they remember.
func (k *Keyring) listen(ctx context.Context) error {
	if k.cfg.Peers == nil {
		close(k.heard)
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
		highest, answered, err := k.hear(ctx)
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
			k.log.Debug("keyring: not all peers said what they remember", slog.Any(obs.KeyError, err))
		}
		if first {
			close(k.heard)
			first = false
			k.log.Info("keyring: asked the peers", slog.Int("answered", answered), slog.Uint64("version", highest.Version))
		}
		if pause = min(max(2*pause, peersFirst), k.cfg.PeersEvery); answered > 0 {
			pause = k.cfg.PeersEvery
		}
		timer.Reset(pause/2 + mathrand.N(pause/2+1)) // replicas do not ask in step
	}
}

// hear asks every peer once. Answers that do not open, or are of another mesh, count as none.
func (k *Keyring) hear(ctx context.Context) (highest memory, answered int, err error) {
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
	raw, err := k.cfg.Sealer.Open(ctx, sealed, k.seenBy(nonce))
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

// newer says whether m is of a later record than other, or of another one of the same version.
func (m memory) newer(other memory) bool {
	return m.Version > other.Version || m.Version > 0 && m.Version == other.Version && m.Digest != other.Digest
}

// behind says whether a peer remembers a record that this replica has not verified.
func (k *Keyring) behind() bool { return k.minimum.newer(k.mem) }

// refuses says why a record is older than, or another one than, what this replica or a peer remembers.
func (k *Keyring) refuses(r *record, sum []byte) error {
	if err := k.mem.refuses(r, sum); err != nil {
		return err
	}
	if err := k.minimum.refuses(r, sum); err != nil {
		return fmt.Errorf("%w (by a peer)", err)
	}
	return nil
}
