package ingest

import (
	"context"
	"log/slog"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// The pace at which stored private keys are encrypted again after a rotation of the key encryption key.
const (
	reencryptMost  = 32          // maximum number of private keys in one batch
	reencryptPause = time.Second // pause after a full batch
	reencryptEvery = time.Minute // pause after any other batch
)

// The events and effects of encrypting stored private keys again.
type (
	// Look requests a search for private keys under an earlier key encryption key. It has no effect while a load or a
	// batch is in progress, or while this process does not lead.
	Look struct{}
	// Reencrypt requests the encryption of stored private keys under the newest key encryption key. Private keys that
	// are already encrypted under this key stay unchanged.
	Reencrypt struct {
		Epoch  kv.Epoch        // the term of leadership
		Stored []*model.Secret // all stored Secrets, sorted by key
	}
	// Reencrypted is the result of Reencrypt. Sealed maps stored records, at most reencryptMost of them, to the new
	// ciphertexts of their private keys.
	Reencrypted struct {
		Epoch  kv.Epoch // the term of leadership
		Sealed map[*model.Secret][]byte
	}
)

func (Look) event()        {}
func (Reencrypt) effect()  {}
func (Reencrypted) event() {}

// reencryption is a stored Secret, and the same Secret with its private key encrypted again.
type reencryption struct{ from, to *model.Secret }

// applyReencrypted schedules the Secrets with the new private keys to be written.
func (s *sealing) applyReencrypted(e Reencrypted) {
	for from, sealed := range e.Sealed {
		r, err := sealedAs(from, sealed, from.Spec.GetMac())
		if err == nil { // always the case, since the stored Secret is a valid record
			s.reencryptions[from.Key] = reencryption{from, r.(*model.Secret)}
		}
	}
}

// takeReencrypted removes the Secrets that were encrypted again, and returns them for the next batch. It drops Secrets
// that have changed since, or that wait to be sealed or written for another reason. The next Look finds them again.
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

// reencrypt carries out the effect Reencrypt, and logs errors. The next Look finds the private keys that remain.
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
