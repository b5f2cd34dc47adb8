package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/removal"
	"navarch.io/navarch/store/watchdog"
)

// Store is the part of kv.Store that the loop uses.
type Store interface {
	LoadHashes(ctx context.Context, revision int64, whole func(path string) bool) (*kv.State, error)
	Commit(ctx context.Context, batch kv.Batch) (kv.Head, error)
	Watch(ctx context.Context, from kv.Position) <-chan kv.Update
	Before(ctx context.Context, paths []string, revision int64) ([]kv.Value, error)
}

// Config is the input of New.
type Config struct {
	Options
	Store  Store
	Sealer Sealer // of private keys; nil: Secrets with a private key are not written
	Log    *slog.Logger
	// Committed is called with every batch that was written, with the time of the oldest event in it (the load's, for a
	// full comparison) and of the beginning of the commit; nil: not called. Any goroutine calls it. It must not block
	// (store/watchdog reports it), and changes nothing of the batch.
	Committed func(revision int64, event, began time.Time, batch kv.Batch)
	// Referred is called with the Secrets that records refer to (Options.SecretUses), by Secret, each time that they
	// have changed; nil: not called. It must not block.
	Referred func([]object.Reference)
	// Named is called with the names that are to be resolved (normal.ResolvedID), sorted, each time that they have
	// changed. whole: the sources refer to no others. nil: not called. It must not block.
	Named func(names []string, whole bool)
	// KeySets is called in the same way with the keys that are to be fetched (normal.KeysID).
	KeySets func(needed []object.ID, whole bool)
	Seen    func() kv.Place // newest place that this process's mirror has read, or remembers; nil: none is known
	Pace    time.Duration   // least time between batches of endpoints alone; default 25 ms
	Retry   time.Duration   // pause after a load or write that failed; default 500 ms
}

// Loop is the ingester. Emit, Gained and Lost may be called from any goroutine, also before Run.
type Loop struct {
	Config
	state     *State // owned by Run
	box       *loop.Box[input]
	callbacks *watchdog.Watchdog // of Referred, Named and KeySets; Run's

	problems        atomic.Pointer[[]object.Problem]
	stats           atomic.Pointer[Stats]
	stored          atomic.Uint32 // the level for which everything is written
	removals        atomic.Pointer[heldRemovals]
	removalsVersion uint64 // Run's: of removals
	accepts         chan acceptance
	tenants         tenantsOf
	settled         atomic.Bool
	whole           bool                          // argument of the last calls of Named and KeySets
	changes         *obs.Sampled                  // log lines about changes of others in the store
	count           atomic.Pointer[problem.Count] // of all problems
	version         atomic.Uint64                 // counts changes of the problems of all objects
	asking          sync.Mutex                    // guards asked, also while the loop answers
	asked           *everyProblem

	between []object.Problem // Run's: the problems between objects
	counted problemsVersion  // Run's: for which version was last incremented
	ask     []func()         // Run's: questions that wait for publish
}

// input is the content of the loop's box: every call of Emit, and the newest calls about the level, clusters and leadership.
type input struct {
	emits  Emits
	level  *Levelled       // nil: it has not changed
	remote *Remotes        // nil: it has not changed
	term   Event           // Gained, Lost or nil
	settle []chan struct{} // closed once emits are applied
	ask    []func()
}

// merge adds a newer input to one that waits.
func merge(waiting, next input) input {
	waiting.emits = append(waiting.emits, next.emits...)
	if next.level != nil {
		waiting.level = next.level
	}
	if next.remote != nil {
		waiting.remote = next.remote
	}
	if next.term != nil {
		waiting.term = next.term
	}
	waiting.settle = append(waiting.settle, next.settle...)
	waiting.ask = append(waiting.ask, next.ask...)
	return waiting
}

// New makes a Loop, with defaults for empty fields. Nothing runs before Run.
func New(c Config) *Loop {
	c.Pace = cmp.Or(c.Pace, 25*time.Millisecond)
	c.Retry = cmp.Or(c.Retry, 500*time.Millisecond)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Crashes == nil {
		c.Crashes = crash.New(c.Log)
	}
	return &Loop{Config: c, state: NewState(c.Options), box: loop.NewBox(merge), accepts: make(chan acceptance),
		callbacks: watchdog.New(c.Log, "ingest: Referred, Named, KeySets"), changes: obs.NewSampled(c.Log)}
}

