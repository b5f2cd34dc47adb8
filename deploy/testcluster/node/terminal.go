package node

import (
	"context"
	"io"
	"os/exec"
	"syscall"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"navarch.io/navarch/deploy/testcluster/container"
)

// terminalInside runs a command in a container on a terminal of its own. The error has the form of exitCode.
func terminalInside(
	ctx context.Context, running *container.Container, command []string, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize,
) error {
	ours, theirs, err := pty.Open()
	if err != nil {
		return err
	}
	defer ours.Close()
	go func() {
		for size := range resize {
			_ = pty.Setsize(ours, &pty.Winsize{Rows: size.Height, Cols: size.Width})
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(ours, in) }() // until the client, or the terminal, is closed
	}
	printed := make(chan struct{})
	go func() {
		_, _ = io.Copy(out, ours) // until every process has closed the other end
		close(printed)
	}()
	err = runInside(ctx, running,
		&exec.Cmd{Args: command, Stdin: theirs, Stdout: theirs, Stderr: theirs, SysProcAttr: &syscall.SysProcAttr{Setctty: true}})
	_ = theirs.Close()
	<-printed
	return exitCode(err)
}
