// Package cluster runs a whole Kubernetes cluster as processes on one machine, without a container runtime: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, CoreDNS, and our own nodes (deploy/testcluster/node) with a
// kube-proxy each. The cluster has network, mount and process namespaces of its own, whose first process is this
// package's supervisor. When the supervisor ends for any reason, the kernel ends everything else. Several clusters can
// run at the same time.
//
// Owns: its processes, namespaces and one temporary folder. Reads: .tools. Never: changes processes, links, mounts or
// firewall rules of the machine; runs outside of tests.
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

	"navarch.io/navarch/deploy/testcluster/balancer"
	"navarch.io/navarch/deploy/testcluster/container"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/image"
)

// Options are the settings of a cluster.
type Options struct {
	Nodes      int         // 0: three nodes
	Images     image.Table // images with absolute paths of programs
	Istio      bool        // installs Istio's CustomResourceDefinitions
	GatewayAPI bool        // installs those of the Gateway API (the standard channel)
	// Balancers has the addresses of Services of type LoadBalancer; nil: netns.BalancerCIDR and BalancerCIDR6.
	Balancers balancer.Ranges
}

// patience is the time limit of the start, which takes some ten seconds on an idle machine.
const patience = 6 * time.Minute

// Cluster is a running cluster.
type Cluster struct {
	dir     string
	tools   string
	options Options
	process *exec.Cmd
	hold    *os.File // the supervisor runs until this is closed, as it is when this process ends
	ended   chan struct{}
	log     *os.File // output of all processes; readable after the folder is deleted
}

// settings are the supervisor's input.
type settings struct {
	Options
	Dir, Tools string
	Address    string // address of the API server from outside
}

// argv0 is the name by which Init recognises a supervisor process.
const argv0 = "navarch-testcluster"

// Init runs the supervisor or a container if this process was started as one, and does not return then. A program or
// TestMain that starts clusters must call it first, because the supervisor is a further process of the same program.
func Init() {
	container.Init()
	if len(os.Args) > 0 && os.Args[0] == argv0 {
		os.Exit(supervise())
	}
}

// Start starts a cluster, and returns once its nodes are ready. The error names a missing requirement (see Possible) or
// the failed step; nothing is left running then. ctx applies to the start only.
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
	c := &Cluster{dir: dir, tools: tools, options: o, ended: make(chan struct{})}
	if err := c.start(ctx, o); err != nil {
		log := c.Log()
		c.Close()
		return nil, fmt.Errorf("cluster: %w\n%s", err, log)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	// The socket belongs to our network namespace, whichever process accepts its connections.
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
		_ = c.process.Wait() // the log contains the exit status
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

// isolation returns the attributes of the supervisor's process: network, mount and process namespaces of its own, and
// without root a user namespace.
func isolation() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC, Setpgid: true}
	if os.Geteuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return a
}

// ErrImpossible is wrapped by the error of Possible on a machine that cannot run a cluster of processes.
var ErrImpossible = errors.New("no cluster of processes here")

// Possible returns the folder of the tools. The error wraps ErrImpossible if the machine lacks both root and user
// namespaces, or iptables. Another error reports that the tools are not built.
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

// Close ends all processes of the cluster, and removes its folder.
func (c *Cluster) Close() {
	if c.hold != nil {
		_ = c.hold.Close()
	}
	if c.process != nil {
		select {
		case <-c.ended:
		case <-time.After(20 * time.Second):
			_ = c.process.Process.Kill() // the kernel then kills all processes of its process namespace
			<-c.ended
		}
	}
	_ = os.RemoveAll(c.dir)
}

// Ended returns a channel that is closed once the cluster has ended, for any reason.
func (c *Cluster) Ended() <-chan struct{} { return c.ended }

// PID returns the process ID of the supervisor.
func (c *Cluster) PID() int { return c.process.Process.Pid }

// Dir returns the folder of the cluster.
func (c *Cluster) Dir() string { return c.dir }

// Kubeconfig returns the path of the administrator's kubeconfig, for this machine.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Config returns the administrator's client configuration, without a rate limit.
func (c *Cluster) Config() *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		panic(err) // written by the supervisor
	}
	config.QPS = -1
	return config
}

// Log returns the last lines of the output of the supervisor and its processes.
func (c *Cluster) Log() string {
	if c.log == nil {
		return ""
	}
	info, err := c.log.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(info.Size(), 16<<10))
	n, _ := c.log.ReadAt(text, info.Size()-int64(len(text))) // as many bytes as there are
	return string(text[:n])
}

// Kubectl runs kubectl as administrator, and returns its standard output; the error contains its standard error.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := c.KubectlCommand(ctx, args...)
	var out, wrong bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &wrong
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, wrong.String())
	}
	return out.String(), nil
}

// KubectlCommand returns the command kubectl as administrator, not started yet.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(c.tools, "bin", "kubectl"),
		append([]string{"--kubeconfig", c.Kubeconfig(), "--cache-dir", filepath.Join(c.dir, "kubectl")}, args...)...)
}
