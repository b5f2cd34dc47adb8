package lead_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/kv"
)

// electByHand creates an election key with a lease, as a candidate without competitors does.
func electByHand(t *testing.T, store *kv.Store, lease clientv3.LeaseID) kv.Epoch {
	t.Helper()
	key := store.LeaderPath() + "/0"
	resp, err := store.Client().Put(within(t), key, "stopped", clientv3.WithLease(lease))
	if err != nil {
		t.Fatal(err)
	}
	return kv.Epoch{Key: key, Revision: resp.Header.Revision}
}

// waitForCandidates returns when n candidates take part in the election.
func waitForCandidates(t *testing.T, store *kv.Store, n int64) {
	t.Helper()
	ctx := within(t)
	folder := store.LeaderPath() + "/"
	resp, err := store.Client().Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	count := resp.Count
	watch := store.Client().Watch(ctx, folder, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
	for count != n {
		resp, open := <-watch
		if !open {
			t.Fatalf("%d candidates, want %d", count, n)
		}
		for _, event := range resp.Events {
			if event.IsCreate() {
				count++
			} else if event.Type == clientv3.EventTypeDelete {
				count--
			}
		}
	}
}
