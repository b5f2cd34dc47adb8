package ingest

import (
	"context"
	"log/slog"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// The pace at which stored private keys are encrypted again once the key encryption key was rotated.
const (
	reencryptMost  = 32          // private keys of one batch
	reencryptPause = time.Second // between two batches
	reencryptEvery = time.Minute // after a batch that was not full
)

// The events and effects of encrypting again.
type (
	// Look: it is time to look for Secrets under an earlier key encryption key.
	Look struct{}
	// Reencrypt requests that the private keys of stored Secrets are encrypted under the newest key encryption key, where
	// they are not.
	Reencrypt struct {
		Epoch  kv.Epoch
		Stored []*model.Secret
	}
	// Reencrypted answers Reencrypt: the sealed private keys, by stored record.
	Reencrypted struct {
		Epoch  kv.Epoch
		Sealed map[*model.Secret][]byte
	}
)

func (Look) event()        {}
func (Reencrypt) effect()  {}
func (Reencrypted) event() {}

// reencryption is a stored Secret, and the same Secret with its private key encrypted again.
type reencryption struct{ from, to *model.Secret }

// applyReencrypted notes the Secrets that are to be written.
func (s *sealing) applyReencrypted(e Reencrypted) {
	for from, sealed := range e.Sealed {
		r, err := sealedAs(from, sealed, from.Spec.GetMac())
		if err == nil { // it was a record before
			s.reencryptions[from.Key] = reencryption{from, r.(*model.Secret)}
		}
	}
}

// takeReencrypted returns the Secrets that were encrypted again, for the next batch. One that waits to be written for
// another reason is left to the next Look.
func (s *sealing) takeReencrypted(q *queue) map[model.Key]*model.Secret {
	puts := map[model.Key]*model.Secret{}
	for key, a := range s.reencryptions {
		if q.of[key] != nil || s.wanted.awaitingSeal[key] != nil || s.stored.secrets[key] != a.from {
			continue
		}
		if want := s.wanted.records[key]; want != nil && want.Meta().Hash == s.stored.hashes[key] {
			s.wanted.records[key] = a.to
		}
		puts[key] = a.to
	}
	clear(s.reencryptions)
	return puts
}

// reencrypt carries out Reencrypt.
func (l *Loop) reencrypt(ctx context.Context, e Reencrypt) Reencrypted {
	out := Reencrypted{Epoch: e.Epoch}
	if l.Sealer == nil {
		return out
	}
	var err error
	if out.Sealed, err = l.Sealer.Reencrypt(ctx, e.Stored, reencryptMost); err != nil && ctx.Err() == nil {
		l.Log.Warn("not every Secret could be sealed under the newest key encryption key; trying again", slog.Any(obs.KeyError, err))
	}
	if n := len(out.Sealed); n > 0 {
		l.Log.Info("Secrets encrypted again, the key encryption key was rotated", slog.Int("secrets", n))
	}
	return out
}

// pause returns the time until the next Look.
func (e Reencrypted) pause() time.Duration {
	if len(e.Sealed) == reencryptMost {
		return reencryptPause
	}
	return reencryptEvery
}
