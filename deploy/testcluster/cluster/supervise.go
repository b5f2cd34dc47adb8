package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/netns"
	"navarch.io/navarch/deploy/testcluster/node"
)

// ready is the supervisor's report after a successful start.
const ready = "ready"

// supervisor is the first process of a cluster.
type supervisor struct {
	settings
	state   string // a folder in memory, which disappears with the cluster
	log     *slog.Logger
	network *netns.Fabric
	plane   *controlplane.ControlPlane
	client  kubernetes.Interface
	pki     *pki
	// entrance is the node that packets of the outer namespace for a load balancer's address go to.
	entrance *netns.Node
}

// supervise runs the supervisor to its end and returns the exit code. Its standard input contains its settings, and
// ends when the cluster must end.
func supervise() int {
	report, front := os.NewFile(3, "report"), os.NewFile(4, "front")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	s := &supervisor{log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	in := bufio.NewReader(os.Stdin)
	if err := json.NewDecoder(in).Decode(&s.settings); err != nil {
		fmt.Fprint(report, err)
		return 1
	}
	defer s.remove()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	failed := make(chan error, 8)
	if err := s.start(ctx, front, failed); err != nil {
		if s.plane != nil {
			err = fmt.Errorf("%w\n%s", err, s.plane.Log())
		}
		fmt.Fprint(report, err)
		return 1
	}
	fmt.Fprint(report, ready)
	_ = report.Close()
	select {
	case <-ctx.Done():
		return 0
	case err := <-failed:
		s.log.Error("the cluster ends", "err", err)
		return 1
	}
}

// remove deletes the folder, after unmounting its file systems. The process that created the folder may have died.
func (s *supervisor) remove() {
	_ = unix.Unmount(s.state, unix.MNT_DETACH)
	_ = os.RemoveAll(s.Dir)
}

// start starts all parts; later failures are sent to failed.
func (s *supervisor) start(ctx context.Context, front *os.File, failed chan<- error) (err error) {
	if err = s.mounts(); err != nil {
		return err
	}
	if s.network, err = netns.NewFabric(); err != nil {
		return err
	}
	if s.pki, err = newPKI(s.path("pki")); err != nil {
		return err
	}
	if err = s.startControlPlane(); err != nil {
		return err
	}
	if err = s.writeKubeconfigs(); err != nil {
		return err
	}
	go func() { failed <- fmt.Errorf("front of the API server: %w", carry(front, s.plane.Address())) }()
	if err = s.startDNS(ctx, failed); err != nil {
		return err
	}
	objects, err := node.Follow(ctx, s.client)
	if err != nil {
		return err
	}
	if err = s.startVolumes(ctx, objects.Claims); err != nil {
		return err
	}
	nodes := make([]*node.Node, s.Nodes)
	for i := range nodes {
		if nodes[i], err = s.startNode(ctx, i+1, objects, failed); err != nil {
			return err
		}
	}
	if err = s.startBalancer(ctx, objects.Services, failed); err != nil {
		return err
	}
	if err = s.startMetrics(ctx, nodes, failed); err != nil {
		return err
	}
	return s.await(ctx)
}

func (s *supervisor) path(elements ...string) string {
	return filepath.Join(append([]string{s.state}, elements...)...)
}

// mounts creates the private mounts of the namespace: /proc of the process namespace, /run (with the lock of iptables),
// and the state.
func (s *supervisor) mounts() error {
	s.state = filepath.Join(s.Dir, "state")
	return errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""), unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"),
		os.Mkdir(s.state, 0o755), unix.Mount("tmpfs", s.state, "tmpfs", 0, "mode=755"), os.Mkdir(s.path("plane"),
			0o755), os.Mkdir(s.path("pki"), 0o755), os.Mkdir(s.path("volumes"), 0o755))
}

// controllers are those that create Pods and EndpointSlices, bind claims to volumes, clean up, and supervise nodes.
var controllers = append([]string{"statefulset-controller", "daemonset-controller", "job-controller",
	"cronjob-controller", "disruption-controller", "horizontal-pod-autoscaler-controller",
	"node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller", "persistentvolume-binder-controller",
	"persistentvolumeclaim-protection-controller"}, controlplane.Controllers...)

func (s *supervisor) startControlPlane() (err error) {
	if err := s.pki.writeServing(s.path("plane", "certs"), "apiserver", "127.0.0.1", netns.Outer,
		"10.96.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"); err != nil {
		return err
	}
	flags := []string{"--bind-address=0.0.0.0", "--advertise-address=" + netns.Outer, "--endpoint-reconciler-type=lease", "--allow-privileged",
		"--service-cluster-ip-range=" + netns.ServiceCIDR + "," + netns.ServiceCIDR6, "--kubelet-preferred-address-types=InternalIP",
		"--client-ca-file=" + s.pki.file("ca.crt"), "--kubelet-certificate-authority=" + s.pki.file("ca.crt"),
		"--requestheader-client-ca-file=" + s.pki.file("ca.crt"), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-"}
	toNodes, toNodesKey, err := s.pki.writeClient(kubeletClient)
	if err != nil {
		return err
	}
	toServers, toServersKey, err := s.pki.writeClient(frontProxy)
	if err != nil {
		return err
	}
	flags = append(flags, "--kubelet-client-certificate="+toNodes, "--kubelet-client-key="+toNodesKey,
		"--proxy-client-cert-file="+toServers, "--proxy-client-key-file="+toServersKey)
	s.plane, err = controlplane.Run(controlplane.Options{Admission: true, Controllers: controllers,
		Scheduler: true, Istio: s.Istio, GatewayAPI: s.GatewayAPI, Flags: flags, Tools: s.Tools}, s.path("plane"))
	if err != nil {
		return err
	}
	s.client, err = kubernetes.NewForConfig(s.plane.Config())
	return err
}

// writeKubeconfigs writes the administrator's kubeconfig for the machine, and one for the nodes, which use other
// addresses of the API server.
func (s *supervisor) writeKubeconfigs() error {
	_, port, err := net.SplitHostPort(s.plane.Address())
	if err != nil {
		return err
	}
	for path, address := range map[string]string{filepath.Join(s.Dir, "kubeconfig"): s.Address,
		s.path("kubeconfig"): net.JoinHostPort(netns.Outer, port)} {
		config, err := clientcmd.LoadFromFile(s.plane.Kubeconfig())
		if err != nil {
			return err
		}
		for _, c := range config.Clusters {
			c.Server = "https://" + address
		}
		if err := clientcmd.WriteToFile(*config, path); err != nil {
			return err
		}
	}
	return nil
}

// carry forwards connections of a listening socket in the machine's network to the API server.
func carry(front *os.File, to string) error {
	listener, err := net.FileListener(front)
	if err != nil {
		return err
	}
	_ = front.Close()
	for {
		outside, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer outside.Close()
			inside, err := net.Dial("tcp", to)
			if err != nil {
				return // the client's connection ends
			}
			defer inside.Close()
			go func() {
				_, _ = io.Copy(inside, outside)
				_ = inside.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(outside, inside)
		}()
	}
}

// run starts a program of the tools in a network namespace; the cluster ends with it.
func (s *supervisor) run(space *netns.Space, failed chan<- error, name string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.Tools, "bin", name), args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := space.Do(cmd.Start); err != nil {
		return err
	}
	go func() { failed <- fmt.Errorf("%s ended: %w", name, cmd.Wait()) }()
	return nil
}

// again calls f until it succeeds, or the context ends.
func again(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
