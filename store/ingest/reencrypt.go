package ingest

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// The pace at which stored private keys are encrypted again once the key encryption key was rotated.
const (
	reencryptMost  = 32          // in one batch
	reencryptPause = time.Second // between two batches
	reencryptEvery = time.Minute // between two looks that found less
)

// The events and effects of sealing again.
type (
	// Look: it is time to see whether the key encryption key was rotated.
	Look struct{}
	// Reencrypt: seal again what needs it of these stored Secrets.
	Reencrypt struct {
		Epoch  kv.Epoch
		Stored []*model.Secret
	}
	// Reencrypted answers Reencrypt: the sealed private keys by the stored record that they are of, as far as it went.
	Reencrypted struct {
		Epoch  kv.Epoch
		Sealed map[*model.Secret][]byte
	}
)

func (Look) event()        {}
func (Reencrypt) effect()  {}
func (Reencrypted) event() {}

// reencryption is a stored Secret, and the same with its private key encrypted again.
type reencryption struct{ from, to *model.Secret }

// look asks for all stored Secrets, those too whose object cannot be understood any more: they stand, so they must open.
func (s *State) look() []Effect {
	if s.phase != ready || len(s.secrets) == 0 {
		return nil
	}
	stored := make([]*model.Secret, 0, len(s.secrets))
	for _, key := range slices.SortedFunc(maps.Keys(s.secrets), model.Key.Compare) {
		stored = append(stored, s.secrets[key])
	}
	return []Effect{Reencrypt{Epoch: s.epoch, Stored: stored}}
}

// reencrypted notes what is to be written, of the records that are still stored.
func (s *State) reencrypted(e Reencrypted) {
	for from, sealed := range e.Sealed {
		r, err := sealedAs(from, sealed, from.Spec.GetMac())
		if err == nil { // it was a record before
			s.reencryptions[from.Key] = reencryption{from, r.(*model.Secret)}
		}
	}
}

// renewed takes what was encrypted again, for the next batch. What waits to be written for another reason is left to the next look.
func (s *State) renewed() map[model.Key]*model.Secret {
	puts := map[model.Key]*model.Secret{}
	for key, a := range s.reencryptions {
		if s.queue.of[key] != nil || s.awaitingSeal[key] != nil || s.secrets[key] != a.from {
			continue
		}
		if want := s.want[key]; want != nil && want.Meta().Hash == s.have[key] {
			s.want[key] = a.to
		}
		puts[key] = a.to
	}
	clear(s.reencryptions)
	return puts
}

// reencrypt is what the loop does for Reencrypt.
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

// next is when to look again.
func (e Reencrypted) next() time.Duration {
	if len(e.Sealed) == reencryptMost {
		return reencryptPause
	}
	return reencryptEvery
}
