//go:build kube

package chart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/image"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/programs"
)

// installation is a cluster in which the chart is installed.
type installation struct {
	*cluster.Cluster
	t      *testing.T
	helm   *Helm
	client *kubernetes.Clientset
	began  time.Time
}

// newInstallation starts a cluster with Istio's definitions and its own etcd, without the chart.
func newInstallation(t *testing.T) *installation {
	t.Helper()
	etcd, err := programs.Etcd()
	if err != nil {
		t.Fatal(err)
	}
	tools, err := controlplane.Tools()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := filepath.Abs("../demo/kube/pilot-agent.sh")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	local := map[string]string{"ca": self, "etcd": etcd, "etcdctl": filepath.Join(tools, "bin", "etcdctl"), "etcdutl": filepath.Join(tools, "bin", "etcdutl"), "pilot-agent": agent, "envoy": envoytest.Binary(t)}
	for _, name := range []string{"navarchd", "navarchctl", "navarch-agent", "app"} {
		local[name] = programs.For(t, name)
	}
	of := image.Product()
	maps.Copy(of, map[string][]string{"app": {"app"}, "ca": {"ca"}, "proxyv2": {"pilot-agent", "navarch-agent", "envoy", "navarchctl"}})
	images, err := image.Of(of, local)
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{t: t, began: time.Now(), Cluster: cluster.ForTest(t, cluster.Options{Nodes: 2, Images: images, Istio: true, GatewayAPI: true})}
	if i.helm, err = NewHelm(t.TempDir(), i.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if i.client, err = kubernetes.NewForConfig(i.Config()); err != nil {
		t.Fatal(err)
	}
	i.MustKubectl(t, "", "apply", "-f", "testdata/etcd.yaml")
	i.at("the cluster is there")
	return i
}

func (i *installation) at(what string) {
	i.t.Logf("%s after %s", what, time.Since(i.began).Round(100*time.Millisecond))
}

// run runs a command of Helm for the release in istio-system, which must succeed, and returns its output.
func (i *installation) run(args ...string) string { return i.runIn("istio-system", args...) }

func (i *installation) runIn(namespace string, args ...string) string {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	out, err := i.helm.Run(ctx, append(args, "-n", namespace)...)
	if err != nil {
		pods, _ := i.Kubectl(ctx, "", "get", "pods", "-A", "-o", "wide")
		events, _ := i.Kubectl(ctx, "", "describe", "replicasets", "-n", namespace)
		i.t.Fatalf("%v\n%s\n%s\n%s", err, pods, events, i.logs())
	}
	i.at("helm " + args[0])
	return out
}

// logs returns the last lines of navarchd's Pods.
func (i *installation) logs() string {
	out, _ := i.Kubectl(context.Background(), "", "logs", "-A", "-l", "app.kubernetes.io/name=navarchd", "--tail=15", "--prefix", "--max-log-requests=20")
	return out
}

// get returns a field of an object, by a template of kubectl.
func (i *installation) get(path string, of ...string) string {
	out, err := i.Kubectl(context.Background(), "", append([]string{"get", "-o", "jsonpath=" + path}, of...)...)
	if err != nil {
		return err.Error()
	}
	return out
}

// A real API server accepts every file of ci, and Pod security's profile restricted accepts its Pods.
func (i *installation) dryRuns(t *testing.T) {
	t.Run("dry runs", func(t *testing.T) {
		for name, text := range scenes(t) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				i.dryRun(t, text)
			})
		}
	})
}

func (i *installation) dryRun(t *testing.T, text string) {
	var all []string
	for _, u := range objects(t, text) {
		if strings.HasPrefix(u.GetAPIVersion(), "monitoring.coreos.com/") || u.GetNamespace() == "istio-ingress" {
			continue // definitions or namespace do not exist here
		}
		all = append(all, manifest(t, u.Object))
	}
	if out, err := i.Kubectl(t.Context(), strings.Join(all, "\n---\n"), "apply", "--dry-run=server", "-f", "-"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for of, template := range podsOf(t, text) {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.GenerateName, pod.Spec.ServiceAccountName = "dry-run-", "default"
		if strings.HasPrefix(of, "StatefulSet ") { // its volume has a claim
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data"})
		}
		if _, err := i.client.CoreV1().Pods("istio-system").Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("%s: %v", of, err)
		}
	}
}

func manifest(t *testing.T, object any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// root returns the certificate that the mesh's namespaces trust; empty: not yet written.
func (i *installation) root() string {
	return i.get("{.data.root-cert\\.pem}", "configmap", "-n", "shop", "istio-ca-root-cert")
}

// injected creates a Pod by dry run. The error reports why it got no proxy.
func (i *installation) injected(ctx context.Context) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "app-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	made, err := i.client.CoreV1().Pods("shop").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	for _, c := range slices.Concat(made.Spec.InitContainers, made.Spec.Containers) {
		if c.Name == "istio-proxy" {
			return nil
		}
	}
	return errWithoutProxy
}

