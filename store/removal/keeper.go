package removal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// Holder is a guard that holds removals. Its methods may be called from any goroutine.
type Holder interface {
	Held() []object.Loss
	// Everything says whether nothing would be left: that never goes by itself.
	Everything() bool
	// Release lets exactly these losses go; false: it holds others by now, and nothing was let go.
	Release(ctx context.Context, losses []object.Loss) bool
}

// Keeper publishes what a process holds while it leads, and decides on approvals.
type Keeper struct {
	Store   *kv.Store
	Holders []Holder
	Name    string // of this process
	Log     *slog.Logger
	// After is how long removals are held before they go by themselves; 0: until somebody accepts them.
	After time.Duration
	// Losses is what the guards remember, and is kept stored; nil: nothing is.
	Losses *Losses

	shown atomic.Pointer[Held]
}

// Shown is what this process holds and has published; nil: nothing, or it does not lead.
func (k *Keeper) Shown() *Held { return k.shown.Load() }

// lookEvery is how often a process looks at what it holds: the guards do not say when that changes.
const lookEvery = 250 * time.Millisecond

// followedFor is how long a process that does not lead takes over a removal that the leader's was accepted for: its own look at the
// same folder may be later.
const followedFor = time.Minute

// Lead publishes and decides under an epoch until ctx ends. kv.ErrDeposed: another leads.
func (k *Keeper) Lead(ctx context.Context, epoch kv.Epoch) error {
	defer k.shown.Store(nil)
	stored, approvals, err := k.follow(ctx)
	if err != nil {
		return err
	}
	t := &term{Keeper: k, epoch: epoch}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case f, open := <-stored:
			if open {
				t.read(f)
			}
		case f, open := <-approvals:
			if open {
				t.approvals, t.listed = f.Blobs, true
			}
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !t.known || !t.listed || ctx.Err() != nil || time.Now().Before(t.again) {
			continue
		}
		if err := t.act(ctx); errors.Is(err, kv.ErrDeposed) {
			return err
		} else if err != nil && ctx.Err() == nil {
			t.again = time.Now().Add(time.Second)
			if !errors.Is(err, kv.ErrConflict) { // what another wrote comes by the watch
				k.Log.Warn("the held removals, or a decision on one, could not be written; trying again", obs.KeyError, err)
			}
		}
	}
}

func (k *Keeper) follow(ctx context.Context) (stored, approvals <-chan kv.Folder, err error) {
	if stored, err = k.Store.Follow(ctx, Folder); err != nil {
		return nil, nil, err
	}
	approvals, err = k.Store.Follow(ctx, Approvals)
	return stored, approvals, err
}

// Watch takes over, until ctx ends, what is accepted while another process leads: this one holds the same, and would put it
// back when it leads next. Its error is the context's.
func (k *Keeper) Watch(ctx context.Context, leads func() bool) error {
	stored, err := k.Store.Follow(ctx, Folder)
	if err != nil {
		return err
	}
	seen, until := map[string]bool(nil), map[string]time.Time{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case f, open := <-stored:
			if !open {
				continue
			}
			next := map[string]bool{}
			decisions, _ := parseDecisions(find(f, decisionsPath).Raw) // what cannot be read the leader replaces
			for _, d := range decisions {
				if next[d.Approval.ID] = d.Applied; d.Applied && seen != nil && !seen[d.Approval.ID] {
					until[d.Approval.Digest] = time.Now().Add(followedFor)
				}
			}
			seen = next
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if len(until) == 0 || leads() {
			clear(until)
			continue
		}
		for digest, end := range until {
			parts, all := k.measure()
			switch {
			case len(all) > 0 && digestOf(all) == digest:
				delete(until, digest)
				if k.release(ctx, parts) {
					k.Log.Info("a held removal that an operator accepted at the leader is applied here too", obs.KeyDigest, digest, obs.KeyObjects, len(all))
				}
			case time.Now().After(end):
				delete(until, digest)
			}
		}
	}
}

