package clock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

var quiet = slog.New(slog.DiscardHandler)

// Promise: security-ca.md#clocks
func TestMiddle(t *testing.T) {
	const h = time.Hour
	for name, c := range map[string]struct {
		ahead     []time.Duration
		low, high time.Duration
	}{
		"alone":                     {nil, 0, 0},
		"one of three is wrong":     {[]time.Duration{0, 25 * h}, 0, 0},
		"this one of three is":      {[]time.Duration{-25 * h, -25 * h}, -25 * h, -25 * h},
		"two differ":                {[]time.Duration{h}, 0, h},
		"the middle one of three":   {[]time.Duration{-h, h}, 0, 0},
		"the fastest of three":      {[]time.Duration{-h, -2 * h}, -h, -h},
		"two and two":               {[]time.Duration{0, h, h}, 0, h},
		"one of four is wrong":      {[]time.Duration{time.Second, 2 * time.Second, h}, time.Second, 2 * time.Second},
		"this one of four is wrong": {[]time.Duration{-h, -h, -h}, -h, -h},
	} {
		if low, high := middle(c.ahead); low != c.low || high != c.high {
			t.Errorf("%s: %v to %v, want %v to %v", name, low, high, c.low, c.high)
		}
	}
}

// A clock that is two minutes off, in either direction, is trusted; one that is further off is not.
// Promise: security-ca.md#clocks
func TestTolerance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for off, want := range map[time.Duration]bool{0: true, 2 * time.Minute: true, -2 * time.Minute: true, 2*time.Minute + time.Second: false, -2*time.Minute - time.Second: false} {
			c := New(Config{Name: "a", Wall: func() time.Time { return time.Now().Add(off) }, Log: quiet})
			c.read(kv.Folder{})
			c.Heard(Word{"b", time.Now()}, 0)
			c.Heard(Word{"c", time.Now()}, 0)
			if err := c.Off(); (err == nil) != want {
				t.Errorf("%v off: %v", off, err)
			}
		}
	})
}

// Promise: security-ca.md#clocks
func TestSure(t *testing.T) {
	now, day := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), 24*time.Hour
	before := reading{revision: 1, said: now.Add(-day), at: time.Minute}
	for name, c := range map[string]struct {
		passed   reading
		ran      time.Duration
		believed bool
		want     time.Time
	}{
		"others agree":         {before, time.Minute, true, now},
		"alone":                {before, time.Minute, false, now.Add(-day)},
		"alone for an hour":    {before, time.Hour + time.Minute, false, now.Add(-day + time.Hour)},
		"nothing was recorded": {reading{}, time.Minute, false, now},
		"recorded too late":    {reading{1, now.Add(day), 0}, time.Minute, false, now},
	} {
		if got := sure(now, c.passed, c.ran, c.believed); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A process that is alone and has a fast clock uses the recorded time plus its own running time, until it has run for a
// whole period. If another clock agrees with its own, it is sure at once.
// Promise: security-ca.md#clocks
func TestSureOfOneThatIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period, ahead = 24 * time.Hour, 90 * time.Minute
		recordedAt := time.Now()
		c := New(Config{Name: "a", Period: period, Wall: func() time.Time { return time.Now().Add(ahead) }, Log: quiet})
		before := kv.Blob{Path: recorded, Raw: encode(recordedAt), Revision: 7}
		c.read(kv.Folder{Blobs: []kv.Blob{before}})
		sure := func(when string, want time.Time) {
			t.Helper()
			if got, err := c.Sure(); err != nil || got.Sub(want).Abs() > time.Millisecond {
				t.Errorf("%s: %v, %v, want %v", when, got, err, want)
			}
		}
		sure("at its start", recordedAt)
		time.Sleep(period - time.Hour)
		sure("before the period is over", recordedAt.Add(period-time.Hour))
		c.read(kv.Folder{Blobs: []kv.Blob{before, {Path: own + "b", Raw: encode(time.Now().Add(ahead)), Revision: 8}}})
		sure("another agrees", time.Now().Add(ahead))
		c.read(kv.Folder{Blobs: []kv.Blob{before}})
		sure("it has gone", recordedAt.Add(period-time.Hour))
		time.Sleep(time.Hour)
		sure("after the period", time.Now().Add(ahead))
	})
}

