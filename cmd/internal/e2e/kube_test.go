//go:build kube

package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/store/kv/kvtest"
)

// shopObjects returns the demo's objects as a user applies them: without the EndpointSlices, which controllers create,
// and Pods without owners that do not exist. pods are the namespaces and names of the Pods.
func shopObjects(t *testing.T) (objects string, pods [][2]string) {
	t.Helper()
	files, err := filepath.Glob("../../../deploy/demo/shop/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no objects of the shop: %v", err)
	}
	var all bytes.Buffer
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range bytes.SplitSeq(raw, []byte("\n---\n")) {
			var o map[string]any
			if err := yaml.Unmarshal(doc, &o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if o == nil || o["kind"] == "EndpointSlice" {
				continue
			}
			if meta := o["metadata"].(map[string]any); o["kind"] == "Pod" {
				delete(meta, "ownerReferences")
				pods = append(pods, [2]string{meta["namespace"].(string), meta["name"].(string)})
			}
			line, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(append(line, "\n---\n"...))
		}
	}
	return all.String(), pods
}

// navarchd serves a cluster by its kubeconfig: the shop as kubectl applies it, with EndpointSlices from the controllers
// and Pods whose status the test writes. An edit arrives. Of two processes only the leader watches. When it is killed
// the other one replaces it, and changes of the meantime arrive. A Service in a file beside the cluster is served, and
// one with the name of a cluster's Service is reported as a problem.
func TestKubeShop(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{Istio: true, Controllers: []string{"endpointslice-controller"}})
	objects, pods := shopObjects(t)
	c.Kubectl(t, objects, "apply", "-f", "-")
	for i, pod := range pods {
		c.Kubectl(t, "", "-n", pod[0], "patch", "pod", pod[1], "--subresource=status", "-p",
			fmt.Sprintf(`{"status": {"phase": "Running", "podIP": "10.244.0.%d", "podIPs": [{"ip": "10.244.0.%[1]d"}], "conditions": [{"type": "Ready", "status": "True"}]}}`, i+10))
	}
	t.Setenv("PILOT_ENABLE_STATUS", "true")
	before := watchers(t, c)
	dir := t.TempDir()
	write(t, dir, "services.yaml", `
apiVersion: v1
kind: Service
metadata: {name: ratings, namespace: backend}
spec: {clusterIP: 10.96.99.1, ports: [{name: http, port: 9999}]}
---
apiVersion: v1
kind: Service
metadata: {name: old, namespace: shop}
spec: {clusterIP: 10.96.99.2, ports: [{name: http, port: 8000}]}
`)
	args := []string{"--roles=ingest,xds", "--kubeconfig", c.Kubeconfig(), "--config-dir", dir, "--etcd-endpoints=" + kvtest.Start(t).Endpoint(), "--leader-lease=2s", "--replica-lease=2s"}
	first := startNamed(t, "first", args...)
	eventually(t, patience, first.leading)
	second := startNamed(t, "second", args...)
	has := func(d *daemon, name string, contains ...string) func() error {
		return func() error {
			got, err := everything(t.Context(), d.grpc, node("shop", "web", "10.244.0.250"))
			if err != nil {
				return err
			}
			body, there := got[name]
			for _, text := range contains {
				if !strings.Contains(string(body), text) {
					return fmt.Errorf("%s (there: %v) has no %q", name, there, text)
				}
			}
			return nil
		}
	}
	const ratings = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment outbound|8000||ratings.backend.svc.cluster.local"
	addresses := func(d *daemon, want int) func() error {
		return func() error {
			got, err := everything(t.Context(), d.grpc, node("shop", "web", "10.244.0.250"))
			if err != nil {
				return err
			}
			var cla endpointv3.ClusterLoadAssignment
			if err := proto.Unmarshal(got[ratings], &cla); err != nil {
				return err
			}
			n := 0
			for _, l := range cla.Endpoints {
				for _, e := range l.LbEndpoints {
					if a := e.GetEndpoint().GetAddress().GetSocketAddress(); strings.HasPrefix(a.GetAddress(), "10.244.0.") && a.GetPortValue() == 8080 {
						n++
					}
				}
			}
			if n != want {
				return fmt.Errorf("ratings has %d endpoints, want %d: %v", n, want, &cla)
			}
			return nil
		}
	}
	for _, d := range []*daemon{first, second} {
		eventually(t, patience, addresses(d, 2))
	}
	eventually(t, patience, has(second, "type.googleapis.com/envoy.config.cluster.v3.Cluster outbound|8000||old.shop.svc.cluster.local", "old"))
	eventually(t, patience, func() error {
		page, err := get(first.http, "/debug/problems")
		if err == nil && !strings.Contains(page, "an object of this name in Kubernetes takes precedence") {
			err = fmt.Errorf("the loser is not named: %s", page)
		}
		return err
	})
	if n := watchers(t, c) - before; n != 1 {
		t.Errorf("%d processes watch Pods, want the leader alone", n)
	}
	edited := statusOfRoutes(t, c)
	first.kill()
	ratingsPod := ""
	for _, pod := range pods {
		if strings.HasPrefix(pod[1], "ratings-") {
			ratingsPod = pod[1]
		}
	}
	c.Kubectl(t, "", "-n", "backend", "delete", "pod", ratingsPod, "--grace-period=0", "--force")
	eventually(t, patience, addresses(second, 1))
	eventually(t, patience, second.leading)
	if n := watchers(t, c) - before; n != 1 {
		t.Errorf("%d processes watch Pods after a takeover, want one", n)
	}
	edited()
}

