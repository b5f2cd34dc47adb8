//go:build kube

package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/kv/kvtest"
)

// With exactly the documented rights, ServiceEntries get automatic addresses. While istiod holds its lock, its
// addresses are used, and none are assigned. After that a ServiceEntry without addresses gets two, in its status and at
// the listeners of proxies whose agents resolve names. It gets the same ones after it is deleted and created again, and
// another leader changes nothing.
func TestKubeAutomaticAddresses(t *testing.T) {
	parallel(t)
	c := controlplane.Start(t, controlplane.Options{Istio: true})
	kubeconfig := rights.Documented(t, c)
	entry := func(name string) string {
		return fmt.Sprintf(`{"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": %q, "namespace": "shop"},
			"spec": {"hosts": ["%[1]s.example.com"], "resolution": "DNS", "ports": [{"number": 5432, "name": "tcp", "protocol": "TCP"}]}}`, name)
	}
	c.Kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", "create", "-f", "-")
	c.Kubectl(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio-ip-autoallocate", "namespace": "istio-system", "annotations":
		{"control-plane.alpha.kubernetes.io/leader": "{\"holderIdentity\":\"istiod-1\",\"leaseDurationSeconds\":100000,\"renewTime\":\"2026-01-02T03:04:05Z\"}"}}}`, "create", "-f", "-")
	c.Kubectl(t, entry("given"), "create", "-f", "-")
	c.Kubectl(t, entry("none"), "create", "-f", "-")
	c.Kubectl(t, "", "-n", "shop", "patch", "serviceentry", "given", "--type=merge", "--subresource=status", "-p",
		`{"status": {"conditions": [{"type": "Other", "status": "True"}], "addresses": [{"value": "240.240.77.77", "host": "given.example.com"}]}}`)
	status := func(name string) string {
		return c.Kubectl(t, "", "-n", "shop", "get", "serviceentry", name, "-o", "jsonpath={.status.addresses[*].value}")
	}
	args := []string{"--roles=ingest,xds", "--kubeconfig", kubeconfig, "--etcd-endpoints=" + kvtest.Start(t).Endpoint(), "--leader-lease=2s", "--replica-lease=2s"}
	first := startNamed(t, "first", args...)
	eventually(t, patience, first.leading)
	proxy := node("shop", "web", "10.244.0.250")
	proxy.Metadata.Fields["DNS_CAPTURE"] = structpb.NewStringValue("true")
	listeners := func(d *daemon, want ...string) func() error {
		return func() error {
			got, err := everything(t.Context(), d.grpc, proxy)
			if err != nil {
				return err
			}
			for _, name := range want {
				if _, there := got["type.googleapis.com/envoy.config.listener.v3.Listener "+name]; !there {
					return fmt.Errorf("there is no listener %s", name)
				}
			}
			return nil
		}
	}
	eventually(t, patience, listeners(first, "240.240.77.77_5432", "0.0.0.0_5432"))
	if got := status("none"); got != "" {
		t.Errorf("while istiod holds the lock %s is written", got)
	}
	c.Kubectl(t, "", "-n", "istio-system", "delete", "configmap", "istio-ip-autoallocate")
	two := regexp.MustCompile(`^(240\.240\.\d+\.\d+) 2001:2::\S+$`)
	var given string
	eventually(t, patience, func() error {
		if given = status("none"); !two.MatchString(given) {
			return fmt.Errorf("the status has %q", given)
		}
		return nil
	})
	own := two.FindStringSubmatch(given)[1]
	eventually(t, patience, listeners(first, "240.240.77.77_5432", own+"_5432"))
	if got := c.Kubectl(t, "", "-n", "shop", "get", "serviceentry", "given", "-o", "jsonpath={.status.addresses} {.status.conditions[0].type}"); !strings.Contains(got, "240.240.77.77") || !strings.Contains(got, "2001:2::") || !strings.HasSuffix(got, " Other") {
		t.Errorf("what istiod wrote, with an address of the family that it left out, is %s", got)
	}
	again := func() error {
		if got := status("none"); got != given {
			return fmt.Errorf("the status has %q, want %q", got, given)
		}
		return nil
	}
	c.Kubectl(t, "", "-n", "shop", "delete", "serviceentry", "none")
	c.Kubectl(t, entry("none"), "create", "-f", "-")
	eventually(t, patience, again)
	first.kill()
	second := startNamed(t, "second", args...)
	eventually(t, patience, second.leading)
	c.Kubectl(t, "", "-n", "shop", "patch", "serviceentry", "none", "--type=merge", "--subresource=status", "-p", `{"status": {"addresses": null}}`)
	eventually(t, patience, func() error { return errors.Join(again(), listeners(second, own+"_5432")()) })
}
