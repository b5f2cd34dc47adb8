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
	restartReset = 30 * time.Second // an Envoy that lived this long starts the back-off again
	killAfter    = 5 * time.Second  // between SIGTERM and SIGKILL
)

// envoyState is what the debug page shows of the process.
type envoyState struct {
	PID      int        `json:"pid,omitempty"` // 0: not running
	Starts   int        `json:"starts"`
	Crashes  int        `json:"crashes"`
	Started  *time.Time `json:"started,omitempty"`
	LastExit string     `json:"lastExit,omitempty"`
}

// supervisor runs Envoy, again when it crashes, and stops it when told to.
type supervisor struct {
	path string
	args []string
	out  io.Writer
	log  *slog.Logger

	mu    sync.Mutex
	state envoyState
	proc  *os.Process
}

// Run returns when ctx ends, after Envoy was stopped, or with nil when Envoy ended by its own will (exit code 0, as
// POST /quitquitquit makes it do): the proxy of a finished job must not come back.
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
		s.log.Error("Envoy crashed, starting it again", "exit", err, "after", time.Since(began).Round(time.Millisecond), "in", wait)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// once runs one Envoy to its end. The kernel kills it when the agent dies: the parent of that rule is the thread, which
// is therefore kept.
func (s *supervisor) once(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(s.path, s.args...)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // a Ctrl-C on the terminal must reach it through the drain only
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

// start starts the process under the lock, so that a signal that comes meanwhile waits for it instead of getting lost.
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

func (s *supervisor) exited(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.state.PID, s.state.LastExit = nil, 0, "exit status 0"
	if err != nil {
		s.state.LastExit = err.Error()
	}
}

// Signal passes sig to Envoy, if it runs.
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

func (s *supervisor) State() envoyState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}