func find(f kv.Folder, path string) kv.Blob {
	for _, blob := range f.Blobs {
		if blob.Path == path {
			return blob
		}
	}
	return kv.Blob{}
}

// measure is what each holder holds, and all of it.
func (k *Keeper) measure() (parts [][]object.Loss, all []object.Loss) {
	for _, h := range k.Holders {
		losses := h.Held()
		parts, all = append(parts, losses), append(all, losses...)
	}
	return parts, all
}

func (k *Keeper) release(ctx context.Context, parts [][]object.Loss) bool {
	done := true
	for i, losses := range parts {
		if len(losses) > 0 {
			done = k.Holders[i].Release(ctx, losses) && done
		}
	}
	return done
}

// term is the state of Lead; its goroutine alone touches it.
type term struct {
	*Keeper
	epoch     kv.Epoch
	known     bool // removals/ was read
	listed    bool // approvals/ was
	held      *Held
	heldAt    int64 // revision of the stored one; 0: there is none
	decisions []Decision
	decidedAt int64
	approvals []kv.Blob
	again     time.Time // not before this, after something failed
}

// read takes over what is stored. What cannot be read is as nothing: it is replaced.
func (t *term) read(f kv.Folder) {
	held, decisions := find(f, heldPath), find(f, decisionsPath)
	if t.known && held.Revision <= t.heldAt && decisions.Revision <= t.decidedAt && (held.Revision != 0 || t.heldAt == 0) && (decisions.Revision != 0 || t.decidedAt == 0) {
		return // what this leader wrote itself, or older
	}
	var errs [2]error
	t.held, errs[0] = parseHeld(held.Raw)
	t.decisions, errs[1] = parseDecisions(decisions.Raw)
	t.known, t.heldAt, t.decidedAt = true, held.Revision, decisions.Revision
	if err := errors.Join(errs[:]...); err != nil {
		t.Log.Warn("the stored list of held removals cannot be read; it is replaced", obs.KeyError, err)
	}
}

// act writes what differs, and decides on what waits.
func (t *term) act(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if t.Losses != nil {
		if err := t.Losses.Write(ctx, t.epoch); err != nil {
			return err
		}
	}
	parts, all := t.measure()
	if err := t.publish(ctx, heldOf(all)); err != nil {
		return err
	}
	if t.over(time.Now()) {
		return t.accept(ctx, parts)
	}
	for len(t.approvals) > 0 {
		blob := t.approvals[0]
		if err := t.decide(ctx, blob, parts); err != nil {
			return err
		}
		t.approvals = t.approvals[1:]
		if parts, all = t.measure(); len(all) == 0 || t.held == nil || digestOf(all) != t.held.Digest {
			if err := t.publish(ctx, heldOf(all)); err != nil {
				return err
			}
		}
	}
	return nil
}

// publish writes what is held, where something else is stored.
func (t *term) publish(ctx context.Context, now *Held) error {
	if now == nil && t.heldAt == 0 || now != nil && t.held != nil && t.held.Digest == now.Digest && t.held.Leader == t.Name {
		t.shown.Store(t.held)
		return nil
	}
	change := kv.BlobChange{If: map[string]int64{heldPath: t.heldAt}}
	if now == nil {
		change.Delete = []string{heldPath}
	} else {
		if now.Since, now.Leader = time.Now().UTC(), t.Name; t.held != nil && t.held.Digest == now.Digest {
			now.Since = t.held.Since
		}
		raw, err := json.Marshal(now)
		if err != nil {
			return err
		}
		change.Put = []kv.Blob{{Path: heldPath, Raw: raw}}
	}
	revision, err := t.Store.ChangeFenced(ctx, t.epoch, change)
	if err != nil {
		return err
	}
	if t.held, t.heldAt = now, revision; now == nil {
		t.heldAt = 0
	}
	t.shown.Store(now)
	if now != nil {
		t.Log.Warn("a removal of many objects at once is held; navarchctl store held lists them, navarchctl store accept-removal accepts it",
			obs.KeyDigest, now.Digest, obs.KeyObjects, now.Count)
	}
	return nil
}

