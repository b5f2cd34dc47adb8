//go:build kube

package gatewaychart

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"navarch.io/navarch/deploy/chart"
	"navarch.io/navarch/deploy/testcluster/cluster"
)

// gatewayName is the release, Deployment and service account of the gateway; canaryName those of its Pods that another
// control plane serves.
const (
	gatewayName = "istio-ingressgateway"
	canaryName  = "gateway-canary"
)

// edge is a cluster with a control plane, an application with a sidecar, and a gateway at the address of a load
// balancer.
type edge struct {
	*cluster.Cluster
	t      *testing.T
	client *kubernetes.Clientset
	helm   *chart.Helm
	load   *load
}

// A gateway's Pods become six and two again, are replaced five times, leave a drained node, and half of them are
// another control plane's with the same roots. All requests from outside succeed, on kept and on new connections. In
// the end policies see the addresses of clients.
func TestKubeGatewayRollouts(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("sidecars run as a user of their own, and clients connect from outside of the nodes: both need root")
	}
	e := newEdge(t)
	began := time.Now()
	all := e.load.counted()
	for _, stage := range []struct {
		name string
		do   func(*edge)
	}{
		{"scaled to six and back", (*edge).scales}, {"rolled out five times", (*edge).rollsOut},
		{"a node is drained", (*edge).drains}, {"half by another control plane", (*edge).sharesWithCanary},
	} {
		t.Run(stage.name, func(t *testing.T) { e.stage(t, stage.do) })
	}
	e.load.end()
	total, wrong := e.load.since(all)
	t.Logf("in %s: %s", time.Since(began).Round(time.Second), total)
	for _, one := range wrong {
		t.Error(one)
	}
	if total.closings == 0 {
		t.Error("no response had Connection: close")
	}
	t.Run("addresses of clients", func(t *testing.T) {
		of := *e
		of.t = t
		of.keepsClients()
	})
}

// stage checks the load during f, and until every Pod that f deleted has gone.
func (e *edge) stage(t *testing.T, f func(*edge)) {
	of := *e
	of.t = t
	was, began := of.load.counted(), time.Now()
	f(&of)
	cluster.AwaitFor(t, 2*time.Minute, "Pods that end", func() string {
		return of.get(`{.items[?(@.metadata.deletionTimestamp)].metadata.name}`, "pods", "-n", "edge")
	})
	now, wrong := of.load.since(was)
	t.Logf("in %s: %s", time.Since(began).Round(time.Second), now)
	for i, one := range wrong {
		if i < 10 {
			t.Error(one)
		}
	}
	if len(wrong) > 0 {
		t.Errorf("%d requests failed", len(wrong))
	}
	for _, kind := range clientKinds {
		if now.kinds[kind.name] == 0 {
			t.Errorf("no request by %s", kind.name)
		}
	}
}

// scales writes the numbers of replicas that an autoscaler writes, by the same subresource.
func (e *edge) scales() {
	deployments := e.client.AppsV1().Deployments("edge")
	for _, n := range []int32{6, 2} {
		of := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: gatewayName, Namespace: "edge"},
			Spec: autoscalingv1.ScaleSpec{Replicas: n}}
		if _, err := deployments.UpdateScale(e.t.Context(), gatewayName, of, metav1.UpdateOptions{}); err != nil {
			e.t.Fatal(err)
		}
		e.rolledOut(gatewayName)
		e.serves(gatewayName, 1000)
	}
}

// serves waits until the Pods of a Deployment have answered n more requests.
func (e *edge) serves(deployment string, n int) {
	e.t.Helper()
	was := e.load.counted().gateways[deployment]
	cluster.AwaitFor(e.t, 2*time.Minute, "requests to "+deployment, func() string {
		if now := e.load.counted().gateways[deployment] - was; now < n {
			return fmt.Sprintf("%d of %d", now, n)
		}
		return ""
	})
}

