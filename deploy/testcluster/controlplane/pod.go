package controlplane

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/apiserver"
)

// RunPod creates a Pod and its status, as a kubelet would: the Pod is on a node, has an address (10.244.0.0/16, because
// the API server refuses loopback) and is ready. EndpointSlices name the Pod only if the node exists. The Pod has no
// grace period, so its deletion needs no kubelet.
func (c *ControlPlane) RunPod(t testing.TB, namespace, name, node, address string, labels map[string]string) {
	t.Helper()
	client, err := apiserver.Of(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	pods := "/api/v1/namespaces/" + namespace + "/pods"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	if err := client.Do(t.Context(), http.MethodPost, pods, pod, pod); err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, StartTime: &now,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}}
	if err := client.Do(t.Context(), http.MethodPut, pods+"/"+name+"/status", pod, nil); err != nil {
		t.Fatal(err)
	}
}
