package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"navarch.io/navarch/deploy/testcluster/container"
)

// execute runs a command in a container for a probe or a hook; the error contains the end of its output.
func execute(ctx context.Context, running *container.Container, command []string) error {
	var out bytes.Buffer
	err := runInside(ctx, running, &exec.Cmd{Args: command, Stdout: &out, Stderr: &out})
	if err != nil {
		text := out.Bytes()
		return fmt.Errorf("%w: %s", err, text[max(0, len(text)-1024):])
	}
	return nil
}

// runInside runs a command in a container until it ends; when ctx ends it is killed.
func runInside(ctx context.Context, running *container.Container, cmd *exec.Cmd) error {
	if len(cmd.Args) == 0 {
		return errors.New("no command")
	}
	cmd.WaitDelay = time.Second // for output that another process still has open
	if err := running.Prepare(cmd); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Kill()
		case <-ended:
		}
	}()
	return errors.Join(cmd.Wait(), ctx.Err())
}

// ExecInContainer serves kubectl exec: it runs a command in a container with the client's streams, on a terminal if
// tty. Errors: the container does not run, the command cannot be started, or its exit code in the clients' form.
func (p *pod) ExecInContainer(
	ctx context.Context, _, _, name string, command []string, in io.Reader, out, wrong io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	running := p.running(name)
	if running == nil {
		return fmt.Errorf("container %s does not run", name)
	}
	if tty {
		return terminalInside(ctx, running, command, in, out, resize)
	}
	cmd := &exec.Cmd{Args: command}
	if out != nil {
		cmd.Stdout = out
	}
	if wrong != nil {
		cmd.Stderr = wrong
	}
	if in != nil {
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() { // until the client closes its end, or the command has ended
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
		}()
	}
	return exitCode(runInside(ctx, running, cmd))
}

// exitCode converts the error of an exit code to the form that clients expect.
func exitCode(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: exit, Code: exit.ExitCode()}
	}
	return err
}

func (p *pod) running(name string) *container.Container {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.runs[name]; r != nil {
		return r.current
	}
	return nil
}
