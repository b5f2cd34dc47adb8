//go:build !race

package kv_test

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
)

// churn rewrites a few records until n bytes were written.
func churn(t *testing.T, s *kv.Store, e kv.Epoch, n int) error {
	t.Helper()
	const size = 200 << 10
	for i := 0; i < n; i += 4 * size {
		var puts []model.Record
		for _, name := range []string{"a", "b", "c", "d"} {
			puts = append(puts, service(t, name, uint32(i/size+1), size))
		}
		if _, err := s.Commit(within(t), kv.Batch{Epoch: e, Puts: puts}); err != nil {
			return err
		}
	}
	return nil
}

// Under many changes the size of the database follows its present content: history is compacted, and the file shrinks.
func TestBoundedUnderChurn(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	const round = 48 << 20
	for i := range 3 {
		if err := churn(t, s.Store, e, round); err != nil {
			t.Fatal(err)
		}
		grown, err := s.Size(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if grown.File < round/2 {
			t.Fatalf("%d bytes after a churn of %d: the test measures nothing", grown.File, round)
		}
		if err := s.Compact(within(t), stat(t, s.Store).Revision); err != nil {
			t.Fatal(err)
		}
		ctx, small := within(t), grown // the size in use is computed every 100 ms, so one measurement may be too large
		for small.File > 4<<20 {
			if err := s.Maintain(ctx); err != nil {
				t.Fatalf("round %d: %d bytes for 0.8 MB of records: %v", i, small.File, err)
			}
			if small, err = s.Size(ctx); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		}
	}
}

// An etcd that history filled stops writing; maintenance gets it going again without losing anything.
func TestRecoversFromFull(t *testing.T) {
	s := kvtest.Start(t, kvtest.Quota(16<<20))
	e := epoch(t, s.Store, "a")
	if err := churn(t, s.Store, e, 64<<20); err == nil || !strings.Contains(err.Error(), "database space exceeded") {
		t.Fatalf("a database over its quota: %v", err)
	}
	if size, err := s.Size(within(t)); err != nil || !size.Full {
		t.Fatalf("size %+v, %v", size, err)
	}
	if err := s.Maintain(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := churn(t, s.Store, e, 4<<20); err != nil {
		t.Fatalf("after maintenance: %v", err)
	}
	if state := load(t, s.Store, 0); len(state.Values) != 4 || !state.Head.Complete {
		t.Fatalf("%d records, head %+v", len(state.Values), state.Head)
	}
}