// rollsOut replaces all Pods five times. The last time they all come to node-2.
func (e *edge) rollsOut() {
	for n := range 5 {
		if n == 4 {
			e.MustKubectl(e.t, "", "cordon", "node-1")
		}
		e.MustKubectl(e.t, "", "rollout", "restart", "-n", "edge", "deployment/"+gatewayName)
		e.rolledOut(gatewayName)
	}
	e.MustKubectl(e.t, "", "uncordon", "node-1")
}

// drains evicts all Pods of node-2, among them all of the gateway. The PodDisruptionBudget refuses to evict the second
// one before there is another.
func (e *edge) drains() {
	if nodes := e.get("{.items[*].spec.nodeName}", "pods", "-n", "edge"); strings.Contains(nodes, "node-1") {
		e.t.Errorf("Pods of the gateway are on %s", nodes)
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), 3*time.Minute)
	defer cancel()
	out, err := e.KubectlCommand(ctx, "drain", "node-2", "--delete-emptydir-data").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "violate the pod's disruption budget") {
		e.t.Errorf("the drain: %v\n%s", err, out)
	}
	e.rolledOut(gatewayName)
	if nodes := e.get("{.items[*].spec.nodeName}", "pods", "-n", "edge"); strings.Contains(nodes, "node-2") {
		e.t.Errorf("Pods of the gateway are on %s", nodes)
	}
	e.MustKubectl(e.t, "", "uncordon", "node-2")
}

// sharesWithCanary adds as many Pods of another control plane to the gateway as it has, and takes them away.
func (e *edge) sharesWithCanary() {
	root := e.root()
	e.install("canary", "istio-system", e.helm.Dir, "-f", "testdata/navarch.yaml", "-f", "testdata/canary.yaml")
	e.install(canaryName, "edge", ".", "-f", "testdata/gateway.yaml", "-f", "testdata/canary-gateway.yaml")
	e.serves(canaryName, 1000)
	e.serves(gatewayName, 500)
	for _, c := range []struct {
		app  string
		want int
	}{{"istiod", 3}, {"istiod-canary", 2}} { // two Pods of the gateway each, and web
		if n := e.proxies(c.app); n != c.want {
			e.t.Errorf("%s serves %d proxies, want %d", c.app, n, c.want)
		}
	}
	if now := e.root(); now != root {
		e.t.Errorf("the root is\n%s\nwas\n%s", now, root)
	}
	if _, err := e.helm.Run(e.t.Context(), "uninstall", canaryName, "-n", "edge"); err != nil {
		e.t.Fatal(err)
	}
}

// proxies returns the number of proxies that the Pods of a control plane serve.
func (e *edge) proxies(app string) (n int) {
	for _, pod := range strings.Fields(e.get("{.items[*].metadata.name}", "pods", "-n", "istio-system", "-l", "navarch.io/deployment="+app)) {
		page := e.MustKubectl(e.t, "", "get", "--raw", "/api/v1/namespaces/istio-system/pods/"+pod+":15014/proxy/metrics")
		_, value, _ := strings.Cut(page, "\nnavarch_proxies ")
		one := 0
		if _, err := fmt.Sscan(value, &one); err != nil {
			e.t.Errorf("%s has no number of proxies: %v", pod, err)
		}
		n += one
	}
	return n
}

func (e *edge) root() string {
	return e.get("{.data.root-cert\\.pem}", "configmap", "-n", "shop", "istio-ca-root-cert")
}

func (e *edge) rolledOut(deployment string) {
	e.t.Helper()
	e.MustKubectl(e.t, "", "rollout", "status", "-n", "edge", "deployment/"+deployment, "--timeout=170s")
}

// get returns a field of an object, by a template of kubectl.
func (e *edge) get(path string, of ...string) string {
	return e.MustKubectl(e.t, "", append([]string{"get", "-o", "jsonpath=" + path}, of...)...)
}

