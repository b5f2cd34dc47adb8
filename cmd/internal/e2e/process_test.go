package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaries are built once for all tests of the package.
var binaries struct {
	once sync.Once
	dir  string
	err  error
}

// binary is the path of one of our programs, built from this tree.
func binary(t *testing.T, name string) string {
	t.Helper()
	binaries.once.Do(func() {
		binaries.dir, binaries.err = os.MkdirTemp("", "navarch-e2e-")
		if binaries.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", binaries.dir, "navarch.io/navarch/cmd/navarchd", "navarch.io/navarch/cmd/navarchctl", "navarch.io/navarch/cmd/navarch-agent").CombinedOutput()
		if err != nil {
			binaries.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if binaries.err != nil {
		t.Fatal(binaries.err)
	}
	return filepath.Join(binaries.dir, name)
}

func TestMain(m *testing.M) {
	code := m.Run()
	if binaries.dir != "" {
		os.RemoveAll(binaries.dir)
	}
	os.Exit(code)
}

// daemon is one navarchd process.
type daemon struct {
	cmd        *exec.Cmd
	log        *lockedBuffer
	exited     chan struct{}
	http, grpc string // addresses
	monitoring string
	secure     string
}

// lockedBuffer is what a process wrote so far.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs navarchd with addresses of its own; it is killed at the end of the test.
func start(t *testing.T, args ...string) *daemon {
	t.Helper()
	d := &daemon{log: &lockedBuffer{}, exited: make(chan struct{}), http: free(t), grpc: free(t), monitoring: free(t), secure: free(t)}
	args = append([]string{"--http-addr", d.http, "--grpc-addr", d.grpc, "--monitoring-addr", d.monitoring, "--secure-grpc-addr", d.secure}, args...)
	d.cmd = exec.Command(binary(t, "navarchd"), args...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // how it ended is in ProcessState
		close(d.exited)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGCONT)
		_ = d.cmd.Process.Kill()
		<-d.exited
		if t.Failed() {
			t.Logf("navarchd %v:\n%s", args, d.log)
		}
	})
	return d
}

// free is a loopback address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// eventually polls until check answers nil, for at most the time given.
func eventually(t *testing.T, atMost time.Duration, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v: %v", atMost, err)
		}
	}
}

// get fetches a page; an error for any status but 200.
func get(address, path string) (string, error) {
	client := http.Client{Timeout: 2 * time.Second}
	res, err := client.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s%s: %s: %s", address, path, res.Status, body)
	}
	return string(body), nil
}

func (d *daemon) ready() error {
	_, err := get(d.http, "/ready")
	return err
}

// stop sends SIGTERM and waits for an orderly end.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.exited:
	case <-time.After(20 * time.Second):
		t.Fatal("SIGTERM did not end it")
	}
	if !d.cmd.ProcessState.Success() {
		t.Errorf("after SIGTERM it ended with %v", d.cmd.ProcessState)
	}
}

// metric says whether /metrics has a line.
func (d *daemon) metric(line string) error {
	page, err := get(d.monitoring, "/metrics")
	if err == nil && !strings.Contains("\n"+page, "\n"+line+"\n") {
		name, _, _ := strings.Cut(line, "{")
		err = fmt.Errorf("/metrics has no line %q", line)
		for has := range strings.Lines(page) {
			if strings.HasPrefix(has, name) {
				err = fmt.Errorf("%w, but %q", err, has)
			}
		}
	}
	return err
}
