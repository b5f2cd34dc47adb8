package kv_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
)

// counted counts the transactions of a client.
type counted struct {
	clientv3.KV
	txns int
}

func (c *counted) Txn(ctx context.Context) clientv3.Txn {
	c.txns++
	return c.KV.Txn(ctx)
}

// A leader that writes one batch after another sends one request per transaction. If the head is not its own, or may
// have changed, it is read before. Errors are the same with and without that read.
func TestRequestsOfACommit(t *testing.T) {
	s := kvtest.Start(t)
	requests := &counted{KV: s.Client().KV}
	s.Client().KV = requests
	e := epoch(t, s.Store, "a")
	costs := func(want int, b kv.Batch, outcome error) int64 {
		t.Helper()
		before := requests.txns
		head, err := s.Commit(within(t), b)
		if n := requests.txns - before; n != want || !errors.Is(err, outcome) {
			t.Fatalf("a batch of %d after %d: %d transactions and %v, want %d and %v", b.Len(), b.After, n, err, want, outcome)
		}
		return head.Revision
	}
	first := costs(2, kv.Batch{Epoch: e, Puts: services(t, 1, 80)}, nil)
	second := costs(1, kv.Batch{Epoch: e, After: first, Puts: services(t, 1, 81)}, nil)
	third := costs(3, kv.Batch{Epoch: e, After: second, Puts: services(t, 250, 82)}, nil)
	costs(1, kv.Batch{Epoch: e, After: third}, nil)                                    // writes nothing, so it reads
	costs(1, kv.Batch{Epoch: e, After: second, Puts: services(t, 1, 83)}, kv.ErrStale) // not the last one
	costs(2, kv.Batch{Epoch: e, Puts: services(t, 1, 83)}, nil)                        // after any
	state := load(t, s.Store, 0)
	if state.Complete != state.Head.Revision || len(state.Values) != 250 || state.Head.LastComplete != third {
		t.Fatalf("complete %d with %d records, head %+v", state.Complete, len(state.Values), state.Head)
	}

	// Another process writes the head: this one has not read it, and writes nothing.
	moved := commit(t, s.Store, kv.Batch{Epoch: e, After: state.Complete, Puts: services(t, 1, 84)})
	if _, err := s.Client().Put(within(t), s.Prefix()+"head", "of another"); err != nil {
		t.Fatal(err)
	}
	costs(1, kv.Batch{Epoch: e, After: moved, Puts: services(t, 150, 85)}, kv.ErrStale)
	costs(1, kv.Batch{Epoch: e, After: moved}, kv.ErrStale)
	// And the same for an epoch that has ended, whether or not the head moved.
	state = load(t, s.Store, 0)
	own := costs(2, kv.Batch{Epoch: e, After: state.Head.Revision, Puts: services(t, 1, 86)}, nil)
	depose(t, s.Store, e)
	costs(1, kv.Batch{Epoch: e, After: own, Puts: services(t, 150, 87)}, kv.ErrDeposed)
	now := epoch(t, s.Store, "b")
	next := costs(2, kv.Batch{Epoch: now, After: own, Puts: services(t, 1, 88)}, nil)
	costs(1, kv.Batch{Epoch: e, After: own, Puts: services(t, 1, 89)}, kv.ErrDeposed)
	costs(1, kv.Batch{Epoch: e, After: next, Puts: services(t, 1, 89)}, kv.ErrDeposed)
	state = load(t, s.Store, 0)
	wrong := slices.ContainsFunc(state.Values, func(v kv.Value) bool {
		r, err := v.Record()
		return err != nil || !slices.Contains([]uint32{82, 88}, r.(*model.Service).Spec.Ports[0].Number)
	})
	if state.Complete != next || wrong {
		t.Fatalf("complete %d, want %d; records %v", state.Complete, next, state.Values)
	}
}