// Emit applies events of a source. Events of one call are written in one batch. Other changes may be written before it, if
// they are of other namespaces, or with it.
func (l *Loop) Emit(events []object.Event) {
	l.box.Put(input{emits: Emits{{Objects: slices.Clone(events), At: time.Now()}}})
}

// Gained begins a term of this process under an epoch. held are the removals that the leader before held.
func (l *Loop) Gained(epoch kv.Epoch, held ...removal.Hold) {
	l.box.Put(input{term: Gained{epoch, held}})
}

// Lost ends the term.
func (l *Loop) Lost() { l.box.Put(input{term: Lost{}}) }

// checkAfter is the time in which changes gather before objects are checked against each other.
const checkAfter = 200 * time.Millisecond

// Run carries out the effects of State.Step until ctx ends, and returns its error. Loads and writes that fail are logged and
// tried again.
func (l *Loop) Run(ctx context.Context) error {
	results := make(chan Event)
	check := time.NewTimer(time.Hour)
	check.Stop()
	defer check.Stop()
	reencrypt := time.NewTimer(reencryptEvery)
	defer reencrypt.Stop()
	checking := false
	unfollow := func() {} // ends the goroutine that follows the stored records
	defer func() { unfollow() }()
	for {
		var effects []Effect
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.box.Ready():
			in, ok := l.box.Take()
			if !ok {
				continue
			}
			if in.term != nil {
				unfollow()
			}
			effects = l.applyInput(in)
		case event := <-results:
			effects = l.state.Step(event)
			switch e := event.(type) {
			case Loaded: // a term begins
				reencrypt.Reset(reencryptPause)
				unfollow()
				unfollow = l.startFollowing(ctx, e, results)
			case Reencrypted:
				reencrypt.Reset(e.pause())
			}
		case a := <-l.accepts:
			var done accepted
			effects, done.hold, done.ok = l.state.accept(a.id)
			a.done <- done
		case <-reencrypt.C:
			if effects = l.state.Step(Look{}); len(effects) == 0 {
				reencrypt.Reset(reencryptEvery)
			}
		case <-check.C:
			l.check()
			checking = false
			l.reportReferred()
		}
		if (l.state.inventory.crossCheck.due || l.state.inventory.references.dirty) && !checking {
			check.Reset(checkAfter)
			checking = true
		}
		l.publish()
		for _, effect := range effects {
			go l.do(ctx, effect, time.Now(), results)
		}
	}
}

// check checks objects against each other, if records have changed.
func (l *Loop) check() {
	w := l.state.inventory
	if !w.crossCheck.due {
		return
	}
	if between := w.crossCheck.check(&w.guard); !slices.Equal(between, l.between) {
		l.between = between
		l.version.Add(1)
	}
}

// applyInput applies everything that has gathered in the box, and tells the callers that wait for it.
func (l *Loop) applyInput(in input) (effects []Effect) {
	l.ask = in.ask
	if in.level != nil {
		effects = l.state.Step(*in.level)
	}
	if in.term != nil { // before the events of sources, so that a process that does not lead any more begins nothing
		effects = append(effects, l.state.Step(in.term)...)
	}
	if len(in.emits) > 0 {
		effects = append(effects, l.state.Step(in.emits)...)
	}
	if in.remote != nil { // after the events of sources: a cluster that is gone was forgotten before
		effects = append(effects, l.state.Step(*in.remote)...)
	}
	if len(in.settle) > 0 {
		l.reportReferred()
	}
	for _, taken := range in.settle {
		close(taken)
	}
	return effects
}

// do carries out one effect, in a goroutine of its own. At most one load or write is under way for each epoch.
func (l *Loop) do(ctx context.Context, effect Effect, now time.Time, results chan<- Event) {
	var result Event
	switch e := effect.(type) {
	case Wait:
		_ = loop.Pause(ctx, l.Pace)
		result = Due{}
	case Load:
		if e.Again {
			_ = loop.Pause(ctx, l.Retry)
		}
		result = l.load(ctx, e.Epoch)
	case Seal:
		if e.Again {
			_ = loop.Pause(ctx, l.Retry)
		}
		result = sealAll(ctx, l.Sealer, e)
	case Reencrypt:
		result = l.reencrypt(ctx, e)
	case Recall:
		result = l.recall(ctx, e)
	case Write:
		if e.Since.IsZero() {
			e.Since = now
		}
		result = l.write(ctx, e)
	}
	send(ctx, results, result)
}

// place returns the place of this term's first head: a new term, above the stored head's and above all that this process has
// read.
func (l *Loop) place(head kv.Head) kv.Place {
	var seen kv.Place
	if l.Seen != nil {
		seen = l.Seen()
	}
	return head.Place.Next(seen, time.Now())
}

