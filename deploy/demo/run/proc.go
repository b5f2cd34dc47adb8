package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// proc is one program that the demo started, in its own process group.
type proc struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{}
	err       error // valid after done
}

// children are the programs that the demo started, and is allowed to end.
type children struct {
	logs  string
	start chan func()
	mu    sync.Mutex
	all   []*proc
}

// newChildren uses one thread for all starts: the kernel ends the programs when their parent thread dies, so a demo
// that is killed leaves no processes behind.
func newChildren(logs string) *children {
	h := &children{logs: logs, start: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range h.start {
			f()
		}
	}()
	return h
}

// spawn starts argv with env in addition to our environment; its output goes to a log file.
func (h *children) spawn(name string, env []string, argv ...string) (*proc, error) {
	p := &proc{name: name, log: filepath.Join(h.logs, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	h.start <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, p)
	return p, nil
}

// signal signals the whole process group.
func (p *proc) signal(s syscall.Signal) { syscall.Kill(-p.cmd.Process.Pid, s) }

// stop sends SIGTERM, and SIGKILL after the grace period.
func (p *proc) stop(grace time.Duration) {
	select {
	case <-p.done:
		return
	default:
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// kill ends a process as a crash would.
func (p *proc) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stopAll ends everything, the newest program first; programs with one name prefix end together.
func (h *children) stopAll() {
	h.mu.Lock()
	all := slices.Clone(h.all)
	h.mu.Unlock()
	for _, kind := range []string{"agent-", "app-", ""} {
		var wg sync.WaitGroup
		for _, p := range all {
			if strings.HasPrefix(p.name, kind) {
				wg.Go(func() { p.stop(10 * time.Second) })
			}
		}
		wg.Wait()
	}
}

// dead returns an error for a program that ended by itself; forget excludes expected ends.
func (h *children) dead() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.all {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %v; its last words:\n%s", p.name, p.err, tail(p.log, 15))
		default:
		}
	}
	return nil
}

func (h *children) forget(p *proc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = slices.DeleteFunc(h.all, func(q *proc) bool { return q == p })
}

// named returns the newest program of that name; nil without one.
func (h *children) named(name string) *proc {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range slices.Backward(h.all) {
		if p.name == name {
			return p
		}
	}
	return nil
}

func tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	rows := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return "    " + strings.Join(rows[max(0, len(rows)-lines):], "\n    ")
}

// await calls ok every few milliseconds until it returns nil, up to limit; the error contains the last one of ok.
func (h *children) await(ctx context.Context, what string, limit time.Duration, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	for last := errors.New("never asked"); ; {
		if err := h.dead(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		err := ok(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, limit, last)
		// the measured time is wrong by a tenth at most
		case <-time.After(max(10*time.Millisecond, min(time.Since(began)/10, 100*time.Millisecond))):
		}
	}
}