// statusOfRoutes waits until the VirtualServices are delivered. The returned function is for another leader: it edits
// one of them, waits for its status, and checks that the other's status was not written again.
func statusOfRoutes(t *testing.T, c *controlplane.ControlPlane) (edited func()) {
	t.Helper()
	catalog := func() string {
		return c.Kubectl(t, "", "-n", "shop", "get", "virtualservice", "catalog", "-o", "jsonpath={.metadata.resourceVersion}")
	}
	edit := func(http string) {
		c.Kubectl(t, "", "-n", "backend", "patch", "virtualservice", "ratings", "--type=merge", "-p", `{"spec": {"http": [`+http+`]}}`)
	}
	eventually(t, patience, delivered(t, c, "shop", "catalog", "True 1"))
	eventually(t, patience, delivered(t, c, "backend", "ratings", "True 1"))
	before := catalog()
	return func() {
		t.Helper()
		edit(`{"directResponse": {"status": 999}}`)
		eventually(t, patience, delivered(t, c, "backend", "ratings", "False 2"))
		edit(`{"route": [{"destination": {"host": "ratings"}}]}`)
		eventually(t, patience, delivered(t, c, "backend", "ratings", "True 3"))
		if now := catalog(); now != before {
			t.Errorf("the new leader has written what was there: resourceVersion %s, before %s", now, before)
		}
	}
}

// delivered compares the status of a VirtualService and its generation with the expected ones.
func delivered(t *testing.T, c *controlplane.ControlPlane, namespace, name, want string) func() error {
	const condition = `.status.conditions[?(@.type=="navarch.io/Delivered")]`
	return func() error {
		got := c.Kubectl(t, "", "-n", namespace, "get", "virtualservice", name, "-o", "jsonpath={"+condition+".status} {"+condition+".observedGeneration}")
		if got != want {
			return fmt.Errorf("VirtualService %s/%s: Delivered is %s, want %s: %s", namespace, name, got, want,
				c.Kubectl(t, "", "-n", namespace, "get", "virtualservice", name, "-o", "jsonpath={.status}"))
		}
		return nil
	}
}