// Readings of other clocks advance with this process. A clock that is set while it runs is noticed without new
// readings.
func TestClockThatIsSet(t *testing.T) {
	now := time.Now().Round(0)
	wall := now
	c := New(Config{Name: "a", Wall: func() time.Time { return wall }, Log: quiet})
	if err := c.Off(); !errors.Is(err, ErrNotCompared) {
		t.Errorf("at first: %v", err)
	}
	if _, err := c.Sure(); !errors.Is(err, ErrNotCompared) {
		t.Errorf("at first: %v", err)
	}
	blob := func(path string, at time.Time) kv.Blob {
		return kv.Blob{Path: folder + path, Raw: encode(at), Revision: 7}
	}
	c.read(kv.Folder{Blobs: []kv.Blob{blob("processes/a", now.Add(-time.Hour)), blob("processes/b", now), {Path: own + "c", Raw: []byte("noon"), Revision: 7}, blob("recorded", now)}})
	if err := c.Off(); err != nil || len(c.others) != 1 {
		t.Errorf("%v, others %v", err, c.others)
	}
	wall = now.Add(3 * time.Minute)
	if c.Off() == nil {
		t.Error("set forward by three minutes: believed")
	}
	said := c.Off().Error()
	wall = wall.Add(time.Second)
	if got := c.Off().Error(); got != said { // a caller that logs changes logs it once
		t.Errorf("a second later: %s, not %s", got, said)
	}
	wall = now.Add(time.Hour)
	if got := c.Off().Error(); got == said {
		t.Errorf("an hour off: %s", got)
	}
	wall = now.Add(3 * time.Minute)
	c.start = c.start.Add(-3 * time.Minute) // three minutes later that is the time
	if err := c.Off(); err != nil {
		t.Error(err)
	}
	wall = now
	if c.Off() == nil {
		t.Error("set back by three minutes: believed")
	}
	c.read(kv.Folder{Blobs: []kv.Blob{blob("recorded", now)}})
	if got, err := c.Sure(); err != nil || !got.Equal(now) {
		t.Errorf("alone: %v, %v, want %v", got, err, now)
	}
}

// A peer's response counts from the middle of its round trip, and precedes the peer's time in etcd while it is fresh;
// then it expires. Responses of the process itself, and of peers without a name, do not count.
// Promise: security-ca.md#clocks
func TestPeersAreHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		c := New(Config{Name: "a", Wall: func() time.Time { return time.Now().Add(ahead) }, Log: quiet})
		c.read(kv.Folder{})
		c.Heard(Word{"a", time.Now().Add(time.Hour)}, time.Second)
		c.Heard(Word{"", time.Now().Add(time.Hour)}, time.Second)
		if err := c.Off(); err != nil {
			t.Errorf("nobody else is there: %v", err)
		}
		late := kv.Folder{Blobs: []kv.Blob{{Path: own + "b", Raw: encode(time.Now().Add(-time.Hour)), Revision: 7}}} // it waited for so long
		c.read(late)
		if c.Off() == nil {
			t.Error("what was written an hour ago is not believed to be now")
		}
		c.Heard(Word{"b", time.Now().Add(-2 * time.Second)}, 4*time.Second)
		low, high := middle([]time.Duration{time.Until(c.readings(time.Since(c.start))["b"].then(time.Since(c.start)))})
		if err := c.Off(); err != nil || low != 0 || high != 0 {
			t.Errorf("the peer's answer: %v, %v to %v", err, low, high)
		}
		ahead = time.Hour
		if c.Off() == nil {
			t.Error("an hour ahead of a peer: believed")
		}
		c.read(kv.Folder{}) // its lease has ended, and it answers
		if c.Off() == nil {
			t.Error("an hour ahead of a peer that cannot write: believed")
		}
		time.Sleep(3*time.Minute + time.Second)
		if err := c.Off(); err != nil {
			t.Errorf("nobody says anything: %v", err)
		}
		c.Heard(Word{"d", time.Now()}, 0)
		if len(c.heard) != 1 {
			t.Errorf("remembers %v", c.heard)
		}
	})
}

