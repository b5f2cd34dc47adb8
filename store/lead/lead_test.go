package lead_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/lead"
)

// lease is one that a process keeps on a busy machine, too.
const lease = 4 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// candidate is one process in the election; its work reports its beginning and the reason of its end.
type candidate struct {
	*lead.Elector
	leads chan kv.Epoch
	ended chan error // from fn's context
	stop  context.CancelFunc
	done  chan error // from Run
	fail  chan error // makes fn return
}

func stand(t *testing.T, store *kv.Store, name string) *candidate {
	t.Helper()
	return standFor(t, store, name, lease)
}

func standFor(t *testing.T, store *kv.Store, name string, lease time.Duration) *candidate {
	t.Helper()
	e, err := lead.New(lead.Config{Store: store, Name: name, Lease: lease, Retry: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(within(t))
	c := &candidate{e, make(chan kv.Epoch, 9), make(chan error, 9), stop, make(chan error, 1), make(chan error)}
	go func() {
		c.done <- e.Run(ctx, func(ctx context.Context, epoch kv.Epoch) error {
			c.leads <- epoch
			select {
			case <-ctx.Done():
				c.ended <- ctx.Err()
				return ctx.Err()
			case err := <-c.fail:
				return err
			}
		})
	}()
	return c
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-within(t).Done():
		t.Fatalf("%s: nothing came", what)
		panic("unreachable")
	}
}

func none[T any](t *testing.T, what string, from <-chan T) {
	t.Helper()
	select {
	case v := <-from:
		t.Fatalf("%s: %v", what, v)
	default:
	}
}

// The leases are longer than the test: a successor did not wait for a lease to end.
func TestCleanShutdownHandsOverAtOnce(t *testing.T) {
	s := kvtest.Start(t)
	a := standFor(t, s.Connect(), "a", time.Hour)
	first := receive(t, "a leads", a.leads)
	b := standFor(t, s.Connect(), "b", time.Hour)
	if name, epoch, err := b.Leader(within(t)); err != nil || name != "a" || epoch != first {
		t.Fatalf("leader %s %v, %v", name, epoch, err)
	}
	if epoch, leading := a.Epoch(); !leading || epoch != first {
		t.Fatalf("a leads %t in %v", leading, epoch)
	}
	none(t, "b leads beside a", b.leads)
	a.stop()
	second := receive(t, "b leads", b.leads)
	if second.Revision <= first.Revision {
		t.Errorf("epoch %v after %v", second, first)
	}
	if err := receive(t, "a's Run", a.done); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, leading := a.Epoch(); leading {
		t.Error("a still leads")
	}
}

// A leader that is stopped sends nothing more. The test cuts its connection, which has the effect of SIGSTOP; the
// leader keeps its epoch and writes with it later.
func TestStoppedLeaderIsReplacedAndFenced(t *testing.T) {
	s := kvtest.Start(t)
	// A lease without renewal: as if the process had been stopped right after its election.
	stopped := s.Connect()
	grant, err := stopped.Client().Grant(within(t), int64(lease/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	old := electByHand(t, stopped, grant.ID)
	b := stand(t, s.Connect(), "b")
	epoch := receive(t, "b leads", b.leads)
	if _, err := stopped.Commit(within(t), kv.Batch{Epoch: old}); !errors.Is(err, kv.ErrDeposed) {
		t.Errorf("the stopped leader wrote: %v", err)
	}
	if _, err := s.Commit(within(t), kv.Batch{Epoch: epoch}); err != nil {
		t.Errorf("the new leader could not write: %v", err)
	}
}

// While a process leads, Until is within its lease, which was renewed; otherwise it fails.
func TestUntil(t *testing.T) {
	c := stand(t, kvtest.Start(t).Store, "a")
	receive(t, "a leads", c.leads)
	asked := time.Now()
	switch until, err := c.Until(within(t)); {
	case err != nil:
		t.Error(err)
	case !until.After(asked) || until.After(time.Now().Add(lease)):
		t.Errorf("it leads until %v after it asked", until.Sub(asked))
	}
	c.stop()
	receive(t, "a ends", c.done)
	if until, err := c.Until(within(t)); !errors.Is(err, lead.ErrNotLeading) {
		t.Errorf("it does not lead, until %v: %v", until, err)
	}
}

// A leader whose etcd no longer answers ends its term by itself, and is a candidate again when etcd answers.
func TestLeaderWithoutEtcdStopsLeading(t *testing.T) {
	s := kvtest.Start(t)
	a := stand(t, s.Connect(), "a")
	receive(t, "a leads", a.leads)
	s.Stop()
	receive(t, "a's term ends", a.ended)
	s.Restart(s.Dir())
	receive(t, "a leads again", a.leads)
}

// Its key is deleted: the term ends although the lease continues.
func TestDeletedKeyEndsTheTerm(t *testing.T) {
	s := kvtest.Start(t)
	a := stand(t, s.Connect(), "a")
	first := receive(t, "a leads", a.leads)
	if _, err := s.Client().Delete(within(t), first.Key); err != nil {
		t.Fatal(err)
	}
	receive(t, "a's term ends", a.ended)
	if again := receive(t, "a leads again", a.leads); again.Revision <= first.Revision {
		t.Fatalf("epoch %v after %v", again, first)
	}
}

// A candidate whose work fails yields to the others. Depose ends a term at once, and a waiting candidate leads;
// deposing a term that is over has no effect.
func TestDepose(t *testing.T) {
	s := kvtest.Start(t)
	a := standFor(t, s.Connect(), "a", time.Hour)
	first := receive(t, "a leads", a.leads)
	b := standFor(t, s.Connect(), "b", time.Hour)
	waitForCandidates(t, s.Connect(), 2)
	if ended, err := b.Depose(within(t), first); err != nil || !ended {
		t.Fatalf("ended: %v, %v", ended, err)
	}
	receive(t, "a's work ends", a.ended)
	second := receive(t, "b leads", b.leads)
	if ended, err := a.Depose(within(t), first); err != nil || ended {
		t.Errorf("ended again: %v, %v", ended, err)
	}
	if epoch, leading := b.Epoch(); !leading || epoch != second {
		t.Errorf("b leads %v in %v, want %v", leading, epoch, second)
	}
}

func TestFailedWorkResigns(t *testing.T) {
	s := kvtest.Start(t)
	a := stand(t, s.Connect(), "a")
	receive(t, "a leads", a.leads)
	b := stand(t, s.Connect(), "b")
	waitForCandidates(t, s.Store, 2)
	a.fail <- errors.New("broken")
	receive(t, "b leads", b.leads)
	waitForCandidates(t, s.Store, 2)
	b.fail <- nil // returning without a reason is no way to go on either
	receive(t, "a leads again", a.leads)
}

func TestNewRefuses(t *testing.T) {
	s := kvtest.Start(t)
	for _, cfg := range []lead.Config{{}, {Store: s.Store}, {Name: "a"}, {Store: s.Store, Name: "a", Lease: 1500 * time.Millisecond},
		{Store: s.Store, Name: "a", Retry: -1}} {
		if _, err := lead.New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
