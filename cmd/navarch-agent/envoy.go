package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	restartBase  = 200 * time.Millisecond
	restartMax   = 10 * time.Second
	restartReset = 30 * time.Second // an Envoy that ran this long resets the back-off
	killAfter    = 5 * time.Second  // time between SIGTERM and SIGKILL
)

// envoyState is the part of the debug page about the Envoy process.
type envoyState struct {
	PID      int        `json:"pid,omitempty"`      // 0: not running
	Starts   int        `json:"starts"`             // successful starts
	Crashes  int        `json:"crashes"`            // exits with an error, and failed starts
	Started  *time.Time `json:"started,omitempty"`  // time of the last successful start; nil: never started
	LastExit string     `json:"lastExit,omitempty"` // exit status, or error of the failed start; empty: no exit yet
}

// supervisor runs Envoy, restarts it with back-off after a crash, and stops it when its context ends.
type supervisor struct {
	path string
	args []string
	out  io.Writer
	log  *slog.Logger

	mu    sync.Mutex
	state envoyState
	proc  *os.Process
}

// Run runs Envoy until ctx ends, then stops Envoy and returns nil. It also returns nil when Envoy exits with code 0
// (after POST /quitquitquit), because the proxy of a finished Job must not be restarted. The error is always nil:
// failed starts and crashes are logged and retried.
func (s *supervisor) Run(ctx context.Context) error {
	for failures := 0; ; failures++ {
		began := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			s.log.Info("Envoy ended by itself")
			return nil
		}
		if time.Since(began) >= restartReset {
			failures = 0
		}
		wait := min(restartBase<<min(failures, 16), restartMax)
		s.mu.Lock()
		s.state.Crashes++
		s.mu.Unlock()
		s.log.Error("Envoy crashed, starting it again",
			"exit", err, "after", time.Since(began).Round(time.Millisecond), "in", wait)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// once runs one Envoy process until it exits. When ctx ends, once stops the process with SIGTERM, and with SIGKILL
// after killAfter. The kernel kills Envoy when its parent thread ends (Pdeathsig), so the goroutine stays locked to
// that thread. The error is that of the start or of the exit status.
func (s *supervisor) once(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(s.path, s.args...)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // a Ctrl-C on the terminal must not reach Envoy before the drain
		Pdeathsig: syscall.SIGKILL,
	}
	if err := s.start(cmd); err != nil {
		s.exited(err)
		return fmt.Errorf("start %s: %w", s.path, err)
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		s.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(killAfter):
			s.Signal(syscall.SIGKILL)
		}
	}()
	err := cmd.Wait()
	close(done)
	s.exited(err)
	return err
}

// start starts the process under the lock. A signal that arrives meanwhile waits for the process and is not lost.
func (s *supervisor) start(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	now := time.Now()
	s.proc, s.state.PID, s.state.Started = cmd.Process, cmd.Process.Pid, &now
	s.state.Starts++
	return nil
}

// exited records the end of the process and its error for State.
func (s *supervisor) exited(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.state.PID, s.state.LastExit = nil, 0, "exit status 0"
	if err != nil {
		s.state.LastExit = err.Error()
	}
}

// Signal sends sig to Envoy. Without a running process it does nothing. A failure is logged.
func (s *supervisor) Signal(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return
	}
	if err := s.proc.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.log.Warn("cannot signal Envoy", "signal", sig, "error", err)
	}
}

// State returns a copy of the state of the Envoy process. The time at Started must not be changed. State is safe for
// concurrent use.
func (s *supervisor) State() envoyState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}
