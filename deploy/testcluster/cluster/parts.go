package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/deploy/testcluster/netns"
	"navarch.io/navarch/deploy/testcluster/node"
)

// dns is the cluster IP of the cluster's DNS.
const dns = "10.96.0.10"

// corefile configures CoreDNS. Names outside of the cluster are refused, because the cluster has no other network.
const corefile = `.:53 {
    errors
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %s
        pods insecure
    }
}
`

// startDNS runs CoreDNS in the outer namespace, and creates its Service.
func (s *supervisor) startDNS(ctx context.Context, failed chan<- error) error {
	if err := os.WriteFile(s.path("Corefile"), fmt.Appendf(nil, corefile, s.path("kubeconfig")), 0o644); err != nil {
		return err
	}
	if err := s.run(s.network.Outer(), failed, "coredns", "-conf", s.path("Corefile")); err != nil {
		return err
	}
	return s.outerService(ctx, metav1.NamespaceSystem,
		"kube-dns", dns, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
		corev1.ServicePort{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53})
}

// outerService creates a Service for a server in the outer namespace, with the server's own ports.
func (s *supervisor) outerService(ctx context.Context, namespace, name, ip string, ports ...corev1.ServicePort) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
	if err := create(ctx, service, s.client.CoreV1().Services(namespace).Create); err != nil {
		return err
	}
	ready := true
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{netns.Outer}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}}
	for i := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &ports[i].Name, Protocol: &ports[i].Protocol, Port: &ports[i].Port})
	}
	return create(ctx, slice, s.client.DiscoveryV1().EndpointSlices(namespace).Create)
}

// create creates an object by a client's Create. On a busy machine an API server that has just started may give up on a
// request (504 after 34 s) and perform it later, so the request is repeated.
func create[T any](ctx context.Context, object T, by func(context.Context, T, metav1.CreateOptions) (T, error)) error {
	for {
		_, err := by(ctx, object, metav1.CreateOptions{})
		switch {
		case apierrors.IsAlreadyExists(err):
			return nil
		case !apierrors.IsTimeout(err) || ctx.Err() != nil:
			return err
		}
	}
}

// startNode runs a node, and a kube-proxy in its namespace.
func (s *supervisor) startNode(ctx context.Context, index int, objects *node.Objects, failed chan<- error) (*node.Node, error) {
	name := fmt.Sprintf("node-%d", index)
	network, err := s.network.Node(index)
	if err != nil {
		return nil, err
	}
	if index == 1 {
		s.entrance = network
	}
	tls, err := s.pki.serverOf(kubeletClient, network.Address.String(), name)
	if err != nil {
		return nil, err
	}
	n := node.New(node.Config{Name: name, Zone: fmt.Sprintf("zone%d", index), Network: network,
		Client: s.client, Objects: objects, Images: s.Images, Dir: s.path("pods", name), Volumes: s.path("volumes"),
		DNS: dns, TLS: tls, Log: s.log.With("node", name)})
	go func() {
		if err := n.Run(ctx); err != nil && ctx.Err() == nil {
			failed <- err
		}
	}()
	return n, s.run(network.Space, failed, "kube-proxy", "--kubeconfig="+s.path("kubeconfig"),
		"--hostname-override="+name, "--proxy-mode=iptables", "--cluster-cidr="+netns.PodCIDR+","+netns.PodCIDR6,
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s",
		"--conntrack-tcp-timeout-close-wait=0s", "--iptables-min-sync-period=100ms", "--nodeport-addresses=primary",
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249")
}

// await waits until nodes accept Pods, kube-proxies have written their rules, and DNS answers.
func (s *supervisor) await(ctx context.Context) error {
	if err := again(ctx, func() error { return page("http://127.0.0.1:8181/ready") }); err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	return again(ctx, func() error {
		nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(nodes.Items) < s.Nodes {
			return fmt.Errorf("%d nodes of %d", len(nodes.Items), s.Nodes)
		}
		for _, n := range nodes.Items {
			if len(n.Spec.Taints) > 0 {
				return fmt.Errorf("node %s has the taint %s", n.Name, n.Spec.Taints[0].Key)
			}
		}
		return nil
	})
}

func page(url string) error {
	answer, err := http.Get(url) //nolint:noctx // of this namespace
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}
