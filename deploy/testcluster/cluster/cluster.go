// Package cluster runs a whole Kubernetes cluster as processes on one machine, without a container runtime: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, CoreDNS, and nodes of our own (deploy/testcluster/node) with a kube-proxy each. All of it is in
// network, mount and process namespaces of its own, whose first process is this package's supervisor: when that ends, however it ends, the
// kernel ends everything else. Several clusters run at the same time.
//
// Owns: its processes, namespaces and one temporary folder.  Reads: .tools.  Never: processes, links, mounts or firewall rules of the
// machine; used outside tests.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"navarch.io/navarch/deploy/testcluster/container"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/image"
)

// Options is what a cluster has.
type Options struct {
	Nodes      int         // 0: three
	Images     image.Table // with absolute paths
	Istio      bool        // Istio's CustomResourceDefinitions are there
	GatewayAPI bool        // those of the Gateway API (the standard channel) are there
}

// patience is how long the start may take; on a machine that does nothing else it takes some ten seconds.
const patience = 3 * time.Minute

// Cluster is one that runs.
type Cluster struct {
	dir     string
	tools   string
	process *exec.Cmd
	hold    *os.File // the supervisor works until this is closed, as it is when this process ends
	ended   chan struct{}
	log     *os.File // what everything prints; it can be read after the folder is gone
}

// settings are what the supervisor is started with.
type settings struct {
	Options
	Dir, Tools string
	Address    string // where the API server is reached from outside
}

// argv0 is the name by which Init knows that this process is to become a supervisor.
const argv0 = "navarch-testcluster"

// Init becomes a supervisor, or a container, where this process was started for that, and never returns then. A program or a TestMain that
// starts clusters calls it before anything else: they are further processes of it.
func Init() {
	container.Init()
	if len(os.Args) > 0 && os.Args[0] == argv0 {
		os.Exit(supervise())
	}
}

// Start runs a cluster, and returns once its nodes are ready. The error says what is missing (see Possible) or what went wrong; then nothing
// is left. The context is for the start alone.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	tools, err := Possible()
	if err != nil {
		return nil, err
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	dir, err := os.MkdirTemp("", "testcluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, tools: tools, ended: make(chan struct{})}
	if err := c.start(ctx, o); err != nil {
		log := c.Log()
		c.Close()
		return nil, fmt.Errorf("cluster: %w\n%s", err, log)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	// The socket is of our network namespace, whoever accepts its connections.
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer listener.Close()
	front, err := listener.File()
	if err != nil {
		return err
	}
	defer front.Close()
	in, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	c.hold = hold
	report, done, err := os.Pipe()
	if err != nil {
		return err
	}
	defer report.Close()
	if c.log, err = os.Create(filepath.Join(c.dir, "log")); err != nil {
		return err
	}
	c.process = &exec.Cmd{Path: "/proc/self/exe", Args: []string{argv0}, Env: os.Environ(), Stdin: in, Stdout: c.log, Stderr: c.log,
		ExtraFiles: []*os.File{done, front}, SysProcAttr: isolation()}
	if err := c.process.Start(); err != nil {
		c.process = nil
		return errors.Join(err, done.Close())
	}
	_ = done.Close()
	go func() {
		_ = c.process.Wait() // how it ended is in the log
		close(c.ended)
	}()
	if err := json.NewEncoder(hold).Encode(settings{o, c.dir, c.tools, listener.Addr().String()}); err != nil {
		return err
	}
	_ = report.SetReadDeadline(time.Now().Add(patience))
	defer context.AfterFunc(ctx, func() { _ = report.SetReadDeadline(time.Now()) })()
	answer, err := io.ReadAll(report)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	if text := string(answer); text != ready {
		return errors.New("not ready: " + text)
	}
	return nil
}

// isolation is what a supervisor starts in: network, mounts and processes of its own; without root, in a user namespace.
func isolation() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC, Setpgid: true}
	if os.Geteuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return a
}

// ErrImpossible is in the error of Possible where this machine does not allow a cluster of processes.
var ErrImpossible = errors.New("no cluster of processes here")

// Possible is the folder of the tools. The error wraps ErrImpossible where neither root nor user namespaces, or no iptables, are there; another
// one says that the tools are not built.
func Possible() (tools string, err error) {
	for _, program := range []string{"iptables", "ip6tables", "iptables-restore"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%w: %w", ErrImpossible, err)
		}
	}
	probe := exec.Command("iptables", "-w", "-t", "nat", "-L", "-n")
	probe.SysProcAttr = isolation()
	if out, err := probe.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: it needs root or user namespaces, and iptables in them: %w %s", ErrImpossible, err, out)
	}
	if tools, err = controlplane.Tools(); err != nil {
		return "", err
	}
	for _, program := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl", "coredns"} {
		if _, err := os.Stat(filepath.Join(tools, "bin", program)); err != nil {
			return "", fmt.Errorf("run `make kube-tools`: %w", err)
		}
	}
	return tools, nil
}

// Close ends everything, and removes the folder.
func (c *Cluster) Close() {
	if c.hold != nil {
		_ = c.hold.Close()
	}
	if c.process != nil {
		select {
		case <-c.ended:
		case <-time.After(20 * time.Second):
			_ = c.process.Process.Kill() // and with it everything of its process namespace
			<-c.ended
		}
	}
	_ = os.RemoveAll(c.dir)
}

// Ended is closed once the cluster has ended, also where it ended by itself.
func (c *Cluster) Ended() <-chan struct{} { return c.ended }

// PID is the supervisor.
func (c *Cluster) PID() int { return c.process.Process.Pid }

// Dir is the folder of the cluster.
func (c *Cluster) Dir() string { return c.dir }

// Kubeconfig is the path of the administrator's kubeconfig, for this machine.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Config is the administrator's client configuration, without a limit of requests.
func (c *Cluster) Config() *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		panic(err) // the supervisor wrote it
	}
	config.QPS = -1
	return config
}

// Log is the last lines of the supervisor and of what it runs.
func (c *Cluster) Log() string {
	if c.log == nil {
		return ""
	}
	info, err := c.log.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(info.Size(), 16<<10))
	n, _ := c.log.ReadAt(text, info.Size()-int64(len(text))) // as much as there is
	return string(text[:n])
}

// Kubectl runs kubectl as administrator, and returns what it printed; the error has what it complained of.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.tools, "bin", "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig(), "--cache-dir", filepath.Join(c.dir, "kubectl")}, args...)...)
	var out, wrong bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &wrong
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, wrong.String())
	}
	return out.String(), nil
}
