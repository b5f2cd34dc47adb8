package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// verdictsFolder is where replicas tell each other what proxies refused: one leased list each.
const verdictsFolder = "verdicts/"

// Pace of the lists: refusals of one moment are one write.
const (
	gatherWitnesses = 50 * time.Millisecond
	tellEvery       = time.Second
	tellRetry       = 5 * time.Second
)

// verdicts are serve.Verdicts over all replicas: a version is withheld from a view once distinct identities enough refused
// it, wherever they are connected. Without etcd they are this process's.
type verdicts struct {
	memory *serve.MemoryVerdicts
	path   string // of this process's list
	now    func() time.Time

	mu   sync.Mutex // a leaf
	mine testimony
	news chan struct{} // capacity 1: mine differs from what was told
}

func newVerdicts(name string, now func() time.Time) *verdicts {
	// What a process of the same name told before it was killed stands until its lease ends.
	return &verdicts{memory: serve.NewVerdicts(0, verdictTime, now), path: verdictsFolder + name + "-" + rand.Text()[:8], now: now, news: make(chan struct{}, 1)}
}

// Refused implements serve.Verdicts.
func (v *verdicts) Refused(view string, r *xds.Resource) bool { return v.memory.Refused(view, r) }

// Refuse implements serve.Verdicts. It never blocks.
func (v *verdicts) Refuse(r serve.Refusal) {
	if r.At.IsZero() {
		r.At = v.now()
	}
	w := witnessOf(r)
	v.memory.Refuse(w.refusal())
	v.mu.Lock()
	told := v.mine.add(w)
	v.mu.Unlock()
	if told {
		v.mark()
	}
}

func (v *verdicts) mark() {
	select {
	case v.news <- struct{}{}:
	default:
	}
}

// run shares refusals with the other replicas until the context ends. The list outlives an orderly stop for as long as its
// lease: what it says is still true.
func (v *verdicts) run(ctx context.Context, store *kv.Store, log *slog.Logger) error {
	folders, err := store.Follow(ctx, verdictsFolder)
	if err != nil {
		return err
	}
	heard := hearing{}
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	var lease *kv.Lease
	var lost <-chan struct{}
	var due <-chan time.Time // of the next write; nil: nothing is to be told
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case folder, ok := <-folders:
			if !ok {
				return nil // ctx ends
			}
			news, problems := heard.hear(folder, v.path)
			for _, w := range news {
				v.memory.Refuse(w.refusal())
			}
			for _, problem := range problems {
				log.Warn("a replica's refusals cannot be read", "problem", problem)
			}
		case <-v.news:
			if due == nil {
				due = time.After(max(gatherWitnesses, tellEvery-time.Since(last)))
			}
		case <-tick.C:
			v.mu.Lock()
			changed := v.mine.prune(v.now())
			v.mu.Unlock()
			if changed {
				v.mark()
			}
		case <-lost:
			lease, lost = nil, nil
			v.mark()
		case <-due:
			due, last = nil, time.Now()
			if lease, err = v.tell(ctx, store, lease); err != nil && ctx.Err() == nil {
				log.Warn("cannot share what proxies refused; trying again", obs.KeyError, err)
				due = time.After(tellRetry)
			}
			if lost = nil; lease != nil {
				lost = lease.Lost()
			}
		}
	}
}

// tell writes the list under a lease, and returns that; an empty list is taken away with its lease.
func (v *verdicts) tell(ctx context.Context, store *kv.Store, lease *kv.Lease) (*kv.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v.mu.Lock()
	count := len(v.mine.all)
	raw, err := v.mine.encode()
	v.mu.Unlock()
	switch {
	case err != nil:
		return lease, fmt.Errorf("encode refusals: %w", err)
	case count == 0 && lease == nil:
		return nil, nil
	case count == 0:
		return nil, lease.Release(ctx)
	}
	if lease == nil {
		if lease, err = store.Lease(ctx, verdictTime); err != nil {
			return nil, err
		}
	}
	_, err = lease.Put(ctx, v.path, raw)
	return lease, err
}
