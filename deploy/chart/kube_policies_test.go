//go:build kube

package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// Network policies, which are not enforced in this test, admit all clients to the processes' ports except /debug
// (8080). The chart's etcd admits the processes with its address, and its members each other. Its metrics admit the
// scrapers in the values, or those of the Prometheus operator if enabled.
// Promise: security-connections.md#who-reaches-metrics
func TestKubeChartPolicies(t *testing.T) {
	t.Parallel()
	prometheus, mine := map[string]string{"app.kubernetes.io/name": "prometheus"}, map[string]string{"app": "scraper"}
	for set, want := range map[string][]bool{
		"machines=true":                          {false, false, false},
		"monitoring.serviceMonitor.enabled=true": {false, true, false},
		"monitoring.serviceMonitor.enabled=true,monitoring.scrapers[0].podSelector.matchLabels.app=scraper": {false, false, true},
	} {
		text, etcd := template(t, "--set", set), &networkingv1.NetworkPolicy{}
		object(t, text, "NetworkPolicy", "navarch-etcd", etcd)
		for i, from := range []map[string]string{{"any": "body"}, prometheus, mine} {
			if got := reaches([]*networkingv1.NetworkPolicy{etcd}, from, etcd.Spec.PodSelector.MatchLabels, 2381); got != want[i] {
				t.Errorf("%s: %v reaches the metrics of etcd: %v", set, from, got)
			}
		}
	}
	clients := 0
	for scene, text := range scenes(t) {
		var policies []*networkingv1.NetworkPolicy
		for _, u := range objects(t, text) {
			if u.GetKind() == "NetworkPolicy" {
				p := &networkingv1.NetworkPolicy{}
				object(t, text, u.GetKind(), u.GetName(), p)
				policies = append(policies, p)
			}
		}
		if len(policies) == 0 {
			if scene != "large" {
				t.Errorf("%s: there are none", scene)
			}
			continue
		}
		pods := podsOf(t, text)
		for name, pod := range pods {
			if c := pod.Spec.Containers[0]; c.Name == "discovery" {
				for _, port := range c.Ports {
					if got := reaches(policies, map[string]string{"any": "body"}, pod.Labels,
						port.ContainerPort); got != (port.ContainerPort != 8080) {
						t.Errorf("%s: everybody reaches port %d of %s: %v", scene, port.ContainerPort, name, got)
					}
				}
			}
			etcd, own := pods["StatefulSet "+etcdOf(pods)]
			if !own {
				continue
			}
			for port, to := range map[int32]string{2379: etcdOf(pods) + ".istio-system.svc:2379", 2380: "-peers.istio-system.svc:2380"} {
				if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
					// etcdutl sends no requests.
					return c.Name != "etcdutl" && strings.Contains(strings.Join(append(c.Command, c.Args...), " "), to)
				}) {
					if clients++; !reaches(policies, pod.Labels, etcd.Labels, port) {
						t.Errorf("%s: %s does not reach port %d of etcd", scene, name, port)
					}
				}
				if reaches(policies, map[string]string{"any": "body"}, etcd.Labels, port) {
					t.Errorf("%s: everybody reaches port %d of etcd", scene, port)
				}
			}
		}
	}
	if clients < 20 {
		t.Errorf("%d ways to an etcd were looked at", clients)
	}
}

// etcdOf returns the name of the StatefulSet of etcd; empty: not installed.
func etcdOf(pods map[string]*corev1.PodTemplateSpec) string {
	for name := range pods {
		if set, is := strings.CutPrefix(name, "StatefulSet "); is {
			return set
		}
	}
	return ""
}

// reaches reports whether a Pod with some labels may connect to a port of another one in its namespace.
func reaches(policies []*networkingv1.NetworkPolicy, from, to map[string]string, port int32) bool {
	for _, p := range policies {
		if !matches(&p.Spec.PodSelector, to) {
			continue
		}
		for _, rule := range p.Spec.Ingress {
			if slices.ContainsFunc(rule.Ports, func(one networkingv1.NetworkPolicyPort) bool { return one.Port.IntVal == port }) &&
				(len(rule.From) == 0 || slices.ContainsFunc(rule.From,
					func(peer networkingv1.NetworkPolicyPeer) bool { return matches(peer.PodSelector, from) })) {
				return true
			}
		}
	}
	return false
}

