//go:build kube

package chart

import (
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"navarch.io/navarch/deploy/testcluster/cluster"
)

// Each Deployment has an autoscaler, which owns the number of replicas, even a fixed one: no manifest contains the
// number, because Helm 4 could not change it after the autoscaler has. It uses CPU unless another metric is set.
func TestKubeChartAutoscaling(t *testing.T) {
	t.Parallel()
	for scene, want := range map[string]map[string]string{
		"default": {"istiod": "2 to 2 by cpu of discovery"},
		"large":   {"istiod": "5 to 12 by cpu of discovery", "istiod-admit": "3 to 3 by cpu of discovery", "istiod-ingest": "3 to 3 by cpu of discovery"},
		"apart": {"istiod-canary": "3 to 9 by navarch_proxies", "istiod-canary-admit": "2 to 2 by cpu of discovery", "istiod-canary-ca": "2 to 2 by cpu of discovery",
			"istiod-canary-ingest": "2 to 2 by cpu of discovery"},
	} {
		text, got := scenes(t)[scene], map[string]string{}
		for _, u := range objects(t, text) {
			switch u.GetKind() {
			case "Deployment":
				deployment := &appsv1.Deployment{}
				if object(t, text, "Deployment", u.GetName(), deployment); deployment.Spec.Replicas != nil {
					t.Errorf("%s: %s says %d replicas", scene, u.GetName(), *deployment.Spec.Replicas)
				}
			case "HorizontalPodAutoscaler":
				scaler := &autoscalingv2.HorizontalPodAutoscaler{}
				object(t, text, u.GetKind(), u.GetName(), scaler)
				by := ""
				// The autoscaler cannot use the Pod as a whole if a container, such as that of a KMS, requests no CPU.
				if m := scaler.Spec.Metrics[0]; m.ContainerResource != nil {
					by = string(m.ContainerResource.Name) + " of " + m.ContainerResource.Container
				} else if m.Pods != nil {
					by = m.Pods.Metric.Name
				}
				got[scaler.Spec.ScaleTargetRef.Name] = fmt.Sprintf("%d to %d by %s", *scaler.Spec.MinReplicas, scaler.Spec.MaxReplicas, by)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v,\nwant %v", scene, got, want)
		}
	}
}

// withoutAdapter checks an autoscaler with the metric navarch_proxies without a server of that metric: it reports that,
// and does not change the replicas.
func (i *installation) withoutAdapter() {
	i.MustKubectl(i.t, "", "delete", "apiservice", "v1beta2.custom.metrics.k8s.io")
	i.MustKubectl(i.t, "", "patch", "horizontalpodautoscaler", "-n", "istio-system", "istiod", "--type=merge", "-p",
		`{"spec": {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "Pods", "pods": {"metric": {"name": "navarch_proxies"}, "target": {"type": "AverageValue", "averageValue": "1"}}}]}}`)
	cluster.Await(i.t, "the autoscaler", func() string {
		said := i.get(`{.status.conditions[?(@.type=="ScalingActive")].status} {.status.conditions[?(@.type=="ScalingActive")].reason}`, "horizontalpodautoscaler", "-n", "istio-system", "istiod")
		if said != "False FailedGetPodsMetric" {
			return said
		}
		return ""
	})
	if replicas := i.get("{.spec.replicas}", "deployment", "-n", "istio-system", "istiod"); replicas != "1" {
		i.t.Errorf("without the metric there are %s replicas", replicas)
	}
	i.MustKubectl(i.t, "", "delete", "horizontalpodautoscaler", "-n", "istio-system", "istiod") // the next upgrade makes it again
}