// decide takes one approval away and writes what becomes of it in one transaction, so that it cannot count twice, whoever leads;
// then it applies it. Where it is not known whether that was written nothing is let go: the operator asks again.
func (t *term) decide(ctx context.Context, blob kv.Blob, parts [][]object.Loss) error {
	approval, err := parseApproval(blob.Path, blob.Raw)
	d := Decision{Approval: approval, At: time.Now().UTC(), Leader: t.Name, Epoch: t.epoch.Revision}
	switch {
	case err != nil:
		d.Refused = clip("no approval: " + err.Error())
	case t.held == nil:
		d.Refused = "nothing is held"
	case approval.Digest != t.held.Digest:
		d.Refused = fmt.Sprintf("what is held is another set by now: %d objects with the digest %s", t.held.Count, t.held.Digest)
	default:
		d.Count, d.Kinds = t.held.Count, t.held.Kinds
	}
	if err := t.record(ctx, d, &blob); err != nil {
		return err
	}
	line := []any{obs.KeyDigest, approval.Digest, obs.KeyApproval, approval.ID, obs.KeyReason, approval.Reason, obs.KeyOSUser, approval.OSUser,
		obs.KeyHost, approval.Host, obs.KeyEtcdUser, approval.EtcdUser}
	if d.Refused != "" {
		t.Log.Warn("an approval of a removal was refused", append(line, obs.KeyError, d.Refused)...)
		return nil
	}
	return t.apply(ctx, d, parts, line)
}

// over says whether what is held has been held for its time.
func (t *term) over(now time.Time) bool {
	everything := slices.ContainsFunc(t.Holders, Holder.Everything)
	return t.After > 0 && t.held != nil && !everything && now.Sub(t.held.Since) >= t.After
}

// accept lets go what has been held for its time, as if somebody had accepted it.
func (t *term) accept(ctx context.Context, parts [][]object.Loss) error {
	d := Decision{At: time.Now().UTC(), Leader: t.Name, Epoch: t.epoch.Revision, Count: t.held.Count, Kinds: t.held.Kinds,
		Approval: Approval{ID: rand.Text(), Digest: t.held.Digest, Reason: fmt.Sprintf("held for %v (--held-removals-end-after)", t.After)}}
	d.Approval.At = d.At
	if err := t.record(ctx, d, nil); err != nil {
		return err
	}
	t.again = time.Now().Add(time.Second) // the holders say a moment later that they hold nothing
	return t.apply(ctx, d, parts, []any{obs.KeyDigest, d.Approval.Digest, obs.KeyReason, d.Approval.Reason})
}

// apply lets go what a recorded decision accepts, and records what became of it.
func (t *term) apply(ctx context.Context, d Decision, parts [][]object.Loss, line []any) error {
	if t.release(ctx, parts) {
		d.Applied = true
		t.Log.Warn("a held removal was accepted; the objects are removed", append(line, obs.KeyObjects, d.Count)...)
	} else {
		d.Failed = "what is held has changed in the meantime, and is held"
		t.Log.Warn("a held removal was accepted, but not applied", append(line, obs.KeyError, d.Failed)...)
	}
	return t.record(ctx, d, nil)
}

// record writes a decision, and takes the approval away that it is about (nil: that was done).
func (t *term) record(ctx context.Context, d Decision, approval *kv.Blob) error {
	next := remember(t.decisions, d)
	raw, err := json.Marshal(next)
	if err != nil {
		return err
	}
	change := kv.BlobChange{If: map[string]int64{decisionsPath: t.decidedAt}, Put: []kv.Blob{{Path: decisionsPath, Raw: raw}}}
	if approval != nil {
		change.If[approval.Path] = approval.Revision
		change.Delete = []string{approval.Path}
	}
	revision, err := t.Store.ChangeFenced(ctx, t.epoch, change)
	if err != nil {
		return err
	}
	t.decisions, t.decidedAt = slices.Clip(next), revision
	return nil
}
