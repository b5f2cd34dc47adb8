// Package controlplane runs a real Kubernetes control plane for tests: etcd, kube-apiserver and optionally
// kube-controller-manager and kube-scheduler, as `make kube-tools` builds them. It has no kubelet and no kube-proxy: a
// Pod is an object whose status the test writes. deploy/testcluster/cluster adds both.
//
// Owns: the processes, ports and folders that it starts, until their test, or the test binary, ends. Reads: .tools.
// Never: runs outside of tests and load runs; listens on an address that is not loopback.
package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loopback"
)

// Options are the parts of a control plane in addition to etcd and the API server.
type Options struct {
	// Admission enables the admission plugins ServiceAccount and NamespaceLifecycle. Without them objects may be created
	// in namespaces that do not exist, and Pods without a service account.
	Admission bool
	// Controllers are the controllers of kube-controller-manager (the variable Controllers has those that most tests
	// need); empty: it is not started.
	Controllers []string
	Istio       bool     // installs Istio's CustomResourceDefinitions
	GatewayAPI  bool     // installs those of the Gateway API (the standard channel)
	Scheduler   bool     // runs kube-scheduler
	Flags       []string // further flags of kube-apiserver
	// Etcd is the URL of a running etcd, such as another control plane's, in which all keys are stored below Prefix;
	// empty: one is started.
	Etcd   string
	Prefix string // with Etcd: prefix of all keys, such as /west
	Tools  string // the folder .tools; empty: that of the repository of the working directory
}

// Controllers create Pods of Deployments, EndpointSlices of Services, default service accounts and kube-root-ca.crt in
// every namespace, and empty namespaces that are deleted.
var Controllers = []string{"deployment-controller", "replicaset-controller", "endpointslice-controller", "namespace-controller",
	"serviceaccount-controller", "garbage-collector-controller", "root-ca-certificate-publisher-controller"}

// patience is the time limit for steps that take a second on an idle machine.
const patience = 4 * time.Minute

// ready is the time limit for a program's first answer.
const ready = patience / 2

// ControlPlane is one Kubernetes control plane.
type ControlPlane struct {
	options  Options
	bin      string // folder of the programs
	dir      string
	etcd     *kvtest.Standalone // nil: started by others
	store    string             // address of etcd
	address  string             // of the API server
	api      *process
	managers []*process
}

// Start runs a control plane until the test ends. It fails the test if the programs are not built (make kube-tools).
func Start(t testing.TB, o Options) *ControlPlane {
	t.Helper()
	c, err := Run(o, t.TempDir())
	if c != nil {
		t.Cleanup(func() {
			if c.Close(); t.Failed() {
				t.Logf("the control plane's last lines:\n%s", c.Log())
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Run works like Start, without a test: it stores its files in dir, and the control plane runs until Close. With an
// error the control plane is nil or must be closed too. An API server certificate in dir (certs/apiserver.crt with its
// issuer, apiserver.key) is used.
func Run(o Options, dir string) (*ControlPlane, error) {
	var err error
	if o.Tools == "" {
		if o.Tools, err = Tools(); err != nil {
			return nil, err
		}
	}
	c := &ControlPlane{options: o, dir: dir, bin: filepath.Join(o.Tools, "bin")}
	if err := writeKeys(dir); err != nil {
		return nil, err
	}
	var addresses [5]string
	for i := range addresses {
		if addresses[i], err = loopback.Address(); err != nil {
			return nil, err
		}
	}
	c.store, c.address = addresses[0], addresses[1]
	if o.Etcd != "" {
		c.store = strings.TrimPrefix(o.Etcd, "http://")
	} else if c.etcd, err = kvtest.StartStandalone(filepath.Join(dir, "etcd"), c.store, addresses[2]); err != nil {
		return c, err
	}
	if err := c.startDefined(); err != nil {
		return c, err
	}
	if len(o.Controllers) > 0 {
		if err := c.startManager(addresses[3]); err != nil {
			return c, err
		}
	}
	if o.Scheduler {
		return c, c.startScheduler(addresses[4])
	}
	return c, nil
}

// Tools returns the folder .tools of the repository, of which the working directory is a part. The error reports that
// the working directory is not in a Go module.
func Tools() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".tools"), nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// Etcd returns the URL of the API server's etcd.
func (c *ControlPlane) Etcd() string { return "http://" + c.store }

// Close ends all processes.
func (c *ControlPlane) Close() {
	for _, p := range append(c.managers, c.api) {
		p.kill()
	}
	_ = c.noteUsed() // a right that is not recorded is reported as unused (deploy/testcluster/rights)
	if c.etcd != nil {
		_ = c.etcd.Close() // its remains are in a temporary folder
	}
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Config returns the administrator's client configuration, without a rate limit.
func (c *ControlPlane) Config() *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		panic(err) // our own file
	}
	config.QPS = -1
	return config
}

// Address returns host:port of the API server, which serves TLS.
func (c *ControlPlane) Address() string { return c.address }

// Log returns the last lines of the output of all processes.
func (c *ControlPlane) Log() string {
	var b strings.Builder
	for _, p := range append([]*process{c.api}, c.managers...) {
		if p != nil {
			fmt.Fprintf(&b, "%s:\n%s\n", p.name, p.log.tail(4<<10))
		}
	}
	return b.String()
}

// Kubectl runs kubectl as administrator with a standard input, and returns its output. It fails the test if kubectl
// fails.
func (c *ControlPlane) Kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := c.kubectl(strings.NewReader(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *ControlPlane) kubectl(stdin *strings.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"),
		append([]string{"--kubeconfig", c.Kubeconfig(), "--cache-dir", filepath.Join(c.dir, "kubectl")}, args...)...)
	var out, wrong bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &wrong
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, wrong.String())
	}
	return out.String(), nil
}

// KillAPIServer kills the API server (SIGKILL); stored objects stay.
func (c *ControlPlane) KillAPIServer() { c.api.kill() }

// StartAPIServer starts the API server again at the same address, and waits until it is ready.
func (c *ControlPlane) StartAPIServer(t testing.TB) {
	t.Helper()
	if err := c.startAPIServer(); err != nil {
		t.Fatal(err)
	}
}

// PauseAPIServer suspends the API server (SIGSTOP): connections stay open without answers, until ResumeAPIServer. It
// returns once the process has stopped, which takes a moment on a busy machine.
func (c *ControlPlane) PauseAPIServer() {
	c.api.signal(syscall.SIGSTOP)
	status := fmt.Sprintf("/proc/%d/status", c.api.cmd.Process.Pid)
	for !c.api.ended() {
		if text, err := os.ReadFile(status); err != nil || bytes.Contains(text, []byte("\nState:\tT")) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// ResumeAPIServer resumes a suspended API server.
func (c *ControlPlane) ResumeAPIServer() { c.api.signal(syscall.SIGCONT) }

// Compact makes etcd discard all revisions except the newest: after its next start the API server answers requests for
// an older one with 410. The etcd must be this control plane's own.
func (c *ControlPlane) Compact(t testing.TB) {
	t.Helper()
	if err := c.etcd.Compact(t.Context()); err != nil {
		t.Fatalf("compact etcd: %v", err)
	}
}

func port(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err) // a loopback address
	}
	return port
}
