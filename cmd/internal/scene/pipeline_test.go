package scene

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/analysis"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
)

// pipeline is the path from the folder to the plan. Between the ingester and the mirror, a map of encoded records
// replaces etcd. Owned by the scene's goroutine, except the plan loop.
type pipeline struct {
	scoped bool // PILOT_SCOPE_GATEWAY_TO_NAMESPACE
	folder string
	source *files.Source
	ingest *ingest.State
	stored map[model.Key][]byte
	hashes map[model.Key]model.Hash
	head   int64
	mirror *replica
	pool   *pool.Pool
	plan   *plan.Loop
	cancel context.CancelFunc
	ended  chan error
	wrote  int // records put and deleted
	safe   *safe
	vault  *current
	// resealing are the effects that wait until the key encryption key is back.
	resealing []ingest.Effect
}

// configCluster is the name of the config cluster.
const configCluster = "Kubernetes"

// replica publishes snapshots as mirror.Mirror does.
type replica struct {
	now atomic.Pointer[mirror.Snapshot]
	box *loop.Box[mirror.Change]
}

func newReplica() *replica {
	r := &replica{box: loop.NewBox(mirror.Merge)}
	r.now.Store(mirror.Empty())
	return r
}

func (r *replica) Current() *mirror.Snapshot { return r.now.Load() }

func (r *replica) Subscribe() (*loop.Box[mirror.Change], func()) { return r.box, func() {} }