func matches(selector *metav1.LabelSelector, of map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of))
}

// An API server with the chart's policy refuses Services that would be network gateways outside of the control plane's
// namespace, and existing Services that become one. It admits all other Services.
// Promise: tenants.md#isolation-of-tenants
func TestKubeChartNetworkGatewaysRefused(t *testing.T) {
	t.Parallel()
	c := controlplane.Start(t, controlplane.Options{})
	service := func(namespace, name, labels string, dryRun ...string) error {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(fmt.Appendf(nil, "{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s, labels: %s}, "+
			"spec: {ports: [{port: 80}]}}", name, namespace, labels), &u.Object); err != nil {
			t.Fatal(err)
		}
		client, err := dynamic.NewForConfig(c.Config())
		if err != nil {
			t.Fatal(err)
		}
		in := client.Resource(gvk.GroupVersionResource{Version: "v1", Resource: "services"}).Namespace(namespace)
		now, err := in.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			_, err = in.Create(t.Context(), u, metav1.CreateOptions{DryRun: dryRun})
			return err
		}
		u.SetResourceVersion(now.GetResourceVersion())
		_, err = in.Update(t.Context(), u, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
	const network = "{topology.istio.io/network: n1}"
	for _, namespace := range []string{"istio-system", "shop"} {
		c.Kubectl(t, "", "create", "namespace", namespace)
	}
	if err := service("shop", "before", network); err != nil { // the policy is applied later
		t.Fatal(err)
	}
	var policies []string
	for _, u := range objects(t, template(t, "--set", "flags.tenant-isolation=true")) {
		if strings.HasPrefix(u.GetName(), "navarch-network-gateways-") {
			policies = append(policies, manifest(t, u.Object))
		}
	}
	c.Kubectl(t, strings.Join(policies, "\n---\n"), "apply", "-f", "-")
	const refused = `the gateway of network "n1" would be outside of namespace istio-system (--tenant-isolation)`
	cluster.Await(t, "the policy", func() string { // an API server takes a moment to apply it
		if err := service("shop", "thief", network, metav1.DryRunAll); err == nil || !strings.Contains(err.Error(), refused) {
			return fmt.Sprint(err)
		}
		return ""
	})
	for _, try := range []struct{ namespace, name, labels, refused string }{
		{"shop", "thief", network, refused},
		{"shop", "web", "{app: web}", ""},
		{"shop", "web", "{app: web, topology.istio.io/network: n1}", refused},
		{"shop", "bare", "{}", ""},
		{"shop", "empty", `{topology.istio.io/network: ""}`, ""},
		{"shop", "before", "{topology.istio.io/network: n1, app: web}", ""}, // it was one already
		{"shop", "before", "{topology.istio.io/network: n2}", `network "n2"`},
		{"shop", "before", "{}", ""},
		{"istio-system", "eastwest", network, ""},
	} {
		err := service(try.namespace, try.name, try.labels)
		if (err == nil) != (try.refused == "") || err != nil && !strings.Contains(err.Error(), try.refused) {
			t.Errorf("%+v: %v", try, err)
		}
	}
}

// With isolation of tenants, Services that would be network gateways are refused outside of the control plane's
// namespace. Without it they are not refused.
func TestKubeChartNetworkGateways(t *testing.T) {
	t.Parallel()
	const name = "navarch-network-gateways-istio-system"
	for set, want := range map[string]bool{"flags.tenant-isolation=true": true, "flags.tenant-isolation=false": false,
		"flags.jwks-cluster=true": false} {
		text := template(t, "--set", set)
		if got := strings.Contains(text, "name: "+name); got != want {
			t.Errorf("%s: the policy is there: %v", set, got)
		}
		if !want {
			continue
		}
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		object(t, text, "ValidatingAdmissionPolicy", name, policy)
		condition, expression := policy.Spec.MatchConditions[0].Expression, policy.Spec.Validations[0].Expression
		if condition != "object.metadata.namespace != 'istio-system'" || !strings.Contains(expression, "variables.network == ''") {
			t.Errorf("%s, %s", condition, expression)
		}
	}
}
