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

// Store is the part of kv.Store, the etcd client, that the loop uses. Its methods have the semantics and errors of
// kv.Store's.
type Store interface {
	LoadHashes(ctx context.Context, revision int64, whole func(path string) bool) (*kv.State, error)
	Commit(ctx context.Context, batch kv.Batch) (kv.Head, error)
	Watch(ctx context.Context, from kv.Position) <-chan kv.Update
	Before(ctx context.Context, paths []string, revision int64) ([]kv.Value, error)
}

// Config configures a Loop. Store is required.
type Config struct {
	Options
	Store  Store
	Sealer Sealer       // encrypts private keys; nil: Secrets with a private key are not written
	Log    *slog.Logger // nil: nothing is logged
	// Committed is called with every written batch and the revision of its head; nil: not called. The head is the
	// record that each batch writes. If nothing had to be written, the revision is that of the stored head. The
	// argument event is the time of the oldest event in the batch. If no event caused the batch, as in a full
	// comparison, it is the time when the batch was made. The argument began is the beginning of the commit. The batch
	// still contains records that were too large to be written. Committed is called on any goroutine. It must not block
	// (store/watchdog reports slow calls) and must not change the batch.
	Committed func(revision int64, event, began time.Time, batch kv.Batch)
	// Referred is called with the references of records to Secrets and ConfigMaps (Options.SecretUses), sorted by
	// target. It is called by Run when they have changed, after a delay of up to checkAfter; nil: not called. It must
	// not block.
	Referred func([]object.Reference)
	// Named is called by Run with the host names to resolve (normal.ResolvedID), sorted; nil: not called. It is
	// called when one of its arguments has changed. The argument whole reports that all sources of configuration have
	// emitted everything, so that no further names follow at present. Named must not block.
	Named func(names []string, whole bool)
	// KeySets is called like Named, with the IDs of the key sets to fetch (normal.KeysID), sorted; nil: not called.
	KeySets func(needed []object.ID, whole bool)
	// Seen returns the newest kv.Place (position of a head) that the mirror of this process knows from etcd or from
	// disk. If Seen is nil, the zero Place is used.
	Seen  func() kv.Place
	Pace  time.Duration // minimum interval between batches that contain only endpoints; 0: 25 ms
	Retry time.Duration // pause before a failed operation is repeated; 0: 500 ms
}

// Loop is the ingester. Its exported methods may be called from any goroutine, and Run only once. Emit, Gained, Lost,
// Level and Expect may be called before Run. The embedded Config must not be changed after New.
type Loop struct {
	Config
	state     *State // owned by Run
	line      line   // calls of Emit that are not applied yet; owned by Run
	box       *loop.Box[input]
	callbacks *watchdog.Watchdog // for calls of Referred, Named and KeySets; owned by Run

	problems        atomic.Pointer[[]object.Problem]
	stats           atomic.Pointer[Stats]
	stored          atomic.Uint32 // result of Stored
	removals        atomic.Pointer[heldRemovals]
	removalsVersion uint64 // version of removals; owned by Run
	accepts         chan acceptance
	tenants         tenantsOf
	settled         atomic.Bool
	whole           bool                          // argument whole of the last calls of Named and KeySets
	changes         *obs.Sampled                  // log of changes that other writers made in the store
	count           atomic.Pointer[problem.Count] // numbers of all problems
	version         atomic.Uint64                 // counts changes of the problems of all objects
	asking          sync.Mutex                    // guards asked; held until the loop has answered
	asked           *everyProblem

	postponed int             // steps in a row that published no problems; owned by Run
	counted   problemsVersion // state of the problems at the last increment of version; owned by Run
	ask       []func()        // functions to call in publish; owned by Run
}

// input is the content of the loop's box. It has all waiting calls of Emit, and the newest calls about level, clusters
// and leadership.
type input struct {
	emits  Emits
	level  *Levelled       // nil: it has not changed
	remote *Remotes        // nil: it has not changed
	term   Event           // Gained, Lost or nil
	settle []chan struct{} // closed once emits are applied
	ask    []func()        // functions to call after publish
}

// merge adds a newer input to a waiting one.
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

// New returns a Loop, with defaults for empty fields of c. Nothing runs before Run.
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

// Emit passes events of a source to Run, and returns before they are applied. The records of one call are written in
// one batch, with two exceptions. Secrets with a private key follow once the key is sealed. A call about several
// namespaces is divided if one of these namespaces has many calls waiting (maxBefore). The batch may contain other
// changes too. Changes of other namespaces may be written earlier. Emit clones the slice and does not block. The
// objects in it must not change afterwards.
func (l *Loop) Emit(events []object.Event) {
	l.box.Put(input{emits: Emits{{Objects: slices.Clone(events), At: time.Now()}}})
}

// Gained notifies Run that a term of this process begins under an epoch. The parameter held lists the removals that the
// previous leader held back. Gained does not block. A later call of Gained or Lost replaces a call that Run has not
// processed yet.
func (l *Loop) Gained(epoch kv.Epoch, held ...removal.Hold) {
	l.box.Put(input{term: Gained{epoch, held}})
}

