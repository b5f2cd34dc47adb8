package acknowledged

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// Config holds the settings of a replica's Loop. Name and the functions are required. Run's goroutine calls the
// functions.
type Config struct {
	Name string // name of the replica in the fleet
	// Notified returns a revision of the store. The plan has notified every stream of all changes up to this revision.
	Notified func() int64
	// Unsettled records the unsettled streams, which have not acknowledged their current configuration. The returned
	// function left returns the number of recorded streams that are still unsettled. A stream also counts as settled if
	// it has ended, or if its client has refused a part of the configuration.
	Unsettled func() (left func() int)
	// Refused returns the objects because of which proxies refuse configuration now. An answer contains at most 200 of
	// these objects.
	Refused func() []Refusal
	// Every is the interval of the checks while the leader has a question; 0: 250 ms. Refused is called at the first of
	// every four checks.
	Every time.Duration
	Log   *slog.Logger // nil: slog's default
}

// Loop writes the answers of one replica to the leader's questions. A question states a revision. The answer states the
// revision that all proxies of the replica have acknowledged, and the refused objects. Make a Loop with New. If this
// process ends without deleting the answer, the answer stays for a minute, until its lease expires.
type Loop struct {
	cfg   Config
	path  string // path of this process's answer
	blobs *kv.Leased
	wrote []byte // the answer in etcd; nil: no answer

	asked   question   // the leader's question
	reached question   // epoch of the question, and the newest acknowledged revision
	target  int64      // the revision that is acknowledged when left returns 0
	left    func() int // result of Unsettled; nil: no streams are recorded
	refused []refusalJSON
	ticks   int // number of checks since the question
}

// New returns the Loop of a replica. It sends no request. Each Loop has a path of its own in etcd, even with equal
// names.
func New(cfg Config) *Loop {
	if cfg.Every == 0 {
		cfg.Every = 250 * time.Millisecond
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Loop{cfg: cfg, path: folder + cfg.Name + "-" + rand.Text()[:8]}
}

// Run answers the leader's questions in store until ctx ends, and then deletes the answer and returns nil. Failed
// writes are logged and repeated. An error means that store cannot follow the folder of questions, which is a fault of
// this build. Calls must not overlap.
func (l *Loop) Run(ctx context.Context, store *kv.Store) error {
	questions, err := store.Follow(ctx, awaited)
	if err != nil {
		return err
	}
	l.blobs = store.Leased(lease)
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	defer l.deleteAnswer()
	for {
		select {
		case f, open := <-questions:
			if !open {
				return nil
			}
			q, err := questionIn(f)
			if err != nil {
				l.cfg.Log.Warn("the leader's question about acknowledged revisions cannot be read", obs.KeyError, err)
				continue
			}
			l.setQuestion(q)
		case <-l.blobs.Lost():
			l.blobs.Drop()
			l.wrote = nil
		case <-tick.C:
			if l.asked.Epoch == 0 {
				continue // there is no question
			}
			if l.checkStreams(); l.ticks%4 == 0 {
				l.refused = entries(l.cfg.Refused())
			}
			l.ticks++
			if err := l.writeAnswer(ctx); err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn("this replica's answer about acknowledged revisions cannot be written for the leader; trying again",
					obs.KeyError, err)
			}
		}
	}
}

// setQuestion stores the leader's question. A question of another epoch resets the acknowledged revision. The zero
// question deletes the answer.
func (l *Loop) setQuestion(q question) {
	if q.Epoch == 0 {
		l.deleteAnswer()
	}
	if q.Epoch != l.asked.Epoch {
		l.reached, l.left = question{Epoch: q.Epoch}, nil
	}
	l.asked = q
}

// checkStreams updates the acknowledged revision. Once the plan has notified all streams of the asked revision,
// checkStreams records the unsettled streams and the notified revision. When the recorded streams have settled, the
// recorded revision is acknowledged.
func (l *Loop) checkStreams() {
	if l.left == nil && l.reached.Revision < l.asked.Revision {
		if notified := l.cfg.Notified(); notified >= l.asked.Revision {
			l.target, l.left = notified, l.cfg.Unsettled()
		}
	}
	if l.left != nil && l.left() == 0 {
		l.reached.Revision, l.left = l.target, nil
	}
}

// writeAnswer writes the answer if it has changed.
func (l *Loop) writeAnswer(ctx context.Context) error {
	raw, err := json.Marshal(answer{l.reached, l.cfg.Name, l.refused})
	if err != nil || bytes.Equal(raw, l.wrote) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err = l.blobs.Put(ctx, l.path, raw); err == nil {
		l.wrote = raw
	}
	return err
}

// deleteAnswer deletes the answer with its lease.
func (l *Loop) deleteAnswer() {
	l.blobs.End()
	l.wrote, l.refused, l.ticks = nil, nil, 0
}