// A Secret is stored, sealed, while a Gateway refers to it; a Secret without a reference is never stored. Objects that
// kubectl deletes are removed at once, all of a namespace and half of a kind. When a definition of a kind is deleted,
// the API server deletes its objects. Their removal is held, even after the definition is back, until an operator with
// the right by the kubeconfig accepts it.
func TestKubeSecretsAndHeldRemoval(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{Istio: true})
	c.Kubectl(t, "", "create", "namespace", "shop")
	c.Kubectl(t, services, "apply", "-f", "-")
	var all strings.Builder
	for i := range 6 {
		fmt.Fprintf(&all, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e%d, namespace: shop}\n"+
			"spec: {hosts: [e%[1]d.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}\n---\n", i)
	}
	c.Kubectl(t, all.String(), "apply", "-f", "-")
	first, second := newSite(t, 1), newSite(t, 2)
	gateway := "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: apps}\n" +
		"spec: {selector: {app: gw}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: site}}]}\n"
	c.Kubectl(t, first.secret("")+"---\n"+strings.ReplaceAll(first.secret(""), "name: site", "name: unused")+"---\n"+gateway, "apply", "-f", "-")
	c.RunPod(t, "shop", "gw-1", "", "10.244.0.9", map[string]string{"app": "gw"})
	data := t.TempDir()
	d := start(t, "--kubeconfig", c.Kubeconfig(), "--data-dir", data, "--write-root-certs=false")
	const entry = "type.googleapis.com/envoy.config.cluster.v3.Cluster outbound|80||e5.example.com"
	eventually(t, patience, has(t, d, webCluster, entry))
	d.said(t, 1, "objects=", "Secret shop/site")
	c.Kubectl(t, second.secret(""), "apply", "-f", "-")
	d.said(t, 2, "objects=", "Secret shop/site")
	c.Kubectl(t, "", "-n", "apps", "delete", "gateways.networking.istio.io", "g")
	d.said(t, 3, "objects=", "Secret shop/site")
	if lines := d.lines("Secret shop/unused"); len(lines) > 0 {
		t.Errorf("a Secret was read that nothing refers to: %v", lines)
	}
	inboundOfServiceEntry(t, c, d)
	kubectlIsObeyed(t, c, d)
	c.Kubectl(t, "", "delete", "crd", "serviceentries.networking.istio.io")
	ctl := removalsOf(t, d)
	id := heldID(t, ctl, "ServiceEntry 6", "ServiceEntry shop/e5", "lost the definition", "when it is accepted")
	d.hasProblem(t, "navarchctl removals accept "+id)
	if err := has(t, d, webCluster, entry)(); err != nil {
		t.Errorf("what is held: %v", err)
	}
	c.ApplyCRDs(t, "istio")
	// The log says that Kubernetes can be read again only if a list failed meanwhile, which depends on when the API
	// server ended the watch.
	if err := has(t, d, webCluster, entry)(); err != nil {
		t.Errorf("the definition is back, and the objects are not: %v", err)
	}
	may, mayNot := accepts(t, c, "may", true), accepts(t, c, "may-not", false)
	for what, args := range map[string][]string{"want a token": nil, `serviceaccount:shop:may-not" may not accept removals.navarch.io`: {"--kubeconfig", mayNot}} {
		if out, err := ctl(append([]string{"accept", id}, args...)...); err == nil || !strings.Contains(out, what) {
			t.Errorf("%s: %v %s", what, err, out)
		}
	}
	if err := has(t, d, webCluster, entry)(); err != nil {
		t.Errorf("what nobody accepted who may: %v", err)
	}
	if out, err := ctl("accept", id, "--kubeconfig", may); err != nil || !strings.Contains(out, "6 objects are removed (ServiceEntry 6)") {
		t.Errorf("%v: %s", err, out)
	}
	d.said(t, 1, "a held removal was accepted", "removal="+id, "system:serviceaccount:shop:may ")
	eventually(t, patience, func() error { return cmp.Or(lacks(t, d, entry)(), has(t, d, webCluster)()) })
	if maps := c.Kubectl(t, "", "-n", "shop", "get", "configmaps", "-o", "name"); strings.Contains(maps, "istio-ca-root-cert") {
		t.Errorf("--write-root-certs=false: %s", maps)
	}
}

// kubectlIsObeyed deletes all VirtualServices of one namespace, and then half of the rest. Proxies lose each of them,
// and no removal is held.
func kubectlIsObeyed(t *testing.T, c *controlplane.ControlPlane, d *daemon) {
	t.Helper()
	var all strings.Builder
	for _, namespace := range []string{"shop", "apps"} {
		for i := range 10 {
			fmt.Fprintf(&all, "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v%d, namespace: %s}\n"+
				"spec: {hosts: [v%[1]d.%[2]s.example.com], http: [{route: [{destination: {host: web.shop.svc.cluster.local}}]}]}\n---\n", i, namespace)
		}
	}
	c.Kubectl(t, all.String(), "apply", "-f", "-")
	stored := func(want int) func() error {
		return func() error {
			if n := d.records(t, "VirtualService"); n != want {
				return fmt.Errorf("%d VirtualServices are stored, want %d", n, want)
			}
			return nil
		}
	}
	eventually(t, patience, stored(20))
	began := time.Now()
	c.Kubectl(t, "", "-n", "apps", "delete", "virtualservices", "--all")
	eventually(t, patience, stored(10))
	c.Kubectl(t, "", append([]string{"-n", "shop", "delete", "virtualservices"}, "v0", "v1", "v2", "v3", "v4", "v5")...)
	eventually(t, patience, stored(4))
	t.Logf("two deletions took %v", time.Since(began))
	if out, err := removalsOf(t, d)("list"); err != nil || !strings.Contains(out, "nothing is held") {
		t.Errorf("kubectl is not obeyed: %v %s", err, out)
	}
}