// The API server's clock is one more clock: a single process detects by it that its own clock is off, and of two
// differing processes the one that agrees with it is trusted. It is requested repeatedly, and without a response it
// does not count.
// Promise: security-ca.md#clocks
func TestAPIServerIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64 // a time.Duration
		var silent atomic.Bool
		wall := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		c := New(Config{Name: "a", Wall: wall, Log: quiet})
		c.read(kv.Folder{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- c.Follow(ctx, func(ctx context.Context) (time.Time, time.Duration, error) {
				if silent.Load() {
					<-ctx.Done()
					return time.Time{}, 0, ctx.Err()
				}
				time.Sleep(4 * time.Second)
				return time.Now().Add(-2 * time.Second).Truncate(time.Second), 4 * time.Second, nil
			})
		}()
		off := func(what string, want bool) {
			t.Helper()
			time.Sleep(heardFor)
			synctest.Wait()
			if err := c.Off(); (err != nil) != want {
				t.Errorf("%s: %v", what, err)
			}
		}
		off("alone with the API server, which agrees", false)
		ahead.Store(int64(3 * time.Minute))
		off("alone with the API server, which differs", true)
		c.read(kv.Folder{Blobs: []kv.Blob{{Path: own + "b", Raw: encode(wall()), Revision: 7}}})
		off("another process agrees, the API server does not", false)
		c.read(kv.Folder{Blobs: []kv.Blob{{Path: own + "b", Raw: encode(time.Now()), Revision: 8}}})
		off("the API server and another process agree", true)
		silent.Store(true)
		c.read(kv.Folder{})
		off("it says nothing", false)
		cancel()
		<-done
	})
}

// Of three processes, one whose clock is 25 hours fast detects it, and the others detect that theirs are right. After
// those have ended it cannot decide; the certain time is then at most the recorded one.
// Promise: security-ca.md#clocks
func TestClocksAreCompared(t *testing.T) {
	s := kvtest.Start(t)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	run := func(name string, ahead time.Duration) (c *Clock, stop func()) {
		c = New(Config{Store: s.Connect(), Name: name, Period: time.Hour, Wall: func() time.Time { return time.Now().Add(ahead) }, Log: quiet})
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		var ran sync.WaitGroup
		run := func() {
			if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		ran.Go(run)
		running.Go(ran.Wait)
		return c, func() { cancel(); ran.Wait() }
	}
	is := func(what string, c *Clock, want func() bool) {
		t.Helper()
		<-c.Compared()
		for deadline := time.Now().Add(time.Minute); !want(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v, others %v", what, c.Off(), c.others)
			}
		}
	}
	others := func(c *Clock, n int) func() bool {
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.others) == n && c.passed.revision != 0
		}
	}
	a, stopA := run("a", 0)
	is("a is alone", a, others(a, 0))
	b, stopB := run("b", 0)
	fast, _ := run("c", 25*time.Hour)
	for _, c := range []*Clock{a, b, fast} {
		is("all see each other", c, others(c, 2))
	}
	for _, c := range []*Clock{a, b} {
		if err := c.Off(); err != nil {
			t.Error(err)
		}
	}
	if err := fast.Off(); err == nil || errors.Is(err, ErrNotCompared) {
		t.Errorf("25 hours fast, and %v", err)
	}
	if _, err := fast.Sure(); err == nil {
		t.Error("25 hours fast, and sure of a time")
	}
	stopA()
	stopB()
	is("the others have ended", fast, others(fast, 0))
	if at, err := fast.Sure(); err != nil || time.Until(at) > time.Minute {
		t.Errorf("sure of %v, %v: nobody has recorded that", at, err)
	}
}

// The recorded time advances after a value that came late, and so is earlier than expected.
func TestRecordAfterALateValue(t *testing.T) {
	s := kvtest.Start(t)
	c := New(Config{Store: s.Store, Name: "a", Log: quiet})
	at := time.Now()
	for _, said := range []time.Time{at.Add(-time.Minute), at.Add(-2 * time.Minute)} {
		s.Put(recorded, string(encode(said)))
		if err := c.ReadOthers(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before, _, err := s.Blobs(t.Context(), recorded, 0)
	if err == nil {
		err = c.record(t.Context())
	}
	after, _, failed := s.Blobs(t.Context(), recorded, 0)
	if err = errors.Join(err, failed); err != nil || len(after) != 1 || string(after[0].Raw) <= string(before[0].Raw) {
		t.Errorf("%s after %s, %v", after[0].Raw, before[0].Raw, err)
	}
}
