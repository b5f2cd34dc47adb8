package kv_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/obs"
)

// At 80 % of the quota there is one warning, for an etcd that has stopped writing one each minute, and a line at the
// end.
func TestSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var now atomic.Pointer[kv.Size]
		now.Store(&kv.Size{})
		s := &kv.Space{Quota: 1000, Log: slog.New(slog.NewTextHandler(&log, nil)), Size: func(context.Context) (kv.Size, error) { return *now.Load(), nil }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		for _, c := range []struct {
			size  kv.Size
			says  string // "": no warning
			lines int    // that the log has then
		}{
			{kv.Size{File: 790, InUse: 10, Quota: 1000}, "", 0},
			{kv.Size{File: 800, InUse: 700, Quota: 1000}, "the store is 80 % full: 800 of 1000 bytes, 700 of them in use; at 100 %", 1},
			{kv.Size{File: 810, InUse: 700, Quota: 1000}, "81 % full", 1},
			{kv.Size{File: 850, InUse: 600}, "85 % full: 850 of 1000 bytes", 1}, // an etcd that does not report its quota
			{kv.Size{File: 1001, InUse: 900, Quota: 1000, Full: true}, "etcd writes nothing any more: ", 2},
			{kv.Size{File: 1001, InUse: 900, Quota: 1000, Full: true}, "etcd writes nothing any more: ", 3},
			{kv.Size{File: 100, InUse: 90, Quota: 1000}, "", 4},
		} {
			now.Store(&c.size)
			time.Sleep(kv.SpaceEvery)
			synctest.Wait()
			if got, _ := s.Warning(); (c.says == "") != (got == "") || !strings.Contains(got, c.says) {
				t.Errorf("%+v: %q", c.size, got)
			}
			if got := alarm(t); got != (c.says != "") {
				t.Errorf("%+v: navarch_store_alarm is raised: %t", c.size, got)
			}
			if _, full := s.Warning(); full != c.size.Full {
				t.Errorf("%+v: full: %t", c.size, full)
			}
			if n := strings.Count(log.String(), "\n"); n != c.lines {
				t.Errorf("%+v: %d lines, want %d\n%s", c.size, n, c.lines, log.String())
			}
		}
		cancel()
		<-done
	})
}

// alarm reports whether navarch_store_alarm{cause="space"} is 1, which has an alert (deploy/chart/files/alerts.yaml).
func alarm(t *testing.T) bool {
	t.Helper()
	var m dto.Metric
	if err := obs.StoreAlarm.WithLabelValues("space").Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue() == 1
}

