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

// binary returns the path of one of our programs, built from this tree.
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

// unlevelled disables the fixed address of log levels, because many processes run at the same time. Older versions do
// not have the flag.
var unlevelled = []string{"--ctrlz-addr="}

// start runs navarchd with addresses of its own; it is killed at the end of the test.
func start(t testing.TB, args ...string) *daemon {
	t.Helper()
	return startProgram(t, navarchd(t), nil, append(unlevelled, args...)...)
}

// localDestinations lets gateways connect to loopback addresses, which the applications of tests have.
const localDestinations = "NAVARCH_GATEWAY_LOCAL_DESTINATIONS"

// startNamed works like start, for a replica with its own name (POD_NAME).
func startNamed(t testing.TB, name string, args ...string) *daemon {
	t.Helper()
	return startProgram(t, navarchd(t), []string{"POD_NAME=" + name}, append(unlevelled, args...)...)
}

// startProgram works like start, for another build of navarchd, with additions to its environment.
func startProgram(t testing.TB, program string, environment []string, args ...string) *daemon {
	t.Helper()
	d := &daemon{log: &envoytest.Output{}, exited: make(chan struct{}), http: loopback.For(t), grpc: loopback.For(t), monitoring: loopback.For(t), secure: loopback.For(t), https: loopback.For(t)}
	return d.run(t, program, environment, args)
}

// again starts program with the addresses and the environment of a process that has ended.
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
	d.cmd.Env = append(append(os.Environ(), localDestinations+"=true"), environment...)
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

// kill ends the process at once (SIGKILL).
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.exited
}

// patience is the limit of every wait for events that happen at once or within a lease on an idle machine, and longer
// at full size. Promised limits are in the tests themselves.
var patience = envoytest.Patience * time.Duration(min(faultScale, 10))

// eventually polls until check returns nil, up to the given time.
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

// metric returns a check that /metrics has a line.
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
