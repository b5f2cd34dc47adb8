// Package controlplane runs a real Kubernetes control plane for tests: etcd, kube-apiserver and, where asked, kube-controller-manager and
// kube-scheduler, as `make kube-tools` builds them. There is no kubelet and no kube-proxy: a Pod is an object whose status the test writes.
// With these it is a part of deploy/testcluster/cluster.
//
// Owns: the processes, ports and folders that it starts, until their test, or the test binary, ends.  Reads: .tools.  Never: used outside
// tests and load runs; a port that is not of loopback.
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

// Options is what a control plane has beside etcd and the API server.
type Options struct {
	// Admission turns the admission plugins ServiceAccount and NamespaceLifecycle on. Without them objects may be made in namespaces that
	// are not there, and Pods without a service account.
	Admission bool
	// Controllers are those that kube-controller-manager runs (Controllers: those that most tests need); none: it is not started.
	Controllers []string
	Istio       bool     // Istio's CustomResourceDefinitions are there
	GatewayAPI  bool     // those of the Gateway API (the standard channel) are there
	Scheduler   bool     // kube-scheduler runs
	Flags       []string // more flags of kube-apiserver
	Etcd        string   // the URL of an etcd that is there, such as another control plane's, to keep everything in under Prefix; empty: one is started
	Prefix      string   // with Etcd: of all keys, such as /west
	Tools       string   // the folder .tools; empty: that of the repository which the working directory is in
}

// Controllers make Pods of Deployments, EndpointSlices of Services, default service accounts and kube-root-ca.crt in every namespace, and
// empty namespaces that are deleted.
var Controllers = []string{"deployment-controller", "replicaset-controller", "endpointslice-controller", "namespace-controller",
	"serviceaccount-controller", "garbage-collector-controller", "root-ca-certificate-publisher-controller"}

// patience is how long everything may take that takes a second on a machine that does nothing else.
const patience = 2 * time.Minute

// ready is how long a program may take until it answers.
const ready = patience / 2

// ControlPlane is one Kubernetes control plane.
type ControlPlane struct {
	options  Options
	bin      string // folder of the programs
	dir      string
	etcd     *kvtest.Standalone // nil: somebody else's
	store    string             // address of etcd
	address  string             // of the API server
	api      *process
	managers []*process
}

// Start runs a control plane until the test ends. It fails the test where the programs are not built (make kube-tools).
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

// Run is Start without a test: it keeps its files in dir, and works until Close. Where the error is not nil, the control plane may be nil,
// or has to be closed too. A certificate of the API server that is in dir already (certs/apiserver.crt with its issuer, apiserver.key) is used.
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

// Tools is the folder .tools of the repository; tests run in the folder of their package. An error: the working directory is in no module.
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

// Etcd is the URL of the API server's etcd.
func (c *ControlPlane) Etcd() string { return "http://" + c.store }

// Close ends everything that runs.
func (c *ControlPlane) Close() {
	for _, p := range append(c.managers, c.api) {
		p.kill()
	}
	_ = c.noteUsed() // a right that is not noted is found missing (deploy/testcluster/rights)
	if c.etcd != nil {
		_ = c.etcd.Close() // what it leaves is in a temporary folder
	}
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Config is the administrator's client configuration, without a limit of requests.
func (c *ControlPlane) Config() *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		panic(err) // we wrote it
	}
	config.QPS = -1
	return config
}

// Address is host:port of the API server, which serves TLS.
func (c *ControlPlane) Address() string { return c.address }

// Log is the last lines of all processes.
func (c *ControlPlane) Log() string {
	var b strings.Builder
	for _, p := range append([]*process{c.api}, c.managers...) {
		if p != nil {
			fmt.Fprintf(&b, "%s:\n%s\n", p.name, p.log.tail(4<<10))
		}
	}
	return b.String()
}

// Kubectl runs kubectl as administrator with a standard input, and returns what it printed; it fails the test where kubectl fails.
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
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig(), "--cache-dir", filepath.Join(c.dir, "kubectl")}, args...)...)
	var out, wrong bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &wrong
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, wrong.String())
	}
	return out.String(), nil
}

// KillAPIServer ends the API server at once (SIGKILL); what is stored stays.
func (c *ControlPlane) KillAPIServer() { c.api.kill() }

// StartAPIServer starts it again, at the same address, and waits until it is ready.
func (c *ControlPlane) StartAPIServer(t testing.TB) {
	t.Helper()
	if err := c.startAPIServer(); err != nil {
		t.Fatal(err)
	}
}

// PauseAPIServer stops the API server without ending it (SIGSTOP): connections stay open, and nothing is answered. It goes on with
// ResumeAPIServer. On a busy machine a process goes on for a moment after the signal: PauseAPIServer returns once it has stopped.
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

// ResumeAPIServer lets a paused API server go on.
func (c *ControlPlane) ResumeAPIServer() { c.api.signal(syscall.SIGCONT) }

// Compact lets etcd forget all revisions but the newest: who asks the API server for an older one after its next start is answered 410. The etcd has to be this
// control plane's own.
func (c *ControlPlane) Compact(t testing.TB) {
	t.Helper()
	if err := c.etcd.Compact(t.Context()); err != nil {
		t.Fatalf("compact etcd: %v", err)
	}
}

func port(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err) // of loopback
	}
	return port
}