var errWithoutProxy = errors.New("a Pod was made without a proxy")

// works waits until Pods get proxies, wrong objects are refused even while no webhook answers, and the mesh's roots are
// in its namespaces.
func (i *installation) works() {
	i.t.Helper()
	cluster.Await(i.t, "the control plane", func() string {
		if err := i.injected(i.t.Context()); err != nil {
			return err.Error()
		}
		if policies := i.policies(); policies != closed {
			return "failure policies " + policies
		}
		if root := i.root(); !strings.Contains(root, "BEGIN CERTIFICATE") {
			return "no root: " + root
		}
		return ""
	})
	const wrong = `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: wrong, namespace: shop}, spec: {hosts: [web], gateways: [a/b/c], http: [{route: [{destination: {host: web}}]}]}}`
	if _, err := i.Kubectl(i.t.Context(), wrong, "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), "spec.gateways[0]") {
		i.t.Errorf("a wrong VirtualService: %v", err)
	}
	i.at("it works")
}

// closed is the output of policies once wrong objects are refused while no webhook answers; the webhooks for the
// Gateway API refuse nothing.
const closed = "Fail Ignore Fail Ignore"

// policies returns the failure policies of both validation webhooks, each with that for the Gateway API.
func (i *installation) policies() string {
	return i.get("{.items[*].webhooks[*].failurePolicy}", "validatingwebhookconfigurations", "-l", "app=istiod,istio.io/rev=default")
}

// as returns the same installation for a subtest.
func (i *installation) as(t *testing.T) *installation {
	other := *i
	other.t = t
	return &other
}

// The chart works in a cluster whose API server enforces the rights of each role and the profile restricted, and whose
// nodes run the Pods of its mesh.
func TestKubeChartLifecycle(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	i.dryRuns(t)
	i.at("dry runs")
	i.MustKubectl(t, "", "rollout", "status", "-n", "store", "deployment/etcd", "--timeout=180s")
	t.Run("at once", func(t *testing.T) {
		t.Run("release", func(t *testing.T) {
			t.Parallel()
			i.as(t).release()
		})
		t.Run("etcd", func(t *testing.T) {
			t.Parallel()
			i.as(t).ownEtcd()
		})
		t.Run("signers", func(t *testing.T) {
			t.Parallel()
			i.as(t).signers()
		})
		t.Run("another CA", func(t *testing.T) {
			t.Parallel()
			i.as(t).anotherCA()
		})
	})
}

// release tests a whole history of the chart: beside an istiod, in its place, upgraded, rolled back, uninstalled,
// installed again, and istiod restored (deploy/docs/beside-istiod.md, Beside istiod, and back). Pods that are created
// meanwhile all get proxies, and navarchd's parts of webhook configurations stay. A Pod of the mesh answers throughout,
// even between the two installations. Webhooks are deleted first, so no Pod is refused meanwhile. The second
// installation has the keys of the first, so the root is unchanged.
func (i *installation) release() {
	const values, wait = "testdata/cluster.yaml", "--timeout=300s"
	// Other Deployments: another one leads, and answers the webhooks, whose own Deployment goes, and comes back; an
	// autoscaler has changed its number of replicas.
	const other = `deployments=[{"roles":["ingest","xds","admit"],"resources":{"requests":{"cpu":"50m"}},"autoscaling":{"minReplicas":2,"maxReplicas":3}},{"name":"ca","roles":["ca"],"replicas":1}]`
	root := i.istiod()
	i.beside(root)
	i.instead(values, wait)
	i.works()
	i.rootIs(root)
	i.warnsOfGateways()
	i.withoutAdapter()
	was := i.kept()
	if len(was.bundles) != 1 || was.policies != closed || was.key == "" {
		i.t.Fatalf("%+v", was)
	}
	// The chart rendered without the cluster has another key, and the API server refuses to replace the existing one with
	// it.
	key := map[string]any{}
	object(i.t, template(i.t, "-f", values), "Secret", "navarch-kek", &key)
	if _, err := i.Kubectl(i.t.Context(), manifest(i.t, key), "apply", "--server-side", "--force-conflicts", "-f", "-"); err == nil || !strings.Contains(err.Error(), "immutable") {
		i.t.Errorf("another key: %v", err)
	}
	if wrong := i.wrong("istio-system", "default", "clusters were sent", "the CA takes the token and can sign"); wrong != "" {
		i.t.Errorf("navarchctl check: %s", wrong)
	}
	i.noneForbidden("istiod", "istiod-ingest", "istiod-ca", "istiod-admit")
	i.hasMetrics()
	i.revisions(root)
	unchanged := func(after string) {
		i.t.Helper()
		if got := i.kept(); !reflect.DeepEqual(got, was) {
			i.t.Errorf("after %s: %+v, was %+v", after, got, was)
		}
	}
	i.whileAsked(func() {
		i.whilePodsAreMade(func() {
			i.run("upgrade", "navarch", i.helm.Dir, "-f", values, "--set", "podLabels.edition=second,promote=true", "--wait", wait)
			unchanged("the upgrade")
			i.run("upgrade", "navarch", i.helm.Dir, "-f", values, "--set", "podLabels.edition=second,revisionTags={prod}")
			i.run("rollback", "navarch", "2")
			unchanged("the rollback to an upgrade")
			// The first installation has the policy Ignore, which Helm restores; navarchd then sets Fail again.
			i.run("rollback", "navarch", "1", "--wait", wait)
			i.works()
			unchanged("the rollback to the first")
			i.leads("istiod-ingest")
			i.run("upgrade", "navarch", i.helm.Dir, "-f", values, "--set-json", other, "--wait", wait)
			i.leads("istiod")
			i.run("rollback", "navarch", "1", "--wait", wait)
			i.works()
			i.leads("istiod-ingest")
		})
	})
	if tags := i.get("{.items[*].metadata.name}", "mutatingwebhookconfigurations", "-l", "app.kubernetes.io/instance=navarch"); tags != "istio-sidecar-injector" {
		i.t.Errorf("after the rollbacks there are %s", tags)
	}
	i.whileAsked(func() {
		i.whilePodsAreLetIn(i.uninstall)
		i.MustKubectl(i.t, "", "delete", "configmap", "-n", "shop", "istio-ca-root-cert") // the second installation writes it
		i.run("install", "navarch", i.helm.Dir, "-f", values, "--wait", wait)
		if err := i.injected(i.t.Context()); err != nil { // etcd had data, so navarchd was ready at once
			i.t.Errorf("as soon as it was installed again: %v", err)
		}
		i.works()
	})
	i.rootIs(root)
	i.back(root)
}

