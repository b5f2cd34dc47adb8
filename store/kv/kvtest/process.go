package kvtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"navarch.io/navarch/store/programs"
)

// readyTimeout bounds the start of an etcd on a busy machine.
const readyTimeout = time.Minute

// process is a running stock etcd. It ends with the process that started it.
type process struct {
	cmd    *exec.Cmd
	folder string       // folder of its sockets
	said   bytes.Buffer // its output
	exited chan struct{}
}

// launch starts an etcd of one member on the data in dir, and returns when it is ready. The etcd does not sync to disk,
// and its leases may be as short as a second. If it does not become ready, the error contains its messages of level
// error and above.
func launch(dir string, args ...string) (*process, error) {
	program, err := programs.Etcd()
	if err != nil {
		return nil, err
	}
	p := &process{exited: make(chan struct{})}
	if p.folder, err = os.MkdirTemp("", "etcd"); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	// etcd sends a datagram when it is ready (sd_notify(3), etcd: server/etcdmain/etcd.go notifySystemd).
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(p.folder, "ready"), Net: "unixgram"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), os.RemoveAll(p.folder))
	}
	defer ready.Close()
	p.cmd = exec.Command(program, append([]string{"--data-dir=" + dir, "--unsafe-no-fsync", "--heartbeat-interval=10", "--election-timeout=50",
		"--bcrypt-cost=4", // the minimum, because passwords of tests need no protection
		"--enable-grpc-gateway=false", "--log-level=error", "--log-format=console",
	}, args...)...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.folder, &p.said, &p.said
	p.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+ready.LocalAddr().String())
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), os.RemoveAll(p.folder))
	}
	go func() {
		_ = p.cmd.Wait() // the error only says that the process was killed
		close(p.exited)
		ready.Close() // the process has ended, so no notification will come
	}()
	if err := ready.SetReadDeadline(time.Now().Add(readyTimeout)); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), p.kill())
	}
	if _, err := ready.Read(make([]byte, 64)); err != nil {
		err = errors.Join(err, p.kill())
		return nil, fmt.Errorf("etcd is not ready: %w\n%s", err, &p.said)
	}
	return p, nil
}

// kill kills the process and removes p.folder with the sockets in it. The data and the socket for clients stay.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop etcd: %w", err)
	}
	<-p.exited
	return os.RemoveAll(p.folder)
}
