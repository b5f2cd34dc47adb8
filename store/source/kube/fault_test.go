//go:build kube

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// since returns the events of a namespace after the first n, as "Op Kind name", sorted.
func (e *recorder) since(n int, namespace string) (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events[n:] {
		if event.ID.Namespace == namespace {
			all = append(all, fmt.Sprint(event.Op, " ", event.ID.Kind, " ", event.ID.Name))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (e *recorder) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.events)
}

// The API server is away, and exactly the changes of that time are emitted when it is back: once by watches that
// resume, and once after it was killed and etcd was compacted, so that they cannot (410).
func TestKubeAway(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{Istio: true})
	l, kubeconfig := linkTo(t, c)
	e := listen(t, c, func(config *Config) { config.Kubeconfig = kubeconfig })
	e.untilSynced()
	c.Kubectl(t, "", "create", "namespace", "shop")
	for _, name := range []string{"a", "b", "c"} {
		c.Kubectl(t, virtualService(name, "1s"), "-n", "shop", "apply", "-f", "-")
	}
	e.untilNames("shop", "VirtualService a, VirtualService b, VirtualService c")
	for _, compacted := range []bool{false, true} {
		before, lists := e.count(), e.s.Stats().Lists
		l.setCut(true)
		e.untilProblem(problem.Unreadable)
		c.Kubectl(t, "", "-n", "shop", "delete", "virtualservice", "a")
		c.Kubectl(t, virtualService("b", fmt.Sprintf("%ds", before+2)), "-n", "shop", "apply", "-f", "-")
		c.Kubectl(t, virtualService("d", "1s"), "-n", "shop", "apply", "-f", "-")
		if compacted {
			c.KillAPIServer()
			c.Compact(t)
			c.StartAPIServer(t)
		}
		l.setCut(false)
		e.untilNames("shop", "VirtualService b, VirtualService c, VirtualService d")
		e.untilProblem("")
		want := []string{"1 VirtualService b", "1 VirtualService d", "2 VirtualService a"}
		e.until(func() string {
			e.mu.Unlock()
			defer e.mu.Lock()
			if got := e.since(before, "shop"); !slices.Equal(got, want) {
				return fmt.Sprintf("emitted %v, want %v", got, want)
			}
			return ""
		})
		for _, event := range e.events[before:] {
			if event.Op == object.Delete && event.ID.Namespace != "shop" {
				t.Errorf("wrong removal: %v", event.ID)
			}
		}
		if again := e.s.Stats().Lists > lists; compacted && !again {
			t.Error("nothing was listed again after 410")
		}
		c.Kubectl(t, "", "-n", "shop", "delete", "virtualservice", "d")
		c.Kubectl(t, virtualService("a", "1s"), "-n", "shop", "apply", "-f", "-")
		e.untilNames("shop", "VirtualService a, VirtualService b, VirtualService c")
	}
}

// Events that do not arrive are found by the next complete list.
func TestKubeLostEvents(t *testing.T) {
	c := controlplane.Shared(t)
	ns := c.Namespace(t)
	var added, deleted atomic.Bool
	e := listen(t, c, func(config *Config) {
		config.Compare = time.Second
		config.lose = func(event watch.Event) bool {
			o, is := event.Object.(metav1.Object)
			if !is || o.GetNamespace() != ns || o.GetName() != "lost" {
				return false
			}
			// A later list yields Added for existing objects, too.
			return event.Type == watch.Added && !added.Swap(true) || event.Type == watch.Deleted && !deleted.Swap(true)
		}
	})
	e.untilSynced()
	c.Kubectl(t, virtualService("seen", "1s"), "-n", ns, "apply", "-f", "-")
	for i := 0; i < 10 && !added.Load(); i++ { // changes during a list, which needs a second here, yield no event
		c.Kubectl(t, virtualService("lost", "1s"), "-n", ns, "apply", "-f", "-")
		e.untilNames(ns, "VirtualService lost, VirtualService seen")
		c.Kubectl(t, "", "-n", ns, "delete", "virtualservice", "lost")
		e.untilNames(ns, "VirtualService seen")
	}
	if !added.Load() || e.s.Stats().Repaired == 0 {
		t.Errorf("lost: added %v, deleted %v; %d objects repaired", added.Load(), deleted.Load(), e.s.Stats().Repaired)
	}
}

