package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// process is one running program.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    *output
	exited chan struct{}
}

// run starts one of the control plane's programs. The program ends with this process.
func (c *ControlPlane) run(name string, args ...string) (*process, error) {
	p := &process{name: name, log: &output{}, exited: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(c.bin, name), args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starts() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("no %s: run `make kube-tools` (%w)", name, err)
		}
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has the result
		close(p.exited)
	}()
	return p, nil
}

// starts is one thread for all starts, which never ends: the kernel ends a child process when its parent thread dies.
var starts = sync.OnceValue(func() chan<- func() {
	all := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range all {
			start()
		}
	}()
	return all
})

// kill kills a process, and waits for its end.
func (p *process) kill() {
	if p != nil {
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// output stores the output of a process.
type output struct {
	mu   sync.Mutex
	text []byte
}

// keep is the limit of the stored output in bytes.
const keep = 1 << 20

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text = append(o.text, b...); len(o.text) > 2*keep {
		o.text = append([]byte(nil), o.text[len(o.text)-keep:]...)
	}
	return len(b), nil
}

// tail returns the last n bytes.
func (o *output) tail(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text[max(0, len(o.text)-n):])
}

// startAPIServer runs kube-apiserver and waits until it is ready.
func (c *ControlPlane) startAPIServer() (err error) {
	args := []string{"--etcd-servers=http://" + c.store, "--secure-port=" + port(c.address), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--cert-dir=" + filepath.Join(c.dir, "certs"), "--service-account-key-file=" + filepath.Join(c.dir, "sa.pub"),
		"--service-account-signing-key-file=" + filepath.Join(c.dir, "sa.key"), "--service-account-issuer=https://kubernetes.default.svc",
		"--token-auth-file=" + filepath.Join(c.dir, "tokens.csv"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
		"--enable-aggregator-routing", "--endpoint-reconciler-type=none"}
	if c.options.Prefix != "" {
		args = append(args, "--etcd-prefix="+c.options.Prefix)
	}
	if !c.options.Admission {
		args = append(args, "--disable-admission-plugins=ServiceAccount,NamespaceLifecycle")
	}
	audit, err := c.auditFlags()
	if err != nil {
		return err
	}
	args = append(args, audit...)
	for range tries {
		if c.api, err = c.run("kube-apiserver", append(args, c.options.Flags...)...); err != nil {
			return err
		}
		if err = c.await("https://" + c.address + "/readyz"); err == nil || c.api.ended() {
			return err
		}
		c.api.kill()
	}
	return err
}

// tries is the number of starts of kube-apiserver. Of sixty starts beside other tests, three did not answer /readyz
// within two minutes, for an unknown reason.
const tries = 3

// startManager runs kube-controller-manager and waits until it is healthy.
func (c *ControlPlane) startManager(address string) error {
	p, err := c.run("kube-controller-manager", "--kubeconfig="+c.Kubeconfig(),
		"--authentication-kubeconfig="+c.Kubeconfig(), "--authorization-kubeconfig="+c.Kubeconfig(),
		"--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port="+port(address), "--cert-dir="+filepath.Join(c.dir, "manager"),
		"--service-account-private-key-file="+filepath.Join(c.dir, "sa.key"), "--root-ca-file="+filepath.Join(c.dir, "certs", "apiserver.crt"),
		"--horizontal-pod-autoscaler-sync-period=1s", "--node-monitor-period=1s", "--controllers="+strings.Join(c.options.Controllers, ","))
	if err != nil {
		return err
	}
	c.managers = append(c.managers, p)
	// its certificate is self-signed
	return c.awaitOf(p, &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "https://"+address+"/healthz")
}

// startScheduler runs kube-scheduler and waits until it is healthy.
func (c *ControlPlane) startScheduler(address string) error {
	p, err := c.run("kube-scheduler", "--kubeconfig="+c.Kubeconfig(),
		"--authentication-kubeconfig="+c.Kubeconfig(), "--authorization-kubeconfig="+c.Kubeconfig(),
		"--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port="+port(address), "--cert-dir="+filepath.Join(c.dir, "scheduler"))
	if err != nil {
		return err
	}
	c.managers = append(c.managers, p)
	// its certificate is self-signed
	return c.awaitOf(p, &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "https://"+address+"/healthz")
}

// await waits until the API server answers a page with 200, and writes the administrator's kubeconfig.
func (c *ControlPlane) await(url string) error {
	certificate := filepath.Join(c.dir, "certs", "apiserver.crt")
	until := time.Now().Add(ready)
	for {
		if _, err := os.Stat(certificate); err == nil {
			break
		} else if time.Now().After(until) || c.api.ended() {
			return fmt.Errorf("kube-apiserver wrote no certificate: %w\n%s", err, c.api.log.tail(4<<10))
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := c.writeKubeconfig(); err != nil {
		return err
	}
	return c.awaitOf(c.api, c.Config(), url)
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (c *ControlPlane) awaitOf(p *process, config *rest.Config, url string) error {
	client, err := impatient(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for until := time.Now().Add(ready); ; time.Sleep(20 * time.Millisecond) {
		err := get(context.Background(), client, url)
		if err == nil {
			return nil
		}
		if time.Now().After(until) || p.ended() {
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, err, p.log.tail(4<<10))
		}
	}
}

// impatient returns a client for requests that may be too early: the server answers some of these after a minute, or
// never.
func impatient(config *rest.Config) (*http.Client, error) {
	client, err := rest.HTTPClientFor(config)
	if err == nil {
		client.Timeout = 5 * time.Second // per request
	}
	return client, err
}

func get(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.500s", url, answer.Status, body)
	}
	return err
}
