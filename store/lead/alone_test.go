package lead_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/lead"
)

// A process that is alone with its etcd does not wait for the lease of the one that was killed before it, which lives
// for an hour here; and that one's epoch is over.
func TestAloneLeadsAtOnce(t *testing.T) {
	s := kvtest.Start(t)
	grant, err := s.Client().Grant(within(t), 3600)
	if err != nil {
		t.Fatal(err)
	}
	old := electByHand(t, s.Store, grant.ID)
	e, err := lead.New(lead.Config{Store: s.Store, Name: "alone", Lease: lease, Alone: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(within(t))
	leads := make(chan kv.Epoch, 1)
	go func() {
		_ = e.Run(ctx, func(ctx context.Context, epoch kv.Epoch) error {
			leads <- epoch
			<-ctx.Done()
			return nil
		})
	}()
	epoch := receive(t, "the only process leads", leads)
	defer stop()
	if _, err := s.Commit(within(t), kv.Batch{Epoch: old}); !errors.Is(err, kv.ErrDeposed) {
		t.Errorf("the killed process's epoch still writes: %v", err)
	}
	if _, err := s.Commit(within(t), kv.Batch{Epoch: epoch}); err != nil {
		t.Errorf("the only process could not write: %v", err)
	}
}