// Kinds that are not served at the start are not an error. They are read once they are served; when their definition is
// deleted their objects are removed, as the API server reports. A deleted namespace is removed with all its objects.
func TestKubeKindsComeAndGo(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{Admission: true, Controllers: controlplane.Controllers})
	e := listen(t, c, nil)
	e.untilSynced()
	for range 2 {
		c.ApplyCRDs(t, "istio")
		c.Kubectl(t, virtualService("v", "1s"), "-n", "default", "apply", "-f", "-")
		e.until(func() string {
			if got := e.names("default"); !strings.Contains(got, "VirtualService v") {
				return "no VirtualService: " + got
			}
			return ""
		})
		c.Kubectl(t, "", "delete", "crd", "virtualservices.networking.istio.io")
		e.until(func() string {
			if got := e.names("default"); strings.Contains(got, "VirtualService v") {
				return "the VirtualService is still there: " + got
			}
			return ""
		})
		e.untilProblem("")
	}
	c.Kubectl(t, "", "create", "namespace", "shop")
	c.Kubectl(t, "", "wait", "--for=create", "--timeout=120s", "-n", "shop", "serviceaccount/default")
	c.Kubectl(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}`, "apply", "-f", "-")
	c.Kubectl(t, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}`, "-n", "shop", "apply", "-f", "-")
	c.RunPod(t, "shop", "web-1", "n", "10.244.0.7", map[string]string{"app": "web"})
	e.until(func() string {
		if got := e.names("shop"); !strings.HasPrefix(got, "EndpointSlice web-") || !strings.HasSuffix(got, ", Pod web-1, Service web, ServiceAccount default") {
			return got
		}
		return ""
	})
	c.Kubectl(t, "", "delete", "namespace", "shop", "--timeout=120s")
	e.untilNames("shop", "")
}

// discoverySelectors of the mesh configuration and ISTIO_WATCH_NAMESPACE select the namespaces whose objects are read.
// A namespace that is selected later is added with its objects, one that is no longer selected is removed.
func TestKubeSelectedNamespaces(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{Istio: true})
	for _, ns := range []string{"in", "out", "istio-system"} {
		c.Kubectl(t, "", "create", "namespace", ns)
	}
	c.Kubectl(t, "", "label", "namespace", "in", "mesh=yes")
	for _, ns := range []string{"in", "out"} {
		c.Kubectl(t, virtualService("v", "1s"), "-n", ns, "apply", "-f", "-")
	}
	mesh := func(selectors string) {
		c.Kubectl(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio"}, "data": {"mesh": %q}}`, "discoverySelectors: "+selectors),
			"-n", "istio-system", "apply", "-f", "-")
	}
	mesh("[{matchLabels: {mesh: 'yes'}}]")
	e := listen(t, c, nil)
	only := listen(t, c, func(config *Config) { config.Namespace = "out" })
	e.untilSynced()
	only.untilSynced()
	both := func(in, out string) {
		t.Helper()
		e.untilNames("in", in)
		e.untilNames("out", out)
	}
	both("VirtualService v", "")
	e.find("ConfigMap", "istio-system", "istio")
	only.untilNames("in", "")
	only.untilNames("out", "VirtualService v")
	c.Kubectl(t, "", "label", "namespace", "out", "mesh=yes")
	both("VirtualService v", "VirtualService v")
	c.Kubectl(t, "", "label", "namespace", "in", "mesh-")
	both("", "VirtualService v")
	mesh("[{matchExpressions: [{key: mesh, operator: Odd}]}]")
	e.untilProblem(problem.Invalid)
	both("", "VirtualService v")
	mesh("[]")
	both("VirtualService v", "VirtualService v")
	e.untilProblem("")
}

// istioOperators is the definition that istioctl leaves, and older charts of Istio.
const istioOperators = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: istiooperators.install.istio.io}
spec:
  group: install.istio.io
  names: {kind: IstioOperator, plural: istiooperators, singular: istiooperator}
  scope: Namespaced
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// While the right to read a kind is missing, its objects stay, and a problem reports it. Once it is restored, objects
// deleted by kubectl meanwhile are removed, with reason Deleted; a deleted definition removes its objects without that
// right.
func TestKubeRightTakenAway(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{Istio: true})
	kubeconfig := rights.Documented(t, c)
	c.Kubectl(t, "", "create", "namespace", "shop")
	for _, name := range []string{"a", "b", "c", "d"} {
		c.Kubectl(t, virtualService(name, "1s"), "-n", "shop", "apply", "-f", "-")
	}
	e := listen(t, c, func(config *Config) {
		config.Kubeconfig, config.Compare, config.pause = kubeconfig, time.Second, time.Second
	})
	e.untilSynced()
	e.untilNames("shop", "VirtualService a, VirtualService b, VirtualService c, VirtualService d")
	c.Kubectl(t, "", "delete", "clusterrole", "navarchd")
	forbidden := func(p object.Problem) bool {
		return p.ID.Kind == "VirtualService" && strings.Contains(p.Message, "forbidden")
	}
	for until := time.Now().Add(patience); !slices.ContainsFunc(e.s.Problems(), forbidden); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("VirtualServices can be read: ", e.s.Problems())
		}
	}
	before := e.count()
	c.Kubectl(t, "", "-n", "shop", "delete", "virtualservices", "a", "b", "c")
	if got := e.since(before, "shop"); len(got) > 0 {
		t.Errorf("without the right: emitted %v", got)
	}
	rights.Documented(t, c)
	e.untilNames("shop", "VirtualService d")
	e.untilProblem("")
	whys := func(from int) (all []object.Why) {
		for _, event := range e.events[from:] {
			if event.Op == object.Delete && event.ID.Kind == "VirtualService" {
				all = append(all, event.Why)
			}
		}
		return all
	}
	if got := whys(before); !slices.Equal(got, []object.Why{object.Deleted, object.Deleted, object.Deleted}) {
		t.Errorf("the right is back: gone, for they %v", got)
	}
	before = e.count()
	c.Kubectl(t, "", "delete", "crd", "virtualservices.networking.istio.io")
	e.untilNames("shop", "")
	if got := whys(before); !slices.Equal(got, []object.Why{object.Undefined}) {
		t.Errorf("the definition is deleted: gone, for they %v", got)
	}
}

