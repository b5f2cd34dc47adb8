package kvtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// readyTimeout is how long an etcd may take to start on a busy machine.
const readyTimeout = time.Minute

// process is a stock etcd that runs. It ends with the process that started it.
type process struct {
	cmd    *exec.Cmd
	folder string // of its sockets
	said   bytes.Buffer
	exited chan struct{}
}

// launch starts an etcd of one member on the data in dir, and returns when it is ready. It does not wait for disks, and its leases may be as
// short as a second. What etcd writes at level error or above is in the error where it does not become ready.
func launch(dir string, args ...string) (*process, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	p := &process{exited: make(chan struct{})}
	if p.folder, err = os.MkdirTemp("", "etcd"); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	// systemd's protocol: a datagram when it is ready (sd_notify(3), etcd: server/etcdmain/etcd.go notifySystemd).
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(p.folder, "ready"), Net: "unixgram"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), os.RemoveAll(p.folder))
	}
	defer ready.Close()
	p.cmd = exec.Command(program, append([]string{"--data-dir=" + dir, "--unsafe-no-fsync", "--heartbeat-interval=10", "--election-timeout=50",
		"--bcrypt-cost=4", // its least: passwords of tests need no work
		"--enable-grpc-gateway=false", "--log-level=error", "--log-format=console",
	}, args...)...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.folder, &p.said, &p.said
	p.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+ready.LocalAddr().String())
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), os.RemoveAll(p.folder))
	}
	go func() {
		_ = p.cmd.Wait() // a test kills it
		close(p.exited)
		ready.Close() // nobody will say that it is ready
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

// kill ends it as the end of its machine would; its data stay.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop etcd: %w", err)
	}
	<-p.exited
	return os.RemoveAll(p.folder)
}

// Program is the path of a stock etcd, of the version that go.mod names. It is built into out/programs once for all test binaries, and again where
// a dependency has changed.
var Program = sync.OnceValues(func() (string, error) {
	top, err := root()
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(top, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("build etcd: %w", err)
	}
	hash := sha256.Sum256(sums)
	path := filepath.Join(top, "out", "programs", fmt.Sprintf("etcd-%x", hash[:8]))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("build etcd: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("build etcd: %w", err)
	}
	defer lock.Close() // which lets it go
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("build etcd: lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	build := exec.Command("go", "build", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", path+".part", "go.etcd.io/etcd/server/v3")
	build.Dir, build.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build etcd: %w\n%s", err, out)
	}
	if err := os.Rename(path+".part", path); err != nil { // one that was half written has another name
		return "", fmt.Errorf("build etcd: %w", err)
	}
	return path, nil
})

// root is the top of the tree, above the working directory.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("build etcd: %w", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module navarch.io/navarch\n") {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("build etcd: no go.mod of navarch.io/navarch above the working directory")
		}
		dir = up
	}
}
