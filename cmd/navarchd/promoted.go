package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// kubernetesWriter decides whether this process may write to Kubernetes. Only the leader of one control-plane revision,
// the promoted revision, may write. A process may write while three conditions hold: it leads the ingesters of its
// revision, its revision is promoted, and it has won the election writer/ in etcd. All revisions share this election.
type kubernetesWriter struct {
	store    *kv.Store
	ingester *lead.Elector // of this revision
	elector  *lead.Elector
	changed  func() // called when the result of Promoted changes
	log      *slog.Logger

	promoted atomic.Bool
	nobody   atomic.Bool // this process leads the ingesters of its revision, and no revision is promoted
}

// newKubernetesWriter makes a kubernetesWriter without sending a request. The function changed is called when the
// result of Promoted changes. Any goroutine may call it.
func newKubernetesWriter(c *config, store *kv.Store, ingester *lead.Elector, changed func(), log *slog.Logger) (*kubernetesWriter, error) {
	elector, err := lead.New(lead.Config{Store: store, Path: store.WriterPath(),
		Name: c.processName(), Lease: c.lease, Logger: log.With("election", "writer"), Alone: c.dataDir != ""})
	if err != nil {
		return nil, err
	}
	return &kubernetesWriter{store: store, ingester: ingester, elector: elector, changed: changed, log: log}, nil
}

// Promoted reports whether this process leads the ingesters of the promoted revision, as far as it knows. It is safe
// for concurrent use.
func (w *kubernetesWriter) Promoted() bool { return w.promoted.Load() }

// Until returns the time until which this process may certainly write, for status.Config.Until. Errors:
// lead.ErrNotLeading if it may not write, and errors of etcd or ctx.
func (w *kubernetesWriter) Until(ctx context.Context) (time.Time, error) {
	if !w.Promoted() {
		return time.Time{}, lead.ErrNotLeading
	}
	leads, err := w.ingester.Until(ctx)
	if err != nil {
		return time.Time{}, err
	}
	writes, err := w.elector.Until(ctx)
	if err != nil || writes.Before(leads) {
		return writes, err
	}
	return leads, nil
}

// lead runs during one term in which this process leads the ingesters of its revision. The process is a candidate in
// the election writer/ while its revision is promoted.
func (w *kubernetesWriter) lead(ctx context.Context, epoch kv.Epoch) {
	defer w.set(false)
	defer w.nobody.Store(false)
	for ctx.Err() == nil {
		if err := w.store.PromoteFirst(ctx, epoch); err != nil {
			w.log.Warn("nothing is written to Kubernetes: it is not known which revision is promoted; trying again", obs.KeyError, err)
			_ = loop.Pause(ctx, time.Second)
			continue
		}
		break
	}
	states, err := w.store.Follow(ctx, "promoted/")
	if err != nil {
		w.log.Error("nothing is written to Kubernetes: it is not known which revision is promoted", obs.KeyError, err)
		return
	}
	stop := func() {}
	defer func() { stop() }()
	said := ""
	for state := range states {
		promoted := ""
		if len(state.Blobs) > 0 {
			promoted = string(state.Blobs[0].Raw)
		}
		w.nobody.Store(promoted == "")
		if mine := promoted == w.store.RevisionName(); mine != w.Promoted() {
			stop()
			if stop = func() {}; mine {
				stop = w.stand(ctx)
			}
			w.set(mine)
		}
		if !w.Promoted() && promoted != said {
			w.log.Info("the leader of another revision writes to Kubernetes, this one does not", "promoted", promoted, "own", w.store.RevisionName())
		}
		said = promoted
	}
}

// problems returns one warning while this process leads its revision and no revision is promoted. At other times it
// returns nil.
func (w *kubernetesWriter) problems() []object.Problem {
	if !w.nobody.Load() {
		return nil
	}
	name := w.store.RevisionName()
	return []object.Problem{{ID: object.ID{Kind: "Revision", Name: name}, Location: "etcd", Code: problem.Pending, Severity: problem.Warning,
		Message: "this revision does not write to Kubernetes, because no revision is promoted. The default revision has records, and its build" +
			" may write without a promotion. " +
			"When all processes of the default revision have ended: navarchctl store promote " + name}}
}

func (w *kubernetesWriter) set(promoted bool) {
	if w.promoted.Swap(promoted) != promoted {
		obs.Promoted.Set(flag(promoted))
		w.changed()
	}
}

// stand makes this process a candidate in the election writer/ until the caller calls stop or ctx ends. stop blocks
// until the candidacy has ended.
func (w *kubernetesWriter) stand(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = w.elector.Run(ctx, func(ctx context.Context, _ kv.Epoch) error { // its error is the context's
			<-ctx.Done()
			return nil
		})
	}()
	return func() { cancel(); <-over }
}
