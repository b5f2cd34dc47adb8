//go:build kube

package e2e

import (
	"testing"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/kv/kvtest"
)

// readerConfig returns a kubeconfig of a service account that may read everything, and write nothing.
func readerConfig(t *testing.T, c *controlplane.ControlPlane) string {
	t.Helper()
	c.Kubectl(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader, namespace: istio-system}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reader}, rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}, {nonResourceURLs: ["*"], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: reader}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader},
  subjects: [{kind: ServiceAccount, name: reader, namespace: istio-system}]}`, "apply", "-f", "-")
	return rights.As(t, c, "reader")
}

// A process whose service account has lost the rights to write, like a process of a Deployment that an installation
// left behind, leads while it is alone, and reports the missing rights. Once a process with the rights exists, that one
// leads.
func TestKubeLeaderWithoutRights(t *testing.T) {
	t.Parallel()
	c := controlplane.Start(t, controlplane.Options{Istio: true})
	documented := rights.Documented(t, c)
	args := []string{"--roles=ingest,xds", "--etcd-endpoints=" + kvtest.Start(t).Endpoint(), "--leader-lease=2s", "--replica-lease=2s", "--kubeconfig"}
	first := startNamed(t, "first", append(args, readerConfig(t, c))...)
	eventually(t, patience, first.leading)
	first.hasProblem(t, "the API server refuses everything that a leader must write: this process's service account may not update serviceentries/status")
	second := startNamed(t, "second", append(args, documented)...)
	eventually(t, patience, second.leading)
	if said := first.lines("leadership or candidacy failed", "may not update serviceentries/status"); len(said) != 1 {
		t.Errorf("the first says %q", said)
	}
}