// load reads the stored hashes, and tries again until it succeeds or ctx ends.
func (l *Loop) load(ctx context.Context, epoch kv.Epoch) Event {
	for ctx.Err() == nil {
		loaded, err := l.loadOnce(ctx, epoch)
		if err == nil {
			return loaded
		}
		if ctx.Err() == nil {
			l.Log.Warn("cannot read what is stored; trying again", obs.KeyEpoch, epoch.Revision, obs.KeyError, err)
		}
		_ = loop.Pause(ctx, l.Retry)
	}
	return Lost{}
}

// readWhole reports whether more than the hash of a stored record is read: of Secrets, whose private keys are sealed, of the
// mesh configuration, and of kinds that this build does not know.
func readWhole(path string) bool {
	key, err := model.ParsePath(path)
	return err != nil || key.Kind == model.KindSecret || key == model.MeshKey
}

// loadOnce reads the stored hashes. Its error is the store's, or names a batch that was written meanwhile.
func (l *Loop) loadOnce(ctx context.Context, epoch kv.Epoch) (Loaded, error) {
	state, err := l.Store.LoadHashes(ctx, 0, readWhole)
	if err == nil && state.Head.Revision != 0 && !state.Head.Complete {
		state, err = l.Store.LoadHashes(ctx, state.Store, readWhole) // the written part of an incomplete batch counts
	}
	if err != nil {
		return Loaded{}, fmt.Errorf("load records: %w", err)
	}
	if state.Head.Revision > state.At.Revision {
		return Loaded{}, fmt.Errorf("load records: a batch was written at revision %d meanwhile", state.Head.Revision)
	}
	l.logDiffering(state)
	loaded := Loaded{Epoch: epoch, Have: make(map[model.Key]model.Hash, len(state.Values)),
		Secrets: map[model.Key]*model.Secret{}, After: state.Head.Revision,
		Complete: state.Head.Revision == 0, Place: l.place(state.Head),
		At: state.At, Now: time.Now(), Contents: state.Contents, Unknown: map[string]model.Hash{}}
	if l.Budget.Bytes > 0 {
		loaded.Bytes = make(map[model.Key]int, len(state.Values))
	}
	for _, v := range state.Values {
		key, err := v.Key()
		if err != nil {
			l.Log.Warn("a stored record is of a kind that this build does not know; it is left alone unless the level says otherwise",
				obs.KeyName, v.Path)
			if loaded.Unknown[v.Path] = v.Hash(); !model.ReadUnknown(v.Path, v.Raw).Closing {
				loaded.Skippable = append(loaded.Skippable, v.Path)
			}
			continue
		}
		loaded.Have[key] = v.Hash()
		if loaded.Bytes != nil {
			loaded.Bytes[key] = v.Size()
		}
		if key.Kind == model.KindSecret || key == model.MeshKey { // a record that does not decode is written again
			switch r, _ := v.Record(); r := r.(type) {
			case *model.Secret:
				loaded.Secrets[key] = r
			case *model.Mesh:
				loaded.Mesh = r
			}
		}
	}
	l.Log.Info("leading: comparing everything with what is stored", obs.KeyEpoch, epoch.Revision, "records", len(loaded.Have))
	return loaded, nil
}

// write commits a batch.
func (l *Loop) write(ctx context.Context, e Write) Event {
	batch, began := e.Batch, time.Now()
	head, err := l.Store.Commit(ctx, batch)
	revision := head.Revision
	written := Written{Epoch: batch.Epoch, After: revision, Contents: head.Contents}
	var large *kv.TooLargeError
	if l.Committed != nil && revision != 0 {
		watchdog.New(l.Log, "ingest: Committed").Call(func() { l.Committed(revision, e.Since, began, batch) })
	}
	switch {
	case err == nil:
	case errors.As(err, &large) && revision != 0:
		written.Refused = map[model.Key]int{}
		for i, key := range large.Records {
			written.Refused[key] = large.Sizes[i]
		}
	case errors.Is(err, kv.ErrDeposed):
		l.Log.Info("deposed: writing nothing more", obs.KeyEpoch, batch.Epoch.Revision)
		written.Outcome = Deposed
	default:
		if ctx.Err() == nil {
			l.Log.Warn("a batch was not written, or not in full; comparing everything again", obs.KeyEpoch, batch.Epoch.Revision, obs.KeyError, err)
		}
		written.Outcome = Unknown
	}
	return written
}
