package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownedPod returns a ready Pod of namespace shop with a controller ("KIND NAME").
func ownedPod(name, controller string, labels map[string]string) *corev1.Pod {
	kind, of, _ := strings.Cut(controller, " ")
	yes := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: of, Controller: &yes}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
}

// A workload is a kind and a name: a Deployment and a StatefulSet of one name are two workloads.
func TestChooseByKindOfWorkload(t *testing.T) {
	all := []*corev1.Pod{
		ownedPod("web-0", "StatefulSet web", nil),
		ownedPod("web-5d4f-aaaaa", "ReplicaSet web-5d4f", map[string]string{"pod-template-hash": "5d4f"}),
		ownedPod("web-5d4f-bbbbb", "ReplicaSet web-5d4f", map[string]string{"pod-template-hash": "5d4f"}),
		ownedPod("web-x", "DaemonSet web", nil),
	}
	for args, want := range map[string]string{
		"": "web-0 web-5d4f-aaaaa web-x", "deploy/web": "web-5d4f-aaaaa", "sts/web": "web-0", "ds/web": "web-x", "rs/web-5d4f": "web-5d4f-aaaaa",
		"pod/web-x": "web-x", "web-0.shop": "web-0", "rs/web": "no ready Pod", "deploy/web-0": "no ready Pod", "job/web": "no ready Pod",
	} {
		namespace := "shop"
		if strings.Contains(args, ".") {
			namespace = ""
		}
		chosen, err := choose(all, strings.Fields(args), namespace)
		var names []string
		for _, pod := range chosen {
			names = append(names, pod.Name)
		}
		if err != nil {
			names = []string{err.Error()}
		}
		if got := strings.Join(names, " "); !strings.Contains(got, want) || err == nil && got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}
