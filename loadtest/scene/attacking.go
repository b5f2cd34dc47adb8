package scene

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"navarch.io/navarch/loadtest/attack"
)

// attacking is the process of the attackers.
type attacking struct {
	cmd         *exec.Cmd
	out, failed bytes.Buffer
	gone        chan struct{} // closed when the process has ended
	ended       error
}

// startAttack starts argv, which must print its counts after SIGTERM, and returns once it is ready for that signal.
func startAttack(c *cage, argv []string) (*attacking, error) {
	said, says, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the attackers: %w", err)
	}
	defer said.Close()
	a := &attacking{cmd: c.command(append(slices.Clone(argv), "--ready-fd=3")...), gone: make(chan struct{})}
	a.cmd.ExtraFiles = []*os.File{says} // file descriptor 3 (os/exec)
	a.cmd.Stdout, a.cmd.Stderr = &a.out, &a.failed
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = launch(a.cmd.Start)
	says.Close()
	if err != nil {
		return nil, fmt.Errorf("start the attackers: %w", err)
	}
	go func() {
		defer close(a.gone)
		a.ended = a.cmd.Wait()
	}()
	_ = said.SetReadDeadline(time.Now().Add(patience))
	if _, err := said.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // the attackers close it, or end
		a.kill()
		return nil, fmt.Errorf("start the attackers: not ready: %w", err)
	}
	return a, nil
}

// early returns the error for attackers that ended without a request.
func (a *attacking) early() error {
	return fmt.Errorf("the attackers ended by themselves (%v): %s", a.ended, a.failed.Bytes())
}

// end ends the process, and returns its counts and its CPU time. The error reports that it ended before, or does not
// end.
func (a *attacking) end() (counts map[string]attack.Count, cpu time.Duration, err error) {
	select {
	case <-a.gone:
		return nil, 0, a.early()
	default:
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM) // it may have ended just now
	select {
	case <-a.gone:
	case <-time.After(patience):
		return nil, 0, errors.New("the attackers do not end")
	}
	if err = a.ended; err == nil {
		err = json.Unmarshal(a.out.Bytes(), &counts)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the attackers: %w: %s", err, a.failed.Bytes())
	}
	return counts, a.cmd.ProcessState.UserTime() + a.cmd.ProcessState.SystemTime(), nil
}

// kill ends the process if it still runs.
func (a *attacking) kill() {
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.gone
}
