// Package promoted decides whether this process may write to Kubernetes. Several revisions of the control plane may
// share an etcd, and only the leader of the promoted revision may write.
//
// Owns: this process's candidacy in the election writer/. Reads: the promoted revision in store/kv, and the election of
// the ingesters (store/lead). Never: writes to Kubernetes.
package promoted

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

// Config configures a Writer. Store, Ingester, Name, Changed and Log are required.
type Config struct {
	Store    *kv.Store
	Ingester *lead.Elector // candidate of this process among the ingesters of its revision
	Name     string        // of this process
	Lease    time.Duration // as lead.Config.Lease
	Alone    bool          // as lead.Config.Alone
	// Changed is called when the result of Promoted changes, on the goroutine of Lead.
	Changed func()
	Log     *slog.Logger
}

// Writer decides whether this process may write to Kubernetes. A process may write while three conditions hold: it
// leads the ingesters of its revision, its revision is promoted, and it has won the election writer/ in etcd. All
// revisions share this election.
type Writer struct {
	Config
	elector *lead.Elector

	promoted atomic.Bool
	nobody   atomic.Bool // this process leads the ingesters of its revision, and no revision is promoted
}

// New makes a Writer without sending a request. The errors are those of lead.New.
func New(c Config) (*Writer, error) {
	elector, err := lead.New(lead.Config{Store: c.Store, Path: c.Store.WriterPath(), Name: c.Name, Lease: c.Lease,
		Logger: c.Log.With("election", "writer"), Alone: c.Alone})
	if err != nil {
		return nil, err
	}
	return &Writer{Config: c, elector: elector}, nil
}

// Promoted reports whether this process leads the ingesters of the promoted revision, as far as it knows. It is safe
// for concurrent use.
func (w *Writer) Promoted() bool { return w.promoted.Load() }

// Until returns the time until which this process may certainly write, for status.Config.Until. Errors:
// lead.ErrNotLeading if it may not write, and errors of etcd or ctx.
func (w *Writer) Until(ctx context.Context) (time.Time, error) {
	if !w.Promoted() {
		return time.Time{}, lead.ErrNotLeading
	}
	leads, err := w.Ingester.Until(ctx)
	if err != nil {
		return time.Time{}, err
	}
	writes, err := w.elector.Until(ctx)
	if err != nil || writes.Before(leads) {
		return writes, err
	}
	return leads, nil
}

// Lead runs during one term in which this process leads the ingesters of its revision. The process is a candidate in
// the election writer/ while its revision is promoted.
func (w *Writer) Lead(ctx context.Context, epoch kv.Epoch) {
	defer w.set(false)
	defer w.nobody.Store(false)
	for ctx.Err() == nil {
		if err := w.Store.PromoteFirst(ctx, epoch); err != nil {
			w.Log.Warn("nothing is written to Kubernetes: it is not known which revision is promoted; trying again", obs.KeyError, err)
			_ = loop.Pause(ctx, time.Second)
			continue
		}
		break
	}
	states, err := w.Store.Follow(ctx, "promoted/")
	if err != nil {
		w.Log.Error("nothing is written to Kubernetes: it is not known which revision is promoted", obs.KeyError, err)
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
		if mine := promoted == w.Store.RevisionName(); mine != w.Promoted() {
			stop()
			if stop = func() {}; mine {
				stop = w.stand(ctx)
			}
			w.set(mine)
		}
		if !w.Promoted() && promoted != said {
			w.Log.Info("the leader of another revision writes to Kubernetes, this one does not", "promoted", promoted, "own", w.Store.RevisionName())
		}
		said = promoted
	}
}

// Problems returns one warning while this process leads its revision and no revision is promoted. At other times it
// returns nil.
func (w *Writer) Problems() []object.Problem {
	if !w.nobody.Load() {
		return nil
	}
	name := w.Store.RevisionName()
	return []object.Problem{{ID: object.ID{Kind: "Revision", Name: name}, Location: "etcd", Code: problem.Pending, Severity: problem.Warning,
		Message: "this revision does not write to Kubernetes, because no revision is promoted. The default revision has records, and its build" +
			" may write without a promotion. " +
			"When all processes of the default revision have ended: navarchctl store promote " + name}}
}

func (w *Writer) set(promoted bool) {
	if w.promoted.Swap(promoted) != promoted {
		gauge := 0.0
		if promoted {
			gauge = 1
		}
		obs.Promoted.Set(gauge)
		w.Changed()
	}
}

// stand makes this process a candidate in the election writer/ until the caller calls stop or ctx ends. stop blocks
// until the candidacy has ended.
func (w *Writer) stand(ctx context.Context) (stop func()) {
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
