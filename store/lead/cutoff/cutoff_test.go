package cutoff

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/lead"
)

// A leader counts as cut off if a candidate has seen it lead for five minutes, and it has not reported reading the
// cluster for that long. If the next leaders do no better, the time doubles each time, up to two hours, until one does.
func TestLeaderIsSilent(t *testing.T) {
	c, now, read := New(Config{}), time.Unix(1e6, 0), time.Unix(9e5, 0)
	first, second := kv.Epoch{Key: "a", Revision: 1}, kv.Epoch{Key: "b", Revision: 2}
	is := func(what string, after time.Duration, epoch kv.Epoch, until time.Time, want bool) {
		t.Helper()
		now = now.Add(after)
		if got := c.silent(now, epoch, until); got != want {
			t.Errorf("%s: silent: %v", what, got)
		}
	}
	is("at first", time.Hour, first, read, false)
	is("not yet", silence-time.Second, first, read, false)
	is("for five minutes", time.Second, first, read, true)
	read = read.Add(time.Minute)
	is("it reads again", time.Second, first, read, false)
	is("another leads", silence-time.Second, second, read, false)
	is("and has just begun", silence-time.Second, second, read, false)
	is("and reads nothing either", time.Second, second, read, true)
	is("nobody leads, or this process does", time.Hour, kv.Epoch{}, read, false)
	is("nobody has ever read the cluster", 0, first, time.Time{}, false)
	is("for however long", 24*time.Hour, first, time.Time{}, false)
	is("it was read", 0, first, read, false)
	for ended, after := range []time.Duration{silence, 2 * silence, 4 * silence} {
		c.ended = ended
		is("another one that does not", 0, kv.Epoch{Key: "c", Revision: int64(ended + 3)}, read, false)
		is("not yet", after-time.Second, c.epoch, read, false)
		is("by then", time.Second, c.epoch, read, true)
	}
	c.ended = 1000
	is("no longer than two hours", mostSilence, c.epoch, read, true)
	is("a leader reads it", time.Hour, c.epoch, read.Add(time.Minute), false)
	is("five minutes count again", silence, c.epoch, read.Add(time.Minute), true)
}

// A candidate takes over from a leader that is cut off after a number of consecutive successful requests to the API
// server, and not while requests fail.
func TestCandidateTakesOver(t *testing.T) {
	etcd := kvtest.Start(t)
	stand := func(name string) (*lead.Elector, <-chan kv.Epoch) {
		elector, err := lead.New(lead.Config{Store: etcd.Connect(), Name: name, Lease: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		led := make(chan kv.Epoch, 9)
		go func() {
			_ = elector.Run(t.Context(), func(ctx context.Context, epoch kv.Epoch) error {
				led <- epoch
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		return elector, led
	}
	_, first := stand("first")
	epoch := <-first
	second, led := stand("second")
	for folder, candidates := etcd.Connect(), int64(0); candidates < 2; {
		all, err := folder.Client().Get(t.Context(), folder.LeaderPath()+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		candidates = all.Count
	}
	away := errors.New("away")
	var answer error
	counted := 0
	c := &Check{Config: Config{Elector: second, Log: slog.New(slog.DiscardHandler), Until: func() time.Time { return time.Unix(1, 0) },
		Reaches: func(context.Context) error {
			counted++
			return answer
		}}}
	look := func(times int, answers error) {
		answer = answers
		for range times {
			c.check(t.Context())
		}
	}
	look(2*looks, away)
	look(looks-1, nil)
	look(1, away)
	look(looks-1, nil)
	if _, now, err := second.Leader(t.Context()); err != nil || now != epoch || counted != 4*looks-1 {
		t.Fatalf("after %d counted %v leads, %v; want %v", counted, now, err, epoch)
	}
	look(1, nil)
	if next := <-led; next.Revision <= epoch.Revision {
		t.Errorf("epoch %v after %v", next, epoch)
	}
	look(3*looks, nil)
	if counted != 4*looks {
		t.Error("a leader counted at itself")
	}
}
