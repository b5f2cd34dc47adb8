package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"navarch.io/navarch/push/envoytest"
)

// program writes a shell script that replaces Envoy.
func program(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, s *supervisor) (cancel func(), done chan error) {
	t.Helper()
	s.log = slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	done = make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return stop, done
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(deadline); !ok(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatal(what)
		}
	}
}

func TestSignalsAreForwarded(t *testing.T) {
	out := &envoytest.Output{}
	s := &supervisor{path: program(t, "trap 'echo usr1' USR1; trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"), out: out}
	stop, done := run(t, s)
	await(t, "did not start", func() bool { return strings.Contains(out.String(), "up") })
	s.Signal(syscall.SIGUSR1)
	await(t, "SIGUSR1 did not arrive", func() bool { return strings.Contains(out.String(), "usr1") })
	stop()
	if err := <-done; err != nil || s.State().Crashes != 0 {
		t.Errorf("%v, %+v", err, s.State())
	}
}

// A program that dies at once is started again, each time later.
func TestCrashLoopBacksOff(t *testing.T) {
	s := &supervisor{path: program(t, "exit 3"), out: &envoytest.Output{}}
	began := time.Now()
	stop, done := run(t, s)
	await(t, "did not crash 4 times", func() bool { return s.State().Crashes == 4 })
	if took := time.Since(began); took < 1400*time.Millisecond { // 0.2 + 0.4 + 0.8 s
		t.Errorf("4 starts within %v", took)
	}
	stop()
	if err := <-done; err != nil || s.State().LastExit != "exit status 3" {
		t.Errorf("%v, %+v", err, s.State())
	}
}
