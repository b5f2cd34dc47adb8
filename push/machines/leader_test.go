package machines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
)

// A replica's reports reach the leader through etcd. When the replica ends, the machine is disconnected.
func TestThroughEtcd(t *testing.T) {
	store := kvtest.Start(t).Connect()
	r := registry(mesh(t))
	c, err := r.Register(node("10.0.0.1"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	replica, end := context.WithCancel(t.Context())
	reporting := make(chan error, 1)
	go func() { reporting <- r.Run(replica, store, loop.NewBox(mirror.Merge)) }()
	w := &wanted{all: make(chan map[machines.Name]machines.Wanted, 100)}
	leader := &machines.Leader{Grace: time.Hour, Log: slog.New(slog.DiscardHandler)}
	term, endTerm := context.WithCancel(t.Context())
	leading := make(chan error, 1)
	go func() { leading <- leader.Run(term, store, w) }()
	until := func(what string, is func(machines.Wanted) bool) {
		t.Helper()
		limit := time.After(time.Minute)
		for {
			select {
			case all := <-w.all:
				if one, there := all[c.name]; there && is(one) {
					return
				}
			case <-limit:
				t.Fatal(what)
			}
		}
	}
	until("it is not connected", func(w machines.Wanted) bool { return w.Machine != nil && w.Disconnected.IsZero() })
	c.Health(false, "down")
	until("its health is not there", func(w machines.Wanted) bool { return w.Machine.Health != nil && w.Machine.Health.Message == "down" })
	end()
	if err := <-reporting; err != nil {
		t.Error(err)
	}
	until("its replica has ended, and it is connected", func(w machines.Wanted) bool { return !w.Disconnected.IsZero() })
	endTerm()
	if err := <-leading; err != nil && !errors.Is(err, term.Err()) {
		t.Error(err)
	}
}

// However many machines come at once, the leader decides about all of them a few times a second.
// Promise: security-workloads.md#who-has-a-machines-token
func TestDecisionsAreApart(t *testing.T) {
	store := kvtest.Start(t).Connect()
	r := registry(mesh(t))
	const many = 200
	for i := range many {
		if _, err := r.Register(node(fmt.Sprintf("10.7.%d.%d", i/200, i%200)), "", nil); err != nil {
			t.Fatal(err)
		}
	}
	replica, end := context.WithCancel(t.Context())
	defer end()
	go func() { _ = r.Run(replica, store, loop.NewBox(mirror.Merge)) }()
	w := &wanted{all: make(chan map[machines.Name]machines.Wanted, 2*many)}
	leader := &machines.Leader{Grace: time.Hour, Log: slog.New(slog.DiscardHandler)}
	began := time.Now()
	go func() { _ = leader.Run(replica, store, w) }()
	decisions, limit := 0, time.After(time.Minute)
	for known := 0; known < many; decisions++ {
		select {
		case all := <-w.all:
			known = len(all)
		case <-limit:
			t.Fatalf("%d of %d machines are known", known, many)
		}
	}
	if most := int(time.Since(began)/machines.StepsApart) + 2; decisions > most {
		t.Errorf("%d decisions in %v", decisions, time.Since(began))
	}
}

// wanted is the target state for a leader.
type wanted struct {
	all chan map[machines.Name]machines.Wanted
}

func (w *wanted) Want(all map[machines.Name]machines.Wanted)         { w.all <- all }
func (w *wanted) There() ([]machines.WorkloadEntry, <-chan struct{}) { return nil, nil }
