package asof

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// A time is written once all events up to it were written, and if it is much newer than the written one.
func TestDue(t *testing.T) {
	at := func(seconds int, everywhere bool) map[string]Read {
		return map[string]Read{"": {Until: time.Unix(int64(1000+seconds), 0), Everywhere: everywhere}}
	}
	for name, tt := range map[string]struct {
		written, before map[string]Read
		settled, due    bool
	}{
		"the first":             {nil, at(0, true), true, true},
		"nothing was read":      {nil, nil, true, false},
		"something waits":       {nil, at(0, true), false, false},
		"hardly newer":          {at(0, true), at(29, true), true, false},
		"newer":                 {at(0, true), at(30, true), true, true},
		"namespaces now":        {at(0, true), map[string]Read{"": {Until: time.Unix(1001, 0), Everywhere: true, Namespaces: true}}, true, true},
		"not everywhere now":    {at(0, true), at(1, false), true, true},
		"nothing is known more": {at(0, true), nil, true, false},
	} {
		if got, due := due(tt.written, tt.before, tt.settled); due != tt.due || due && got[""] != tt.before[""] {
			t.Errorf("%s: %v, %v", name, got, due)
		}
	}
}

// All processes learn the times that a leader writes. A process that no longer leads writes nothing.
func TestLeadAndFollow(t *testing.T) {
	etcd := kvtest.Start(t)
	store := etcd.Connect()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	times := New()
	go func() { _ = times.Follow(ctx, store, slog.New(slog.DiscardHandler)) }()
	epoch := etcd.Elect("a")
	want := Read{Until: time.Unix(5000, 0).UTC(), Everywhere: true}
	go lead(ctx, store, epoch, func() map[string]Read { return map[string]Read{"": want} }, func() bool { return true }, 10*time.Millisecond, slog.New(slog.DiscardHandler))
	for times.Of("") != want {
		if ctx.Err() != nil {
			t.Fatalf("%+v", times.Of(""))
		}
		time.Sleep(10 * time.Millisecond)
	}
	if times.Of("west") != (Read{}) {
		t.Error("another cluster has been read")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lead(ctx, store, kv.Epoch{Key: epoch.Key, Revision: epoch.Revision + 1}, func() map[string]Read { return map[string]Read{"west": want} }, func() bool { return true }, 10*time.Millisecond, slog.New(slog.DiscardHandler))
	}()
	<-ended
	if ctx.Err() != nil || times.Of("west") != (Read{}) {
		t.Error("a process that does not lead goes on")
	}
}