// kept are the objects that no Helm command may change while the release exists.
type kept struct {
	bundles  []string // the different caBundles of its webhooks
	policies string   // of both validation webhooks
	key      string
}

func (i *installation) kept() kept {
	bundles := strings.Fields(i.get("{.items[*].webhooks[*].clientConfig.caBundle}", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "-l", "istio.io/rev=default"))
	slices.Sort(bundles)
	return kept{slices.Compact(bundles), i.policies(), i.get("{.data.kek\\.key}", "secret", "-n", "istio-system", "navarch-kek")}
}

// leads waits until a Pod of a Deployment is the only one that leads, and each Deployment has as many replicas as its
// autoscaler holds.
func (i *installation) leads(deployment string) {
	i.t.Helper()
	cluster.AwaitFor(i.t, 5*time.Minute, deployment+" leads", func() string {
		by := ""
		for _, pod := range strings.Fields(i.get("{.items[*].metadata.name}", "pods", "-n", "istio-system", "-l", "app.kubernetes.io/name=navarchd")) {
			if strings.Contains(i.page("istio-system", pod), "\nnavarch_leader 1\n") {
				by += pod + " "
			}
		}
		if rest, is := strings.CutPrefix(by, deployment+"-"); !is || strings.Count(by, " ") != 1 || deployment == "istiod" && strings.HasPrefix(rest, "ingest") {
			return "leaders are " + by
		}
		scalers := i.get("{range .items[*]}{.spec.scaleTargetRef.name} {.spec.minReplicas} {.spec.maxReplicas} {.status.currentReplicas}\n{end}", "horizontalpodautoscalers", "-n", "istio-system")
		for line := range strings.Lines(scalers) {
			var name string
			var least, most, now int
			if _, err := fmt.Sscan(line, &name, &least, &most, &now); err != nil || now < least || now > most {
				return "autoscaler " + line
			}
		}
		return ""
	})
	i.at(deployment + " leads")
}

// uninstall deletes everything except the key and Istio's definitions, and prints the remains.
func (i *installation) uninstall() {
	if out := i.run("uninstall", "navarch", "--wait", "--timeout=180s"); !strings.Contains(out, "navarch-kek") {
		i.t.Errorf("what is kept is not said: %s", out)
	}
	left := i.get("{range .items[*]}{.kind} {.metadata.name}; {end}", "deployments,horizontalpodautoscalers,services,secrets,serviceaccounts,roles,rolebindings,poddisruptionbudgets,mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings,networkpolicies,configmaps",
		"-A", "-l", "app.kubernetes.io/instance=navarch")
	if left != "Secret navarch-kek; " {
		i.t.Errorf("left: %s", left)
	}
	if crds := i.get("{.items[*].metadata.name}", "crds"); !strings.Contains(crds, "virtualservices.networking.istio.io") {
		i.t.Errorf("definitions: %s", crds)
	}
}

// noneForbidden checks that no process was refused a right.
func (i *installation) noneForbidden(deployments ...string) {
	i.t.Helper()
	for _, u := range deployments {
		logs := i.MustKubectl(i.t, "", "logs", "-n", "istio-system", "deployment/"+u, "--all-pods")
		for line := range strings.Lines(logs) {
			if strings.Contains(line, "forbidden") {
				i.t.Errorf("%s", line)
			}
		}
	}
}