// An external etcd whose quota is really full, and before that at 80 %: both are logged by name, and so is the end.
func TestSpaceOfAnEtcdThatFills(t *testing.T) {
	const quota = 16 << 20
	etcd := kvtest.Start(t, kvtest.Quota(quota))
	s := &kv.Space{Size: etcd.Size, Keeps: etcd.Keeps, Log: slog.New(slog.DiscardHandler)}
	look := func(now time.Time, want string) {
		t.Helper()
		if err := s.Measure(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if got, _ := s.Warning(); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	now := time.Now()
	look(now, "")
	fill := func(done func(kv.Size, error) bool) {
		t.Helper()
		for i := 0; ; i++ {
			_, err := etcd.Client().Put(t.Context(), fmt.Sprint(etcd.LeaderPath(), "/of-another/", i%4), strings.Repeat("x", 1<<20))
			size, failed := etcd.Size(t.Context())
			if failed != nil {
				t.Fatal(failed)
			}
			if done(size, err) {
				return
			}
			if err != nil && i > 1000 {
				t.Fatal(err)
			}
		}
	}
	fill(func(size kv.Size, _ error) bool { return size.Filling() })
	look(now, "% full: ")
	look(now.Add(2*time.Hour), "nobody has compacted the history of the store for 2 hours: start etcd with --auto-compaction")
	fill(func(size kv.Size, err error) bool { return size.Full && err != nil })
	look(now.Add(3*time.Hour), "etcd writes nothing any more: ")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for size, err := etcd.Size(ctx); size.Full || size.File > quota/2; size, err = etcd.Size(ctx) {
		if err == nil {
			err = etcd.Maintain(ctx) // compacts, shrinks the file and disarms the alarm, as an operator does
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	look(now.Add(4*time.Hour), "")
}

// If an external etcd is not compacted, a warning reports it after a day, even if there is space, and ends with the
// compaction. An etcd without writes has no history.
func TestHistoryThatNobodyCompacts(t *testing.T) {
	etcd := kvtest.Start(t)
	s := &kv.Space{Size: etcd.Size, Keeps: etcd.Keeps, Log: slog.New(slog.DiscardHandler)}
	now := time.Now()
	look := func(hours int, want bool) {
		t.Helper()
		if err := s.Measure(t.Context(), now.Add(time.Duration(hours)*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if got, _ := s.Warning(); strings.Contains(got, "nobody has compacted the history") != want {
			t.Errorf("after %d hours: %q", hours, got)
		}
	}
	compact := func() {
		t.Helper()
		stat, err := etcd.Stat(t.Context())
		if err == nil {
			err = etcd.Compact(t.Context(), stat.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	look(0, false)
	look(100, false) // nothing was written
	for hour := range 24 {
		etcd.Put("leader/x", fmt.Sprint(hour))
		look(101+hour, hour+101 >= 124)
	}
	for hour := range 3 * kv.HistorySamples {
		etcd.Put("leader/x", fmt.Sprint(hour))
		look(200+hour, true)
		if s.Samples() > kv.HistorySamples {
			t.Fatalf("%d samples are kept", s.Samples())
		}
	}
	compact()
	look(300, false)
	for hour := range 100 { // compacted every eight hours
		etcd.Put("leader/x", fmt.Sprint(hour))
		look(301+hour, false)
		if hour%8 == 0 {
			compact()
		}
	}
}

// A member that does not answer is counted, and the size of the others is known, for any position in the list.
func TestSilentEndpoints(t *testing.T) {
	etcd := kvtest.Start(t)
	const silent = "127.0.0.1:1"
	for _, c := range []struct {
		endpoints []string
		want      float64
		answers   bool
	}{
		{[]string{etcd.Endpoint()}, 0, true},
		{[]string{silent, etcd.Endpoint()}, 1, true},
		{[]string{etcd.Endpoint(), silent, "127.0.0.1:2"}, 2, true},
		{[]string{silent}, 1, false},
	} {
		s, err := kv.Open(kv.Config{Mesh: "default", Endpoints: c.endpoints, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		space := &kv.Space{Size: s.Size, Log: slog.New(slog.DiscardHandler)}
		if err := space.Measure(ctx, time.Now()); (err == nil) != c.answers {
			t.Errorf("%v: %v", c.endpoints, err)
		}
		cancel()
		var m dto.Metric
		if err := obs.SilentEtcd.Write(&m); err != nil {
			t.Fatal(err)
		}
		if got := m.GetGauge().GetValue(); got != c.want {
			t.Errorf("%v: %v are silent, want %v", c.endpoints, got, c.want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An etcd whose disk is full is reported as such, with the reason from Room, also if it does not answer.
func TestSpaceOfTheDisk(t *testing.T) {
	why := "the disk of /data has 3 MiB free"
	away := func(context.Context) (kv.Size, error) { return kv.Size{}, context.DeadlineExceeded }
	s := &kv.Space{Log: slog.New(slog.DiscardHandler), Room: func() string { return why }, Size: away}
	if err := s.Measure(t.Context(), time.Now()); err == nil {
		t.Error("it answers")
	}
	if text, full := s.Warning(); text != why || !full {
		t.Errorf("%q, full %t", text, full)
	}
	why = ""
	if text, full := s.Warning(); text != "" || full {
		t.Errorf("with room: %q, full %t", text, full)
	}
}