// Lost notifies Run that the term has ended. It does not block.
func (l *Loop) Lost() { l.box.Put(input{term: Lost{}}) }

// passedEvery is the interval between two checks for expired certificates.
const passedEvery = time.Minute

// checkAfter is the delay between a change and the check of objects against each other. One check covers all changes
// during the delay.
const checkAfter = 200 * time.Millisecond

// Run processes events and carries out their effects until ctx ends, and returns the error of ctx. Failed loads are
// logged and repeated. Failed writes are logged, and everything is compared again.
func (l *Loop) Run(ctx context.Context) error {
	results := make(chan Event)
	check := time.NewTimer(time.Hour)
	check.Stop()
	defer check.Stop()
	reencrypt := time.NewTimer(reencryptEvery)
	defer reencrypt.Stop()
	passed := time.NewTicker(passedEvery)
	defer passed.Stop()
	checking := false
	unfollow := func() {} // ends the goroutine that follows the stored records
	defer func() { unfollow() }()
	for {
		var effects []Effect
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.line.ready():
			effects = l.applyWaiting(false)
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
			effects = l.accept(a)
		case <-reencrypt.C:
			if effects = l.state.Step(Look{}); len(effects) == 0 {
				reencrypt.Reset(reencryptEvery)
			}
		case now := <-passed.C:
			effects = l.state.Step(Passed{now})
		case <-check.C:
			l.check()
			checking = false
		}
		if l.state.inventory.unchecked() && !checking {
			check.Reset(checkAfter)
			checking = true
		}
		for _, effect := range effects { // before publish: a write to etcd does not wait for lists of problems
			go l.do(ctx, effect, time.Now(), results)
		}
		l.publish()
	}
}

// applyInput applies the content of the box and closes the channels of input.settle. Calls of Emit that exceed the time
// of one turn stay in l.line. publish calls the functions of input.ask.
func (l *Loop) applyInput(in input) (effects []Effect) {
	l.ask = in.ask
	if in.level != nil {
		effects = l.state.Step(*in.level)
	}
	if in.term != nil { // before the events of sources, so that a process that no longer leads starts no write
		effects = append(effects, l.state.Step(in.term)...)
	}
	if l.line.add(in.emits); !l.line.empty() {
		effects = append(effects, l.applyWaiting(in.remote != nil || len(in.settle) > 0)...)
	}
	if in.remote != nil { // after the events of sources: Forget of a removed cluster precedes its removal from Remotes
		effects = append(effects, l.state.Step(*in.remote)...)
	}
	if len(in.settle) > 0 {
		l.reportReferred()
	}
	for _, done := range in.settle {
		close(done)
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

// place returns the Place (position) for the first head of this term. The result is after the Place of the stored head.
// It is also after the Place that Seen returns, if both Places have the same kv.Place.Chain.
func (l *Loop) place(head kv.Head) kv.Place {
	var seen kv.Place
	if l.Seen != nil {
		seen = l.Seen()
	}
	return head.Place.Next(seen, time.Now())
}

// load reads the stored hashes, and tries again until it succeeds. The result is Loaded, or Lost if ctx has ended.
func (l *Loop) load(ctx context.Context, epoch kv.Epoch) Event {
	for ctx.Err() == nil {
		loaded, err := l.loadOnce(ctx, epoch)
		if err == nil {
			return loaded
		}
		if ctx.Err() == nil {
			l.Log.Warn("the stored records cannot be read; trying again", obs.KeyEpoch, epoch.Revision, obs.KeyError, err)
		}
		_ = loop.Pause(ctx, l.Retry)
	}
	return Lost{}
}

// readWhole selects the stored records to read with their value, not only with their hash. These are Secrets, whose
// sealed private keys are reused, the mesh configuration, and records of kinds that this build does not know.
func readWhole(path string) bool {
	key, err := model.ParsePath(path)
	return err != nil || key.Kind == model.KindSecret || key == model.MeshKey
}

// loadOnce reads the stored hashes. Errors are those of kv.Store.LoadHashes, or report that a batch was written
// meanwhile.
func (l *Loop) loadOnce(ctx context.Context, epoch kv.Epoch) (Loaded, error) {
	state, err := l.Store.LoadHashes(ctx, 0, readWhole)
	if err == nil && state.Head.Revision != 0 && !state.Head.Complete {
		state, err = l.Store.LoadHashes(ctx, state.Store, readWhole) // reads also the written part of an incomplete batch
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
			l.Log.Warn("stored record of unknown kind retained: upgrade to the build that wrote it",
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
		if key.Kind == model.KindSecret || key == model.MeshKey { // omitted if it does not decode
			switch r, _ := v.Record(); r := r.(type) {
			case *model.Secret:
				loaded.Secrets[key] = r
			case *model.Mesh:
				loaded.Mesh = r
			}
		}
	}
	l.Log.Info("leading: comparing all records with the store", obs.KeyEpoch, epoch.Revision, "records", len(loaded.Have))
	return loaded, nil
}

// write commits a batch, calls Committed if the batch was written, and returns the outcome. Records that are too large
// are in Written.Refused.
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
