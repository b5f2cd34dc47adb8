//go:build kube

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/problem"
)

// An API server has about a hundred objects that do not apply, and one valid object. The valid one is served. The page
// of problems is limited, and counts the rest; the log does not have a line for each. Once the objects are corrected no
// problem is left.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestKubeInvalidObjects(t *testing.T) {
	parallel(t)
	const n = problem.MostOfNamespace + 100
	c := controlplane.Start(t, controlplane.Options{Istio: true})
	c.Kubectl(t, "", "create", "namespace", "shop")
	apply := func(count int, weight string) {
		t.Helper()
		var items []string
		for i := range count {
			items = append(items, fmt.Sprintf(`{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"namespace": "shop", "name": "v%d"},
				"spec": {"hosts": ["v%[1]d.example.com"], "http": [{%s"route": [{"destination": {"host": "web"}}]}]}}`, i, weight))
		}
		c.Kubectl(t, `{"apiVersion": "v1", "kind": "List", "items": [`+strings.Join(items, ",")+`]}`, "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
	apply(n, `"corsPolicy": {"allowOrigins": [{"regex": "("}]}, `) // the schema allows it
	c.Kubectl(t, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"name": "http", "port": 80}]}}`, "-n", "shop", "apply", "-f", "-")
	d := startNamed(t, "navarchd", "--roles=ingest,xds", "--kubeconfig", c.Kubeconfig(), "--write-root-certs=false", "--etcd-endpoints="+kvtest.Start(t).Endpoint())
	eventually(t, patience, d.leading)
	eventually(t, patience, func() error {
		got, err := everything(t.Context(), d.grpc, node("shop", "web", "10.244.0.250"))
		const want = "type.googleapis.com/envoy.config.cluster.v3.Cluster outbound|80||web.shop.svc.cluster.local"
		if _, is := got[want]; err == nil && !is {
			err = fmt.Errorf("the good one is not served")
		}
		return err
	})
	eventually(t, patience, func() error {
		all, err := d.problems()
		if err != nil {
			return err
		}
		counted := ""
		for _, p := range all {
			if strings.Contains(p.Message, "more problems of this namespace are not listed") {
				counted = p.Message
			}
		}
		if len(all) > problem.MostOfNamespace+10 || !strings.HasPrefix(counted, fmt.Sprint(n-problem.MostOfNamespace, " ")) {
			return fmt.Errorf("%d problems, %q", len(all), counted)
		}
		return nil
	})
	if lines := len(d.lines("problem with the configuration")); lines > 120 {
		t.Errorf("%d lines", lines)
	}
	apply(n, "")
	eventually(t, patience, func() error {
		all, err := d.problems()
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%d problems, the first is %v", len(all), all[0])
		}
		return err
	})
}