// install installs a chart, and waits until its Pods are ready.
func (e *edge) install(name, namespace, of string, args ...string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 4*time.Minute)
	defer cancel()
	if _, err := e.helm.Run(ctx, append([]string{"install", name, of, "-n", namespace, "--wait", "--timeout=200s"}, args...)...); err != nil {
		pods, _ := e.Kubectl(ctx, "", "get", "pods", "-A", "-o", "wide")
		logs, _ := e.Kubectl(ctx, "", "logs", "-n", namespace, "-l", "app.kubernetes.io/instance="+name, "--tail=30", "--prefix")
		e.t.Fatalf("%v\n%s\n%s", err, pods, logs)
	}
}

// newEdge returns the cluster once requests of all kinds have been answered at the load balancer's address. Control
// plane and application are on node-1.
func newEdge(t *testing.T) *edge {
	t.Helper()
	began := time.Now()
	e := &edge{t: t, Cluster: cluster.ForTest(t, cluster.Options{Nodes: 2, Images: images(t), Istio: true, GatewayAPI: true})}
	var err error
	if e.helm, err = chart.NewHelm(t.TempDir(), e.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if e.client, err = kubernetes.NewForConfig(e.Config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.reportState)
	e.MustKubectl(t, "", "cordon", "node-2")
	e.MustKubectl(t, "", "apply", "-f", "../chart/testdata/etcd.yaml")
	e.MustKubectl(t, "", "create", "namespace", "edge")
	e.MustKubectl(t, "", "rollout", "status", "-n", "store", "deployment/etcd", "--timeout=120s")
	e.install("navarch", "istio-system", e.helm.Dir, "-f", "testdata/navarch.yaml")
	cluster.AwaitFor(t, 2*time.Minute, "admission", func() string {
		out, err := e.Kubectl(t.Context(), "", "run", "probe", "-n", "shop", "--image=app", "--dry-run=server",
			"-o", "jsonpath={.spec.initContainers[*].name}")
		if err != nil || !strings.Contains(out, "istio-proxy") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	e.load = &load{roots: e.certificate(), dial: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		return conn, e.Outer(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
	}}
	e.MustKubectl(t, "", "apply", "-f", "testdata/shop.yaml")
	e.MustKubectl(t, "", "wait", "-n", "shop", "--for=condition=Ready", "pod/web", "--timeout=170s")
	e.MustKubectl(t, "", "uncordon", "node-2")
	e.install(gatewayName, "edge", ".", "-f", "testdata/gateway.yaml")
	e.load.address = e.get("{.status.loadBalancer.ingress[0].ip}", "service", "-n", "edge", gatewayName)
	for _, kind := range clientKinds {
		client := e.load.client(kind)
		cluster.Await(t, kind.name, func() string {
			if _, _, err := request(client, kind, "/first"); err != nil {
				return err.Error()
			}
			return ""
		})
		client.CloseIdleConnections()
	}
	e.load.start(t)
	t.Logf("the gateway answers at %s after %s", e.load.address, time.Since(began).Round(time.Second))
	return e
}

// reportState logs the state of the control plane and the gateway after a failure.
func (e *edge) reportState() {
	if !e.t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"}, {"exec", "-n", "istio-system", "deployment/istiod", "--", "navarchctl", "problems"},
		{"logs", "-n", "istio-system", "-l", "app.kubernetes.io/name=navarchd", "--tail=30", "--prefix"},
		{"logs", "-n", "edge", "-l", "istio=ingressgateway", "--tail=30", "--prefix"},
	} {
		out, err := e.Kubectl(ctx, "", args...)
		e.t.Logf("%s: %v\n%s", args, err, out)
	}
}

// certificate makes the Secret of the Gateway, and returns its root.
func (e *edge) certificate() *x509.CertPool {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		e.t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{shopHost}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		e.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		e.t.Fatal(err)
	}
	shown := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	hidden := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-cert"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: shown, corev1.TLSPrivateKeyKey: hidden}}
	if _, err := e.client.CoreV1().Secrets("edge").Create(e.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(shown)
	return pool
}