// The rights that the documentation lists are enough: by them alone everything is read, and nothing is refused.
func TestKubeDocumentedRights(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{Istio: true, GatewayAPI: true})
	kubeconfig := rights.Documented(t, c)
	c.Kubectl(t, "", "create", "namespace", "istio-ingress")
	rights.Grant(t, c, rights.ToSecrets)
	for _, name := range []string{"shop-tls", "other"} {
		c.Kubectl(t, "", "-n", "istio-ingress", "create", "secret", "generic", name, "--from-literal=tls.crt=c", "--from-literal=tls.key=k", "--from-literal=password=p")
	}
	e := listen(t, c, func(config *Config) {
		config.Kubeconfig = kubeconfig
		config.Settle = func(context.Context) error { return nil }
	})
	granted, other := reference("istio-ingress", "shop-tls", "apps"), reference("istio-ingress", "other", "apps")
	e.s.Refer([]object.Reference{granted})
	e.untilSynced()
	e.untilProblem("")
	// Secrets are read by name, and of others nothing: one that may not be read holds nothing up, and a problem names it.
	if o := e.find("Secret", "istio-ingress", "shop-tls"); !strings.Contains(string(o.JSON), `"tls.key":"aw=="`) || strings.Contains(string(o.JSON), `"cA=="`) {
		t.Errorf("the Secret: %s", o.JSON)
	}
	e.s.Refer([]object.Reference{granted, other})
	e.untilProblem(problem.Unreadable)
	if p := e.s.Problems(); len(p) != 1 || p[0].ID.Name != "other" || !strings.Contains(p[0].Message, "forbidden") {
		t.Errorf("problems %v", p)
	}
	c.Kubectl(t, "", "-n", "istio-ingress", "patch", "secret", "shop-tls", "-p", `{"stringData": {"tls.key": "new"}}`)
	e.until(func() string {
		if o := e.objects[object.ID{Origin: e.s.Origin(), Kind: "Secret", Namespace: "istio-ingress", Name: "shop-tls"}]; !strings.Contains(string(o.JSON), `"bmV3"`) {
			return "the Secret is the old one"
		}
		return ""
	})
	e.s.Refer(nil)
	e.untilNames("istio-ingress", "Role navarchd-secrets, RoleBinding navarchd-secrets")
	e.untilProblem("")
	// A kind of Istio's that they are not about, since it is only reported, holds nothing up either.
	c.Kubectl(t, istioOperators, "create", "-f", "-")
	e.untilProblem(problem.Unreadable)
	if p := e.s.Problems(); len(p) != 1 || p[0].Severity != problem.Warning || !strings.Contains(p[0].Message, "forbidden") {
		t.Errorf("problems %v", p)
	}
	beside := listen(t, c, func(config *Config) { config.Kubeconfig = kubeconfig })
	beside.untilSynced()
	c.Kubectl(t, "", "delete", "clusterrole", "navarchd")
	refused := listen(t, c, func(config *Config) { config.Kubeconfig = kubeconfig })
	refused.untilProblem(problem.Unreadable)
	if p := refused.s.Problems(); slices.ContainsFunc(p, func(p object.Problem) bool { return !strings.Contains(p.Message, "forbidden") }) {
		t.Errorf("problems %v", p)
	}
	refused.mu.Lock()
	defer refused.mu.Unlock()
	if refused.synced {
		t.Error("everything is said to be read, and nothing may be")
	}
}
