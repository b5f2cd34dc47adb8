package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/programs"
)

// binary is the path of one of our programs, built from this tree.
func binary(t testing.TB, name string) string {
	t.Helper()
	return programs.For(t, name)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if faultScale >= fullScale {
		go otherTimes.watch()
	}
	if err := setParallel(); err != nil {
		panic(err) // a flag of package testing
	}
	code := m.Run()
	if err := fleetCA.remove(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// daemon is one navarchd process.
type daemon struct {
	cmd        *exec.Cmd
	log        *envoytest.Output
	exited     chan struct{}
	http, grpc string // addresses
	monitoring string
	secure     string
	https      string   // of the webhooks, where it has role admit
	more       []string // additions to its environment
}

// unlevelled leaves the fixed address of log levels to nobody, since many processes run at the same time. Older versions do not have the flag.
var unlevelled = []string{"--ctrlz-addr="}

// start runs navarchd with addresses of its own; it is killed at the end of the test.
func start(t testing.TB, args ...string) *daemon {
	t.Helper()
	return startProgram(t, navarchd(t), nil, append(unlevelled, args...)...)
}

// startNamed is start of a replica with a name of its own (POD_NAME).
func startNamed(t testing.TB, name string, args ...string) *daemon {
	t.Helper()
	return startProgram(t, navarchd(t), []string{"POD_NAME=" + name}, append(unlevelled, args...)...)
}

// startProgram is start of another build of navarchd, with additions to its environment.
func startProgram(t testing.TB, program string, environment []string, args ...string) *daemon {
	t.Helper()
	d := &daemon{log: &envoytest.Output{}, exited: make(chan struct{}), http: loopback.For(t), grpc: loopback.For(t), monitoring: loopback.For(t), secure: loopback.For(t), https: loopback.For(t)}
	return d.run(t, program, environment, args)
}

// again is start with the addresses and the environment of a process that has ended.
func (d *daemon) again(t testing.TB, program string, args ...string) *daemon {
	t.Helper()
	<-d.exited
	next := &daemon{log: &envoytest.Output{}, exited: make(chan struct{}), http: d.http, grpc: d.grpc, monitoring: d.monitoring, secure: d.secure, https: d.https}
	return next.run(t, program, d.more, args)
}

func (d *daemon) run(t testing.TB, program string, environment, args []string) *daemon {
	t.Helper()
	args = append([]string{"--http-addr", d.http, "--grpc-addr", d.grpc, "--monitoring-addr", d.monitoring, "--secure-grpc-addr", d.secure, "--https-addr", d.https}, args...)
	d.more = environment
	d.cmd = exec.Command(program, args...)
	d.cmd.Env = append(os.Environ(), environment...)
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
		d.kill()
		if strings.Contains(d.log.String(), "WARNING: DATA RACE") {
			t.Error("the race detector found something")
		}
		if t.Failed() {
			t.Logf("navarchd %v:\n%s", args, d.log)
		}
	})
	return d
}

// kill ends it at once (SIGKILL).
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.exited
}

// patience is the limit of every wait for what takes an instant, or the time of a lease, on a machine that does nothing
// else, and longer where there is more to wait for. Where a limit is a promise, the test says its own.
var patience = envoytest.Patience * time.Duration(min(faultScale, 10))

// eventually polls until check answers nil, for at most the time given.
func eventually(t testing.TB, atMost time.Duration, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	for began := time.Now(); ; {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-time.After(envoytest.Pause(time.Since(began))):
		case <-ctx.Done():
			t.Fatalf("after %v: %v", atMost, err)
		}
	}
}

// get fetches a page; an error for any status but 200.
func get(address, path string) (string, error) {
	client := http.Client{Timeout: patience}
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
	case <-time.After(patience):
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
