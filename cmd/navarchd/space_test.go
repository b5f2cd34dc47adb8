package main

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/kv"
)

// At 80 % of the quota operators are told, once; of an etcd that has stopped writing each minute; and that it is over.
func TestSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log envoytest.Output
		var now atomic.Pointer[kv.Size]
		now.Store(&kv.Size{})
		s := &space{quota: 1000, log: slog.New(slog.NewTextHandler(&log, nil)), size: func(context.Context) (kv.Size, error) { return *now.Load(), nil }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		for _, c := range []struct {
			size  kv.Size
			says  string // "": no warning
			lines int    // that the log has then
		}{
			{kv.Size{File: 790, InUse: 10, Quota: 1000}, "", 0},
			{kv.Size{File: 800, InUse: 700, Quota: 1000}, "the store is 80 % full: 800 of 1000 bytes, 700 of them in use; at 100 %", 1},
			{kv.Size{File: 810, InUse: 700, Quota: 1000}, "81 % full", 1},
			{kv.Size{File: 850, InUse: 600}, "85 % full: 850 of 1000 bytes", 1}, // an etcd that does not say its quota
			{kv.Size{File: 1001, InUse: 900, Quota: 1000, Full: true}, "etcd writes nothing any more: ", 2},
			{kv.Size{File: 1001, InUse: 900, Quota: 1000, Full: true}, "etcd writes nothing any more: ", 3},
			{kv.Size{File: 100, InUse: 90, Quota: 1000}, "", 4},
		} {
			now.Store(&c.size)
			time.Sleep(spaceEvery)
			synctest.Wait()
			if got := s.warning(); (c.says == "") != (got == "") || !strings.Contains(got, c.says) {
				t.Errorf("%+v: %q", c.size, got)
			}
			if got := len(s.problems()) > 0; got != (c.says != "") {
				t.Errorf("%+v: a problem: %t", c.size, got)
			}
			if n := strings.Count(log.String(), "\n"); n != c.lines {
				t.Errorf("%+v: %d lines, want %d\n%s", c.size, n, c.lines, log.String())
			}
		}
		cancel()
		<-done
	})
}