// records returns the number of records of a kind in a replica.
func (d *daemon) records(t *testing.T, kind string) int {
	t.Helper()
	answer, err := http.Get("http://" + d.http + "/debug/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var page struct{ Records map[string]int }
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		t.Fatal(err)
	}
	return page.Records[kind]
}

// accepts returns a kubeconfig of a service account of the namespace shop. may determines whether it may accept
// removals.
func accepts(t *testing.T, c *controlplane.ControlPlane, name string, may bool) (kubeconfig string) {
	t.Helper()
	c.Kubectl(t, "", "-n", "shop", "create", "serviceaccount", name)
	if may {
		c.Kubectl(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: accept-removals}, rules: [{apiGroups: [navarch.io], resources: [removals], verbs: [accept]}]}",
			"apply", "-f", "-")
		c.Kubectl(t, "", "create", "clusterrolebinding", "accept-removals", "--clusterrole=accept-removals", "--serviceaccount=shop:"+name)
	}
	raw, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(c.Kubectl(t, "", "-n", "shop", "create", "token", name))
	for of := range config.AuthInfos {
		config.AuthInfos[of] = &clientcmdapi.AuthInfo{Token: token}
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// lacks returns the opposite of has: a check that a resource is gone.
func lacks(t *testing.T, d *daemon, resource string) func() error {
	return func() error {
		if err := has(t, d, resource)(); err == nil || !strings.Contains(err.Error(), "is not there") {
			return fmt.Errorf("%s is still there: %w", resource, err)
		}
		return nil
	}
}

// inboundOfServiceEntry checks that a Pod which a ServiceEntry selects has its inbound side, whichever of the two
// exists first. (In istiod it is missing if the proxy connects before the Pod is known, which is a known bug.)
func inboundOfServiceEntry(t *testing.T, c *controlplane.ControlPlane, d *daemon) {
	t.Helper()
	const inbound, entry = "type.googleapis.com/envoy.config.cluster.v3.Cluster inbound|9090||", "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n" +
		"metadata: {name: own, namespace: shop}\nspec: {hosts: [own.example.com], ports: [{number: 9090, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: client}}}\n"
	pod := func() { c.RunPod(t, "shop", "client-0", "", "10.1.9.9", map[string]string{"app": "client"}) }
	for _, podFirst := range []bool{true, false} {
		if podFirst {
			pod()
		}
		c.Kubectl(t, entry, "apply", "-f", "-")
		if !podFirst {
			eventually(t, patience, has(t, d, webCluster)) // a proxy that nobody knows yet
			pod()
		}
		eventually(t, patience, has(t, d, inbound))
		c.Kubectl(t, "", "-n", "shop", "delete", "pod", "client-0", "--grace-period=0", "--force")
		c.Kubectl(t, "", "-n", "shop", "delete", "serviceentry", "own")
		eventually(t, patience, lacks(t, d, "type.googleapis.com/envoy.config.cluster.v3.Cluster outbound|9090||own.example.com")) // or it is lost with the others below
	}
}

var podWatches = regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{[^}]*resource="pods"[^}]*verb="WATCH"[^}]*\} (\d+)`)

// watchers returns the number of the API server's watches of Pods.
func watchers(t *testing.T, c *controlplane.ControlPlane) (n int) {
	t.Helper()
	for _, m := range podWatches.FindAllStringSubmatch(c.Kubectl(t, "", "get", "--raw", "/metrics"), -1) {
		var one int
		if _, err := fmt.Sscan(m[1], &one); err != nil {
			t.Fatal(err)
		}
		n += one
	}
	return n
}
