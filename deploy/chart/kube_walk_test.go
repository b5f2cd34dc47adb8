//go:build kube

package chart

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/store/admit/configure"
	"navarch.io/navarch/store/status"
)

// Twenty walks take a third of the time of all tests with a Kubernetes control plane.
var walks = flag.Int("walks", 6, "random walks of TestKubeChartWalks")

// Any sequence of installations, upgrades, other sizes, rollbacks, uninstallations and new installations works with
// Helm 3 and 4, without options. After each step the API server has exactly the release's objects, the autoscalers
// belong to its Deployments, only its leader may write, and its Services lead to its Pods. Between steps the leader
// writes into webhook configurations, and autoscalers change numbers of replicas, as in clusters.
func TestKubeChartWalks(t *testing.T) {
	t.Parallel()
	c := controlplane.Start(t, controlplane.Options{GatewayAPI: true})
	root, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 1, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("walks", func(t *testing.T) {
		for seed := range *walks {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := newWalk(t, c, seed, root.Certificate)
				for range 8 {
					w.step()
					w.look()
					w.act()
				}
			})
		}
	})
}

// walk is a random sequence of commands on one release, in its own namespace.
type walk struct {
	t      *testing.T
	random *rand.Rand
	name   string // of the release, and of its namespace
	helm   *Helm
	values string

	client  *kubernetes.Clientset
	objects dynamic.Interface
	hooks   map[string]*status.Webhooks // by kind
	root    *x509.Certificate

	size     string
	history  []map[ref]*unstructured.Unstructured // objects of each version of the release; none: it is not installed
	now      map[ref]*unstructured.Unstructured   // objects of the present version
	seen     map[gvk.GroupVersionKind]bool        // of any version
	accounts map[string]bool                      // of any version
	done     []string                             // steps
}

// ref names an object of the release.
type ref struct {
	gvk.GroupVersionKind
	namespace, name string
}

func newWalk(t *testing.T, c *controlplane.ControlPlane, seed int, root *x509.Certificate) *walk {
	t.Helper()
	name := fmt.Sprintf("walk-%d", seed)
	c.Kubectl(t, "", "create", "namespace", name)
	w := &walk{t: t, random: rand.New(rand.NewPCG(uint64(seed), 1)), name: name, root: root, values: "validation.default=false", hooks: map[string]*status.Webhooks{},
		seen: map[gvk.GroupVersionKind]bool{}, accounts: map[string]bool{}}
	if w.random.IntN(4) > 0 { // an etcd of the chart's has twice as many objects
		w.values += ",etcd.endpoints={http://etcd.store.svc:2379}"
	}
	var err error
	if w.helm, err = []func(string, string) (*Helm, error){NewHelm, NewHelm3}[seed%2](t.TempDir(), c.Kubeconfig()); err == nil {
		w.client, err = kubernetes.NewForConfig(c.Config())
	}
	if err == nil {
		w.objects, err = dynamic.NewForConfig(c.Config())
	}
	for _, kind := range []status.WebhookKind{status.Validating, status.Mutating} {
		if err == nil {
			w.hooks[string(kind)], err = status.NewWebhooks(c.Kubeconfig(), kind)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// step executes one random command of Helm.
func (w *walk) step() {
	if len(w.history) == 0 {
		w.size = w.anySize()
		w.install("install")
		return
	}
	switch w.random.IntN(8) {
	case 0:
		w.run("uninstall")
		w.history, w.now = nil, nil
	case 1:
		w.install("upgrade", "--set", "podLabels.edition="+fmt.Sprint(len(w.history)))
	case 2, 3, 4:
		w.size = w.anySize()
		w.install("upgrade")
	default:
		to := w.random.IntN(len(w.history))
		w.run("rollback", fmt.Sprint(to+1))
		w.now = w.history[to]
		w.history = append(w.history, w.now)
	}
}

func (w *walk) anySize() string { return []string{"small", "medium", "large"}[w.random.IntN(3)] }

// install performs an installation or upgrade of the present size. Helm skips its validation, which takes half of its
// time, because the API server validates.
func (w *walk) install(command string, args ...string) {
	out := w.run(command, append([]string{w.helm.Dir, "-o", "json", "--disable-openapi-validation", "--set", w.values + ",size=" + w.size}, args...)...)
	var release struct{ Manifest string }
	if err := json.Unmarshal([]byte(out), &release); err != nil || release.Manifest == "" {
		w.t.Fatalf("%s: %v in %s", command, err, out)
	}
	w.now = map[ref]*unstructured.Unstructured{}
	for _, u := range objects(w.t, release.Manifest) {
		r := ref{u.GroupVersionKind(), u.GetNamespace(), u.GetName()}
		w.now[r], w.seen[r.GroupVersionKind] = u, true
		if r.Kind == "ServiceAccount" {
			w.accounts[r.name] = true
		}
	}
	w.history = append(w.history, w.now)
}

func (w *walk) run(command string, args ...string) string {
	w.done = append(w.done, command+" "+strings.Join(args[min(1, len(args)):], " ")+" "+w.size)
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	out, err := w.helm.Run(ctx, append([]string{command, w.name}, append(args, "-n", w.name)...)...)
	if err != nil {
		w.t.Fatalf("%q: %v", w.done, err)
	}
	return out
}

// look compares the API server with the release.
func (w *walk) look() {
	there := map[ref]*unstructured.Unstructured{}
	for kind := range w.seen {
		for _, u := range w.list(kind) {
			there[ref{kind, u.GetNamespace(), u.GetName()}] = u
		}
	}
	for r := range w.now {
		if there[r] == nil {
			w.t.Errorf("%q: %s %s is missing", w.done, r.Kind, r.name)
		}
	}
	for r, u := range there {
		if w.now[r] == nil && u.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			w.t.Errorf("%q: %s %s was left", w.done, r.Kind, r.name)
		}
	}
	if len(w.history) > 0 {
		w.leads()
		w.serves()
	}
}

// list returns the objects of a kind that belong to this release.
func (w *walk) list(kind gvk.GroupVersionKind) []*unstructured.Unstructured {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	all, err := w.objects.Resource(resource).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + w.name})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for i := range all.Items {
		out = append(out, &all.Items[i])
	}
	return out
}

