package removal

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/source/guard"
)

const lossesPath = Folder + "losses"

// Losses has what the shrink guards of a leader remember of what vanished stored, so that a process which leads next, the same one after a
// restart among them, adds its losses to these (issue 12, item 17). Safe for concurrent use.
type Losses struct {
	Store  *kv.Store
	Memory *guard.Memory
	Log    *slog.Logger

	mu    sync.Mutex
	epoch kv.Epoch
	wrote []byte // under epoch, or found when it began; nil: nothing
}

// Recall takes over what is stored, at the beginning of a term and before anything is compared. What cannot be understood is as nothing: it
// is replaced. Errors are etcd's.
func (l *Losses) Recall(ctx context.Context, epoch kv.Epoch) error {
	blobs, _, err := l.Store.Blobs(ctx, Folder, 0)
	if err != nil {
		return err
	}
	raw := find(kv.Folder{Blobs: blobs}, lossesPath).Raw
	var sums []guard.Sum
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &sums); err != nil {
			l.Log.Warn("the previous leader's list of vanished objects cannot be read, and is ignored", obs.KeyError, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch, l.wrote = epoch, raw
	l.Memory.Recall(time.Now(), sums)
	return nil
}

// Write stores what is remembered, where that is not stored; the leader calls it before it writes that something vanished. It does nothing
// under another epoch than that of the last Recall. Errors: kv.ErrDeposed, etcd's.
func (l *Losses) Write(ctx context.Context, epoch kv.Epoch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch {
		return nil
	}
	var raw []byte
	if sums := l.Memory.Sums(time.Now()); len(sums) > 0 {
		var err error
		if raw, err = json.Marshal(sums); err != nil {
			return err
		}
	}
	if bytes.Equal(raw, l.wrote) {
		return nil
	}
	change := kv.BlobChange{Delete: []string{lossesPath}}
	if raw != nil {
		change = kv.BlobChange{Put: []kv.Blob{{Path: lossesPath, Raw: raw}}}
	}
	if _, err := l.Store.ChangeFenced(ctx, epoch, change); err != nil {
		return err
	}
	l.wrote = raw
	return nil
}
