//go:build kube

package cluster_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/netns"
)

// edge is a Service of type LoadBalancer in front of the Pods of web.
const edge = `{apiVersion: v1, kind: Service, metadata: {name: %s},
  spec: {type: LoadBalancer, ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{port: 8000, targetPort: http}]}}`

// balancers: Services of type LoadBalancer get addresses of their own, of both families, that Pods and the outer
// namespace reach; a Service of another type loses them.
func balancers(t *testing.T, c *cluster.Cluster) {
	addresses := func(name string, want int) []string {
		t.Helper()
		var all []string
		cluster.Await(t, fmt.Sprintf("%d addresses of %s", want, name), func() string {
			all = strings.Fields(c.MustKubectl(t, "", "get", "service", name, "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"))
			if len(all) != want {
				return fmt.Sprint(all)
			}
			return ""
		})
		return all
	}
	seen := map[string]bool{}
	for _, name := range []string{"edge-1", "edge-2"} {
		c.MustKubectl(t, fmt.Sprintf(edge, name), "apply", "-f", "-")
		for i, address := range addresses(name, 2) {
			within := netip.MustParsePrefix([]string{netns.BalancerCIDR, netns.BalancerCIDR6}[i])
			if !within.Contains(netip.MustParseAddr(address)) || seen[address] {
				t.Errorf("%s has %s", name, address)
			}
			seen[address] = true
			get := `exec 3<>/dev/tcp/` + address + `/8000 && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3`
			cluster.Await(t, "an answer at "+address, func() string {
				out, err := c.Kubectl(t.Context(), "", "exec", "client", "--", "timeout", "5", "bash", "-c", get)
				if err != nil || !strings.Contains(out, "200 OK") {
					return fmt.Sprint(out, err)
				}
				return ""
			})
			if os.Geteuid() == 0 {
				outside := exec.CommandContext(t.Context(), "nsenter", "-t", strconv.Itoa(c.PID()), "-n", "timeout", "5", "bash", "-c", get)
				if out, err := outside.CombinedOutput(); err != nil || !strings.Contains(string(out), "200 OK") {
					t.Errorf("%s from the outer namespace: %s, %v", address, out, err)
				}
			}
		}
	}
	c.MustKubectl(t, "", "patch", "service", "edge-1", "-p", `{"spec": {"type": "ClusterIP"}}`)
	addresses("edge-1", 0)
	addresses("edge-2", 2)
}