// deployments returns the release's Deployments.
func (w *walk) deployments() []appsv1.Deployment {
	all, err := w.client.AppsV1().Deployments(w.name).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return all.Items
}

// leads checks that the service account of the only Deployment whose processes may lead has the right to write, and no
// other that any version had.
func (w *walk) leads() {
	leaders := map[string]bool{}
	for _, d := range w.deployments() {
		if strings.Contains(d.Spec.Template.Spec.Containers[0].Args[0], "ingest") {
			leaders[d.Spec.Template.Spec.ServiceAccountName] = true
		}
	}
	may := map[string]bool{}
	for account := range w.accounts {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + w.name + ":" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "update", Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Name: "istiod-default-validator"}}}
		answer, err := w.client.AuthorizationV1().SubjectAccessReviews().Create(w.t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		if answer.Status.Allowed {
			may[account] = true
		}
	}
	if len(leaders) != 1 || !maps.Equal(may, leaders) {
		w.t.Errorf("%q: processes of %v may lead, and %v may write", w.done, leaders, may)
	}
}

// serves checks that each port of istiod's Service leads to Pods of a Deployment.
func (w *walk) serves() {
	service, err := w.client.CoreV1().Services(w.name).Get(w.t.Context(), "istiod", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	deployments := w.deployments()
	for _, port := range service.Spec.Ports {
		if !slices.ContainsFunc(deployments, func(d appsv1.Deployment) bool {
			pod := d.Spec.Template
			return contains(pod.Labels, service.Spec.Selector) && slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port.TargetPort.StrVal })
		}) {
			w.t.Errorf("%q: port %d leads nowhere", w.done, port.Port)
		}
	}
}

// act sometimes performs the leader's and the autoscalers' changes before the next step: roots and failure policies,
// and other numbers of replicas.
func (w *walk) act() {
	if w.random.IntN(4) > 0 {
		w.leader()
	}
	if w.random.IntN(4) > 0 {
		w.autoscaler()
	}
}

func (w *walk) leader() {
	mesh := configure.Mesh{Namespace: w.name, Roots: []*x509.Certificate{w.root}}
	for r := range w.now {
		hooks, is := w.hooks[r.Kind]
		if !is {
			continue
		}
		wanted := mesh.Wanted(issue.EncodeCertificates(w.root), r.Kind == string(status.Validating))
		for {
			key := status.Key{Name: r.name}
			found, err := hooks.Get(w.t.Context(), key)
			if err == nil {
				next := wanted.Draw(found.Object, 1)
				if next == nil {
					break
				}
				_, err = hooks.Write(w.t.Context(), key, next)
			}
			if err != nil {
				w.t.Fatalf("%q: %s %s: %v", w.done, r.Kind, r.name, err)
			}
		}
	}
}

// autoscaler sets each number of replicas to one that its autoscaler allows, as kube-controller-manager does.
func (w *walk) autoscaler() {
	all, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(w.name).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range all.Items {
		least, most := *h.Spec.MinReplicas, h.Spec.MaxReplicas
		scale, err := w.client.AppsV1().Deployments(w.name).GetScale(w.t.Context(), h.Spec.ScaleTargetRef.Name, metav1.GetOptions{})
		if err != nil {
			w.t.Fatalf("%q: what %s scales: %v", w.done, h.Name, err)
		}
		next := &autoscalingv1.Scale{ObjectMeta: scale.ObjectMeta, Spec: autoscalingv1.ScaleSpec{Replicas: least + w.random.Int32N(most-least+1)}}
		if _, err := w.client.AppsV1().Deployments(w.name).UpdateScale(w.t.Context(), h.Spec.ScaleTargetRef.Name, next, metav1.UpdateOptions{FieldManager: "kube-controller-manager"}); err != nil {
			w.t.Fatalf("%q: %v", w.done, err)
		}
	}
}
