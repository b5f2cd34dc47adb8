//go:build kube

package gatewaychart

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kuberest "k8s.io/client-go/rest"

	"navarch.io/navarch/deploy/chart"
	"navarch.io/navarch/deploy/testcluster/balancer"
	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/image"
	"navarch.io/navarch/store/programs"
)

// member is one cluster of a mesh; its network has the same name.
type member struct {
	*cluster.Cluster
	name      string
	balancers balancer.Ranges
	workloads []string
	helm      *chart.Helm
}

// start starts the cluster of a member, with its objects that need no control plane.
func (m *member) start(t *testing.T, table image.Table, root *root) {
	var err error
	o := cluster.Options{Nodes: 1, Images: table, Istio: true, GatewayAPI: true, Balancers: m.balancers}
	if m.Cluster, err = cluster.Start(t.Context(), o); err != nil {
		t.Error(err)
		return
	}
	if m.helm, err = chart.NewHelm(t.TempDir(), m.Kubeconfig()); err != nil {
		t.Error(err)
		return
	}
	m.apply(t, "both")
	const where = "jsonpath={.endpoints[0].addresses[0]} {.ports[0].port}"
	server := strings.Fields(m.must(t, "", "get", "endpointslices", "kubernetes", "-o", where))
	if len(server) != 2 {
		t.Errorf("the API server is at %q", server)
		return
	}
	m.apply(t, "apiserver", "ADDRESS", server[0], "PORT", server[1])
	m.must(t, root.cacerts(t, m.name), "apply", "-f", "-")
}

// join installs the control plane, the gateway of the network and the workloads, and gives the control plane the other
// cluster.
func (m *member) join(t *testing.T, other *member) {
	m.run(t, "install", "navarch", m.helm.Dir, "-n", "istio-system", "-f", "testdata/plane.yaml",
		"--set", "clusterName="+m.name+",network="+m.name, "--wait", "--timeout=150s")
	m.must(t, other.remoteSecret(t), "apply", "-f", "-")
	cluster.Await(t, "admission", func() string {
		out, err := m.Kubectl(t.Context(), "", "run", "probe", "-n", "shop", "--image=app", "--dry-run=server",
			"-o", "jsonpath={.spec.initContainers[*].image}")
		if err != nil || !strings.Contains(out, "navarch-agent") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	m.apply(t, "mesh")
	for _, name := range m.workloads {
		m.apply(t, "workload", "NAME", name, "INJECT", "true")
	}
	m.apply(t, "workload", "NAME", "clear", "INJECT", "false")
	m.run(t, "install", "eastwest", ".", "-n", "edge", "--wait", "--timeout=120s",
		"--set", "networkGateway="+m.name+",autoscaling.enabled=false,labels.istio=eastwestgateway")
	for _, name := range m.workloads {
		m.must(t, "", "rollout", "status", "-n", "shop", "deployment/"+name, "--timeout=120s")
	}
}

// close ends the cluster; of a test that failed it prints what explains that.
func (m *member) close(t *testing.T) {
	if m.Cluster == nil {
		return
	}
	if t.Failed() {
		for _, args := range [][]string{{"get", "pods,services", "-A", "-o", "wide"},
			{"logs", "-n", "istio-system", "-l", "app.kubernetes.io/name=navarchd", "--tail=30"},
			{"logs", "-n", "edge", "-l", "istio=eastwestgateway", "--tail=20"}} {
			out, _ := m.Kubectl(context.Background(), "", args...)
			t.Logf("%s: %s\n%s", m.name, strings.Join(args, " "), out)
		}
	}
	m.Close()
}

// must works like kubectl; a failure fails the test, which goes on.
func (m *member) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err := m.Kubectl(ctx, stdin, args...)
	if err != nil {
		t.Errorf("%s: %v", m.name, err)
	}
	return out
}

// run works like helm; a failure fails the test, which goes on.
func (m *member) run(t *testing.T, args ...string) {
	t.Helper()
	if _, err := m.helm.Run(t.Context(), args...); err != nil {
		t.Errorf("%s: %v", m.name, err)
	}
}

// apply applies a file of testdata, with replacements.
func (m *member) apply(t *testing.T, file string, replace ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file+".yaml"))
	if err != nil {
		t.Error(err)
		return
	}
	m.must(t, strings.NewReplacer(append(replace, "NETWORK", m.name)...).Replace(string(text)), "apply", "-f", "-")
}

