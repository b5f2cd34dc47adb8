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

// Config is what a replica's Loop is made of.
type Config struct {
	Name string // of the replica, in the fleet
	// Notified is the revision up to which every stream knows whether it is to be sent something.
	Notified func() int64
	// Unsettled takes the streams that have not acknowledged what they are to have by now; left says how many still have not.
	Unsettled func() (left func() int)
	Refused   func() []Refusal // because of what proxies refuse something now
	Every     time.Duration    // how often it looks while the leader waits; 0: 250 ms. Refusals are looked at every fourth time
	Log       *slog.Logger     // nil: slog's default
}

// Loop answers for one replica. While etcd is away what was answered stands for as long as its lease.
type Loop struct {
	cfg   Config
	path  string // of this process's answer
	blobs *kv.Leased
	wrote []byte // of it; nil: nothing

	asked   question
	reached question
	target  int64      // that left is of
	left    func() int // nil: nobody is waited for
	refused []entry
	looks   int // since the leader began to ask
}

// New makes the loop of a replica.
func New(cfg Config) *Loop {
	if cfg.Every == 0 {
		cfg.Every = 250 * time.Millisecond
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Loop{cfg: cfg, path: folder + cfg.Name + "-" + rand.Text()[:8]}
}

// Run answers until the context ends; then the answer is taken away. An error is a store that is closed.
func (l *Loop) Run(ctx context.Context, store *kv.Store) error {
	questions, err := store.Follow(ctx, awaited)
	if err != nil {
		return err
	}
	l.blobs = store.Leased(lease)
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	defer l.end()
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
			l.ask(q)
		case <-l.blobs.Lost():
			l.blobs.Drop()
			l.wrote = nil
		case <-tick.C:
			if l.asked.Epoch == 0 {
				continue // no leader asks: nothing is to be said
			}
			if l.step(); l.looks%4 == 0 {
				l.refused = entries(l.cfg.Refused())
			}
			l.looks++
			if err := l.say(ctx); err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn("this replica's answer about acknowledged revisions cannot be written for the leader; trying again", obs.KeyError, err)
			}
		}
	}
}

// ask takes the leader's question. Another leader is answered from scratch; where no leader asks any more, the answer ends.
func (l *Loop) ask(q question) {
	if q.Epoch == 0 {
		l.end()
	}
	if q.Epoch != l.asked.Epoch {
		l.reached, l.left = question{Epoch: q.Epoch}, nil
	}
	l.asked = q
}

// step looks whether the streams are there.
func (l *Loop) step() {
	if l.left == nil && l.reached.Revision < l.asked.Revision {
		if notified := l.cfg.Notified(); notified >= l.asked.Revision {
			l.target, l.left = notified, l.cfg.Unsettled()
		}
	}
	if l.left != nil && l.left() == 0 {
		l.reached.Revision, l.left = l.target, nil
	}
}

// say writes the answer, where it is another one.
func (l *Loop) say(ctx context.Context) error {
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

// end takes the answer away.
func (l *Loop) end() {
	l.blobs.End()
	l.wrote, l.refused, l.looks = nil, nil, 0
}
