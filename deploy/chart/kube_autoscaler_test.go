//go:build kube

package chart

import "navarch.io/navarch/deploy/testcluster/cluster"

// withoutAdapter: where nobody serves the metric navarch_proxies, an autoscaler that goes by it says so, and leaves the replicas alone.
func (i *installation) withoutAdapter() {
	text := i.run("template", "navarch", i.helm.Dir, "--set-json", `deployments=[{"roles":["ingest","xds","ca","admit"],"autoscaling":{"minReplicas":1,"maxReplicas":3,"targetProxies":1}}]`)
	i.MustKubectl(i.t, "", "delete", "apiservice", "v1beta2.custom.metrics.k8s.io")
	for _, u := range objects(i.t, text) {
		if u.GetKind() == "HorizontalPodAutoscaler" {
			i.MustKubectl(i.t, manifest(i.t, u.Object), "apply", "-f", "-")
		}
	}
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
	i.MustKubectl(i.t, "", "delete", "horizontalpodautoscaler", "-n", "istio-system", "istiod")
}