// exec runs a program beside the application of a workload.
func (m *member) exec(t *testing.T, workload string, args ...string) (string, error) {
	return m.Kubectl(t.Context(), "", append([]string{"exec", "-n", "shop", "deployment/" + workload, "-c", "app", "--"}, args...)...)
}

// address returns the address of the load balancer of a Service.
func (m *member) address(t *testing.T, namespace, service string) (address string) {
	t.Helper()
	cluster.Await(t, "an address of "+service, func() string {
		address = m.must(t, "", "get", "service", "-n", namespace, service, "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
		if address == "" {
			return "none yet"
		}
		return ""
	})
	return address
}

// scale gives workloads this number of Pods.
func (m *member) scale(t *testing.T, n int, workloads ...string) {
	t.Helper()
	for _, name := range workloads {
		m.must(t, "", "scale", "-n", "shop", "deployment/"+name, fmt.Sprint("--replicas=", n))
	}
}

// remoteSecret returns the Secret by which another cluster's control plane reads this cluster, at the address of a load
// balancer.
func (m *member) remoteSecret(t *testing.T) string {
	t.Helper()
	config := m.Config()
	if err := kuberest.LoadTLSFiles(config); err != nil {
		t.Error(err)
	}
	token := strings.TrimSpace(m.must(t, "", "-n", "istio-system", "create", "token", "istio-reader-service-account"))
	encode := base64.StdEncoding.EncodeToString
	m.apply(t, "reader-token", "TOKEN", encode([]byte(token)), "ROOT", encode(config.CAData))
	server := "https://" + m.address(t, "store", "apiserver")
	out, err := exec.CommandContext(t.Context(), programs.For(t, "navarchctl"), "create-remote-secret",
		"--kubeconfig", m.Kubeconfig(), "--name", m.name, "--server", server).Output()
	if err != nil {
		t.Error(err)
	}
	// The certificate of the API server has the name kubernetes, not this address.
	before, line, is := strings.Cut(string(out), "server: "+server)
	if !is {
		t.Errorf("no server in %s", out)
	}
	indent := before[strings.LastIndexByte(before, '\n')+1:]
	return before + "server: " + server + "\n" + strings.Repeat(" ", len(indent)) + "tls-server-name: kubernetes" + line
}

// root is the root of the mesh, under which each cluster has an issuer of its own. The issuers may not sign revocation
// lists, as those of Istio's tools: proxies with such a list refuse issuers without one.
type root struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newRoot(t *testing.T) *root {
	t.Helper()
	r := &root{}
	r.certificate, r.key = r.issue(t, "root of the mesh")
	return r
}

// issue returns a certificate of an issuer and its key, under the root, or of the root itself.
func (r *root) issue(t *testing.T, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	parent, signer := r.certificate, r.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// cacerts returns the Secret with an issuer of a cluster.
func (r *root) cacerts(t *testing.T, name string) string {
	certificate, key := r.issue(t, "issuer of "+name)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Error(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	own, above := encode("CERTIFICATE", certificate.Raw), encode("CERTIFICATE", r.certificate.Raw)
	return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: cacerts, namespace: istio-system},"+
		" data: {ca-cert.pem: %s, ca-key.pem: %s, cert-chain.pem: %s, root-cert.pem: %s}}",
		own, encode("EC PRIVATE KEY", der), own, above)
}
