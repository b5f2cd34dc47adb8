package removal

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/guard"
)

// What a leader remembers of losses is stored where it differs, under its fence; the next leader knows it, and what cannot be read counts for
// nothing and is replaced.
func TestLossesAreStored(t *testing.T) {
	s, kind := kvtest.Start(t), object.ID{Kind: "Service"}
	of := func() *Losses {
		return &Losses{Store: s.Connect(), Memory: &guard.Memory{}, Log: slog.New(slog.DiscardHandler)}
	}
	before := func(l *Losses) int { return l.Memory.Before(time.Now(), kind, 5) }
	begin := func(l *Losses, epoch kv.Epoch) {
		t.Helper()
		if err := l.Recall(within(t), epoch); err != nil {
			t.Fatal(err)
		}
	}
	s.Put(lossesPath, "not of a leader")
	first, epoch := of(), s.Elect("first")
	begin(first, epoch)
	first.Memory.Note(time.Now(), kind, 25)
	for range 2 {
		if err := first.Write(within(t), epoch); err != nil {
			t.Fatal(err)
		}
	}
	stored := revisionOf(t, s.Store)
	if err := first.Write(within(t), epoch); err != nil || revisionOf(t, s.Store) != stored {
		t.Errorf("what is stored is written again: %v", err)
	}
	s.Depose(epoch)
	second, next := of(), s.Elect("second")
	begin(second, next)
	if n := before(second); n != 25 {
		t.Errorf("the next leader knows of %d objects, want 25", n)
	}
	first.Memory.Note(time.Now().Add(time.Minute), kind, 24)
	if err := first.Write(within(t), epoch); !errors.Is(err, kv.ErrDeposed) {
		t.Errorf("a leader that was replaced writes: %v", err)
	}
	if err := second.Write(within(t), epoch); err != nil || revisionOf(t, s.Store) != stored {
		t.Errorf("under an epoch that is not its own: %v", err)
	}
}

func revisionOf(t *testing.T, store *kv.Store) int64 {
	t.Helper()
	blobs, _, err := store.Blobs(context.WithoutCancel(t.Context()), Folder, 0)
	if err != nil {
		t.Fatal(err)
	}
	return find(kv.Folder{Blobs: blobs}, lossesPath).Revision
}
