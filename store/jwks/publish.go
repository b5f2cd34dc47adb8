package jwks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// folder is the folder of key sets in etcd. Each key set is stored under a hash of its source.
const folder = "fetched/"

// storedTogether is the maximum number of key sets in one transaction. Each has at most mostKept bytes.
const storedTogether = 16

// stored is one key set in etcd.
type stored struct {
	Source string `json:"source"` // normal.KeySource.String
	Keys   string `json:"keys"`   // JSON Web Key Set
}

func pathOf(of normal.KeySource) string {
	hash := sha256.Sum256([]byte(of.String()))
	return folder + hex.EncodeToString(hash[:16])
}

// load reads the stored key sets, and retries until etcd answers. It returns false if ctx ends first.
func (t *term) load(ctx context.Context) bool {
	for ctx.Err() == nil {
		blobs, _, err := t.store.Blobs(ctx, folder, 0)
		if err == nil {
			t.stored = map[normal.KeySource]string{}
			for _, blob := range blobs {
				var one stored
				err := json.Unmarshal(blob.Raw, &one)
				of, err2 := normal.ParseKeySource(one.Source)
				if err != nil || err2 != nil {
					t.Log.Warn("a stored key set does not decode; it is fetched again", obs.KeyName, blob.Path)
					continue
				}
				t.stored[of] = one.Keys
			}
			return true
		}
		t.Log.Warn("stored key sets cannot be read from etcd; trying again", obs.KeyError, err)
		_ = loop.Pause(ctx, time.Second)
	}
	return false
}

// publish stores changed keys in etcd and then emits them to the ingester, so that the next leader finds every key in
// use. Once Need was called with a complete list, the next publish also emits Synced (the end of the first list),
// without waiting for servers. Errors are those of save. After an error nothing was emitted.
func (t *term) publish(ctx context.Context) error {
	if err := t.save(ctx); err != nil {
		return err
	}
	t.report()
	events := t.events()
	if t.whole && !t.synced {
		t.synced = true
		events = append(events, object.Event{Op: object.Synced, ID: object.ID{Origin: Origin()}})
	}
	if len(events) > 0 {
		t.Emit(events)
	}
	return nil
}

// save writes changed key sets to etcd, and deletes those that are not needed. Errors are those of kv.FencedBlobs.Set.
func (t *term) save(ctx context.Context) error {
	blobs := t.store.FencedBlobs(t.epoch, storedTogether)
	for of := range t.changed {
		keys := ""
		if s := t.sources[of]; s != nil {
			keys = s.keys
		}
		if keys == t.stored[of] {
			continue
		}
		var raw []byte // nil deletes the key set
		if keys != "" {
			var err error
			if raw, err = json.Marshal(stored{of.String(), keys}); err != nil {
				return err
			}
		}
		err := blobs.Set(ctx, pathOf(of), raw, func() {
			if t.stored[of] = keys; keys == "" {
				delete(t.stored, of)
			}
		})
		if err != nil {
			return err
		}
	}
	return blobs.Flush(ctx)
}

// events returns the puts and deletes for the changed sources, in the order of IDs, and marks them as emitted.
func (t *term) events() (events []object.Event) {
	for of := range t.changed {
		s := t.sources[of]
		if s == nil {
			s = &source{}
		}
		before, now := t.emitted[of], map[object.ID]string{}
		for _, id := range s.ids {
			made, err := normal.NewKeys(id, s.keys, s.reason())
			if err != nil || s.keys == "" && s.wrong == nil { // err is always nil; the other condition: no fetch has ended yet
				continue
			}
			if now[id] = string(made.JSON); now[id] != before[id] {
				events = append(events, object.Event{Op: object.Put, ID: id, Object: made, Location: made.Location})
			}
		}
		for id := range before {
			if _, still := now[id]; !still {
				events = append(events, object.Event{Op: object.Delete, ID: id})
			}
		}
		if t.emitted[of] = now; len(now) == 0 {
			delete(t.emitted, of)
		}
	}
	clear(t.changed)
	slices.SortFunc(events, func(a, b object.Event) int { return a.ID.Compare(b.ID) })
	return events
}
