package removal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"navarch.io/navarch/store/kv"
)

// Read is what the leader holds (nil: nothing), and its decisions, oldest first. Errors: etcd's, and what is stored is not what a leader writes.
func Read(ctx context.Context, store *kv.Store) (*Held, []Decision, error) {
	blobs, _, err := store.Blobs(ctx, Folder, 0)
	if err != nil {
		return nil, nil, err
	}
	folder := kv.Folder{Blobs: blobs}
	held, err := parseHeld(find(folder, heldPath).Raw)
	if err != nil {
		return nil, nil, err
	}
	decisions, err := parseDecisions(find(folder, decisionsPath).Raw)
	return held, decisions, err
}

// ErrRefused: the leader refused the approval; nothing was let go.
var ErrRefused = errors.New("refused")

// approvalLease is how long an approval stands when who waits for the decision has gone.
const approvalLease = 10 * time.Second

// Accept asks the leader to let go what a digest names, and waits for its decision until ctx ends; the approval is withdrawn then.
// ID and At of the approval are filled in. Errors: ErrRefused; the context's, where no leader answered.
func Accept(ctx context.Context, store *kv.Store, a Approval) (Decision, error) {
	a.ID, a.At = rand.Text(), time.Now().UTC()
	a.Reason, a.OSUser, a.Host, a.EtcdUser = clip(a.Reason), clip(a.OSUser), clip(a.Host), clip(a.EtcdUser)
	raw, err := json.Marshal(a)
	if err != nil {
		return Decision{}, err
	}
	if _, err := parseApproval(Approvals+a.ID, raw); err != nil {
		return Decision{}, err
	}
	lease, err := store.Lease(ctx, approvalLease)
	if err != nil {
		return Decision{}, err
	}
	defer func() {
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = lease.Release(release) // it ends by itself
	}()
	if _, err := lease.Put(ctx, Approvals+a.ID, raw); err != nil {
		return Decision{}, err
	}
	taken := false
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_, decisions, err := Read(ctx, store)
		if err != nil {
			return Decision{}, err
		}
		for _, d := range decisions {
			switch {
			case d.Approval.ID != a.ID:
			case !d.Final():
				taken = true
			case d.Refused != "":
				return d, fmt.Errorf("%w: %s", ErrRefused, d.Refused)
			case d.Failed != "":
				return d, fmt.Errorf("%w: %s", ErrRefused, d.Failed)
			default:
				return d, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if taken {
				return Decision{}, fmt.Errorf("it was accepted, and the leader has not said whether it was applied: see what is held: %w", ctx.Err())
			}
			return Decision{}, fmt.Errorf("no leader has decided: %w", ctx.Err())
		}
	}
}

// Record remembers, beside the leader's decisions, one that was made under an epoch of its own: by who adopts what is stored where nobody
// leads. It replaces an earlier word with the same Approval.ID. Errors: kv.ErrDeposed, kv.ErrConflict, etcd's.
func Record(ctx context.Context, store *kv.Store, epoch kv.Epoch, d Decision) error {
	blobs, _, err := store.Blobs(ctx, Folder, 0)
	if err != nil {
		return err
	}
	stored := find(kv.Folder{Blobs: blobs}, decisionsPath)
	decisions, _ := parseDecisions(stored.Raw) // what cannot be read is replaced
	d.Approval.Reason, d.Approval.OSUser, d.Approval.Host, d.Approval.EtcdUser = clip(d.Approval.Reason), clip(d.Approval.OSUser), clip(d.Approval.Host), clip(d.Approval.EtcdUser)
	raw, err := json.Marshal(remember(decisions, d))
	if err != nil {
		return err
	}
	_, err = store.ChangeFenced(ctx, epoch, kv.BlobChange{If: map[string]int64{decisionsPath: stored.Revision}, Put: []kv.Blob{{Path: decisionsPath, Raw: raw}}})
	return err
}
