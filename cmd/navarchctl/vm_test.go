package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/ca/attest"
)

const vmGroupYAML = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata:
  name: vms
  namespace: shop
spec:
  metadata:
    labels: {app: web, version: v2}
    annotations: {proxy.istio.io/config: "{concurrency: 3, proxyMetadata: {ISTIO_META_X: it's}}"}
  template: {serviceAccount: vm, ports: {http: 8080, admin: 9000}, network: n1}
  probe: {periodSeconds: 5, tcpSocket: {port: 8080}}
`

func configureVM(args ...string) error {
	cmd := root()
	cmd.SetArgs(append([]string{"vm", "configure"}, args...))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return cmd.Execute()
}

func readVM(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkVM compares what does not depend on where it came from.
func checkVM(t *testing.T, dir, host string) {
	t.Helper()
	for name, mode := range map[string]os.FileMode{"": 0o700, "istio-token": 0o600, "root-cert.pem": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q is %v, %v, want %v", name, info.Mode(), err, mode)
		}
	}
	env := "\n" + readVM(t, dir, "cluster.env")
	for _, row := range []string{"CANONICAL_SERVICE=web", "CANONICAL_REVISION=v2", "ISTIO_INBOUND_PORTS=9000,8080", "ISTIO_LOCAL_EXCLUDE_PORTS=22,15090,15021,15020",
		"ISTIO_META_AUTO_REGISTER_GROUP=vms", "ISTIO_META_DNS_CAPTURE=true", "ISTIO_META_NETWORK=n1", "ISTIO_META_WORKLOAD_NAME=vms", `ISTIO_META_X='it'"'"'s'`, "ISTIO_META_CLUSTER_ID=Kubernetes",
		"ISTIO_NAMESPACE=shop", "ISTIO_SERVICE=vms.shop", "ISTIO_SERVICE_CIDR='*'", "ISTIO_SVC_IP=10.0.0.1", "POD_NAMESPACE=shop", "SERVICE_ACCOUNT=vm",
		`ISTIO_META_POD_PORTS='[{"name":"admin","containerPort":9000},{"name":"http","containerPort":8080}]'`} {
		if !strings.Contains(env, "\n"+row+"\n") {
			t.Errorf("cluster.env lacks %s in\n%s", row, env)
		}
	}
	mesh := readVM(t, dir, "mesh.yaml")
	for _, row := range []string{"  concurrency: 3\n", "  discoveryAddress: " + host + ":15012\n", "  readinessProbe:\n", "    ISTIO_META_AUTO_REGISTER_GROUP: vms\n"} {
		if !strings.Contains(mesh, row) {
			t.Errorf("mesh.yaml lacks %q in\n%s", row, mesh)
		}
	}
}

// Without a cluster, root and token come from navarchd's data directory. Existing files are replaced, and get their
// modes.
func TestConfigureVMFromFiles(t *testing.T) {
	data, dir := t.TempDir(), filepath.Join(t.TempDir(), "vm")
	if _, err := attest.Local(data); err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(data, "group.yaml")
	for path, text := range map[string]string{filepath.Join(data, "root-cert.pem"): "ROOT", group: vmGroupYAML} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-f", group, "--data-dir", data, "--autoregister", "--internalIP", "10.0.0.1", "--ingressIP", "192.0.2.7", "--output", dir}
	for range 2 {
		if err := configureVM(args...); err != nil {
			t.Fatal(err)
		}
		checkVM(t, dir, "istiod.istio-system.svc")
		if hosts, roots := readVM(t, dir, "hosts"), readVM(t, dir, "root-cert.pem"); hosts != "192.0.2.7 istiod.istio-system.svc\n" || roots != "ROOT" {
			t.Errorf("hosts %q, roots %q", hosts, roots)
		}
		if token := readVM(t, dir, "istio-token"); strings.Count(token, ".") != 2 {
			t.Errorf("token %q", token)
		}
		if err := os.Chmod(filepath.Join(dir, "istio-token"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"--output x", "--file"}, {"-f " + group + " --data-dir " + data, "--output"}, {"-f " + group + " --output x", "one of --kubeconfig and --data-dir"},
		{"-f " + group + " --data-dir " + data + " --output x --internalIP 10.0.0.1 --externalIP 10.0.0.2", "one of them"},
		{"-f " + group + " --data-dir " + data + " --output x --ingressIP nowhere", "--ingressIP"},
		{"-f " + filepath.Join(data, "root-cert.pem") + " --data-dir " + data + " --output x", "WorkloadGroup"},
	} {
		if err := configureVM(strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
}

// In Kubernetes group, mesh, root, token and address come from the API server; a revision determines the mesh and the
// control plane's name.
func TestConfigureVMFromKubernetes(t *testing.T) {
	asked := ""
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.Method + " " + r.URL.Path {
		case "GET /apis/networking.istio.io/v1beta1/namespaces/shop/workloadgroups/vms":
			fmt.Fprint(w, vmGroupYAML) // YAML for JSON: it is read as either
		case "GET /api/v1/namespaces/istio-system/configmaps/istio-canary":
			fmt.Fprint(w, `{"data": {"mesh": "trustDomain: example.org\ndefaultConfig: {meshId: m}\n"}}`)
		case "GET /api/v1/namespaces/shop/configmaps/istio-ca-root-cert":
			fmt.Fprint(w, `{"data": {"root-cert.pem": "ROOT"}}`)
		case "POST /api/v1/namespaces/shop/serviceaccounts/vm/token":
			asked = string(body)
			fmt.Fprint(w, `{"status": {"token": "a.b.c"}}`)
		case "GET /api/v1/namespaces/edge/services/gate":
			fmt.Fprint(w, `{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}]}}}`)
		default:
			http.Error(w, r.URL.Path, http.StatusNotFound)
		}
	}))
	defer api.Close()
	kubeconfig, dir := filepath.Join(t.TempDir(), "config"), filepath.Join(t.TempDir(), "vm")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + api.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--kubeconfig", kubeconfig, "--name", "vms", "--namespace", "shop", "--autoregister", "--internalIP", "10.0.0.1", "--ingressService", "gate.edge",
		"--revision", "canary", "--tokenDuration", "600", "--output", dir}
	if err := configureVM(args...); err != nil {
		t.Fatal(err)
	}
	checkVM(t, dir, "istiod-canary.istio-system.svc")
	if hosts, token := readVM(t, dir, "hosts"), readVM(t, dir, "istio-token"); hosts != "192.0.2.8 istiod-canary.istio-system.svc\n" || token != "a.b.c" {
		t.Errorf("hosts %q, token %q", hosts, token)
	}
	env := readVM(t, dir, "cluster.env")
	if !strings.Contains(env, "CA_ADDR=istiod-canary.istio-system.svc:15012\n") || !strings.Contains(env, "TRUST_DOMAIN=example.org\n") || !strings.Contains(env, "ISTIO_META_MESH_ID=m\n") {
		t.Errorf("cluster.env:\n%s", env)
	}
	if !strings.Contains(asked, `"audiences":["istio-ca"]`) || !strings.Contains(asked, `"expirationSeconds":600`) {
		t.Errorf("the token was asked for by %s", asked)
	}
	if err := configureVM(append(args, "--name", "others")...); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a group that is not there: %v", err)
	}
}