func newPipeline(folder string, allowEmpty bool) (*pipeline, error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	source, err := files.New(files.Config{Dir: folder, Cluster: configCluster})
	if err != nil {
		return nil, err
	}
	w := &pipeline{folder: folder, source: source, stored: map[model.Key][]byte{}, hashes: map[model.Key]model.Hash{}, pool: &pool.Pool{},
		mirror: newReplica(), ended: make(chan error, 1)}
	if w.safe, w.vault, err = newSafe(folder + ".kek"); err != nil {
		return nil, err
	}
	if w.plan, err = plan.NewLoop(plan.Config{Source: w.mirror, Pool: w.pool, Cluster: configCluster, Opener: w.vault, Authoriser: access.Snapshots{Current: w.mirror.Current}, Linger: -1, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() { w.ended <- w.plan.Run(ctx) }()
	w.lead(false, false)
	if err := w.look(); err != nil {
		return nil, err
	}
	if w.head == 0 { // an empty mesh is one, too
		w.commit(kv.Batch{})
	}
	return w, nil
}

func (w *pipeline) stop() error {
	w.cancel()
	if err := <-w.ended; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("plan loop: %w", err)
	}
	return nil
}

// lead makes a new process the leader, which knows only the stored state. isolates enables the isolation of tenants.
// scoped is PILOT_SCOPE_GATEWAY_TO_NAMESPACE.
func (w *pipeline) lead(isolates, scoped bool) {
	w.scoped = scoped
	w.ingest = ingest.NewState(ingest.Options{Normal: normal.Options{Domain: "cluster.local", Cluster: configCluster, Automatic: []netip.Prefix{netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")}, ResolveGateways: true, Isolation: normal.Isolation{On: isolates}, OwnGateways: scoped}})
	w.do(w.ingest.Step(ingest.Gained{}))
}

// relook emits all objects to the ingester again, as a process does after its start.
func (w *pipeline) relook() error {
	source, err := files.New(files.Config{Dir: w.folder, Cluster: configCluster})
	if err != nil {
		return err
	}
	w.source = source
	return w.look()
}

// look reads the present content of the folder.
func (w *pipeline) look() error {
	events, err := w.source.ReadChanges()
	if err != nil {
		return err
	}
	w.do(w.ingest.Step(ingest.Objects(events)))
	return nil
}

// do carries out what the ingester wants done.
func (w *pipeline) do(effects []ingest.Effect) {
	for len(effects) > 0 {
		effect := effects[0]
		effects = effects[1:]
		switch e := effect.(type) {
		case ingest.Load:
			have, secrets := map[model.Key]model.Hash{}, map[model.Key]*model.Secret{}
			for k, h := range w.hashes {
				have[k] = h
				if r, ok := w.mirror.Current().Get(k); ok && k.Kind == model.KindSecret {
					secrets[k] = r.(*model.Secret)
				}
			}
			effects = append(effects, w.ingest.Step(ingest.Loaded{Epoch: e.Epoch, Have: have, Secrets: secrets, After: w.head, Complete: true})...)
		case ingest.Write:
			effects = append(effects, w.ingest.Step(ingest.Written{Epoch: e.Batch.Epoch, Outcome: ingest.Done, After: w.commit(e.Batch)})...)
		case ingest.Seal:
			if e.Again {
				w.resealing = []ingest.Effect{ingest.Seal{Epoch: e.Epoch, Secrets: e.Secrets}}
				continue
			}
			effects = append(effects, w.ingest.Step(w.seal(e))...)
		case ingest.Wait:
			effects = append(effects, w.ingest.Step(ingest.Due{})...)
		}
	}
}

// commit stores a batch and publishes what a replica reads of it.
func (w *pipeline) commit(b kv.Batch) int64 {
	w.head++
	w.wrote += b.Len()
	var puts []model.Record
	for _, r := range b.Puts {
		key := r.Meta().Key
		value, err := model.Encode(r)
		if err != nil {
			panic(err) // a record that the normaliser should not have made
		}
		w.stored[key], w.hashes[key] = value, r.Meta().Hash
		read, err := model.Decode(key, value)
		if err != nil {
			panic(err)
		}
		puts = append(puts, read)
	}
	for _, key := range b.Deletes {
		delete(w.stored, key)
		delete(w.hashes, key)
	}
	change := w.mirror.Current().Apply(w.head, puts, b.Deletes)
	w.mirror.now.Store(change.New)
	w.mirror.box.Put(change)
	return w.head
}

// put writes files into the folder, by name, as one change; nil content deletes a file.
func (w *pipeline) put(contents map[string][]byte) error {
	for name, data := range contents {
		path := filepath.Join(w.folder, name)
		if data == nil {
			if err := os.Remove(path); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(w.folder+".new", data, 0o666); err != nil {
			return err
		}
		if err := os.Rename(w.folder+".new", path); err != nil {
			return err
		}
	}
	return w.look()
}

// planned reports whether the plan loop has processed all changes.
func (w *pipeline) planned() bool {
	synctest.Wait()
	return w.plan.Revision() == w.head
}

// patience is the time limit of a wait; the longest debounce is shorter.
const patience = 30 * time.Second

// problemLines returns the problems in the form for users.
func (w *pipeline) problemLines() []string {
	var out []string
	for _, p := range append(w.source.Problems(), w.ingest.Problems()...) {
		line := strings.TrimSpace(p.Location + " " + p.String())
		if p.Code == "" || p.Severity == "" {
			line += " (without a code or a severity)"
		}
		if p.Severity == problem.Warning {
			line += " (applies)"
		}
		out = append(out, line)
	}
	records := func(yield func(model.Record) bool) {
		for _, kind := range model.Kinds() {
			for r := range w.mirror.Current().All(kind) {
				if !yield(r) {
					return
				}
			}
		}
	}
	for _, p := range analysis.Of(analysis.Settings{OwnGateways: w.scoped}, records).Problems() {
		out = append(out, p.String()+" (applies)")
	}
	for _, p := range w.plan.Problems() {
		out = append(out, fmt.Sprintf("%s: %s: %s", p.Key, p.Field, p.Full()))
	}
	return out
}

// counts is the work done so far.
type counts struct {
	built     [xds.NumTypes]int64
	fragments int64
}

func (w *pipeline) counts() counts {
	c := counts{fragments: w.pool.Fragments()}
	for t := range xds.NumTypes {
		c.built[t] = w.pool.Builds(t)
	}
	return c
}
