//go:build kube

package chart

import (
	"fmt"
	"strings"

	"navarch.io/navarch/deploy/testcluster/cluster"
)

// warnsOfGateways checks that a Gateway is created with a warning if its class has a controller of the mesh, whatever
// the class's name, and it belongs to this revision. Others are created without one.
func (i *installation) warnsOfGateways() {
	const class = `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: %s}}`
	for name, controller := range map[string]string{"edge": "istio.io/gateway-controller", "others": "example.com/controller"} {
		i.MustKubectl(i.t, fmt.Sprintf(class, name, controller), "apply", "-f", "-")
	}
	said := func(class, labels string) string {
		cmd := i.KubectlCommand(i.t.Context(), "apply", "--dry-run=server", "-f", "-")
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: a, namespace: shop, labels: {%s}}, spec: {gatewayClassName: %s, listeners: [{name: http, port: 80, protocol: HTTP}]}}`, labels, class))
		out, _ := cmd.CombinedOutput() // how it ended is in what it prints
		return string(out)
	}
	const warning = "a Gateway of class %s, whose controller is istio.io/gateway-controller, gets no Deployment"
	cluster.Await(i.t, "the policy", func() string { // an API server takes a moment to go by it
		if out := said("edge", ""); strings.Count(out, "Warning: ") != 1 || !strings.Contains(out, fmt.Sprintf(warning, "edge")) || !strings.Contains(out, "created") {
			return out
		}
		return ""
	})
	if out := said("edge", "istio.io/rev: default"); !strings.Contains(out, fmt.Sprintf(warning, "edge")) {
		i.t.Errorf("of this revision: %s", out)
	}
	for _, of := range [][2]string{{"others", ""}, {"edge", "istio.io/rev: another"}} {
		if out := said(of[0], of[1]); strings.Contains(out, "Warning: ") || !strings.Contains(out, "created") {
			i.t.Errorf("%q: %s", of, out)
		}
	}
	if out := said("istio", ""); strings.Count(out, "Warning: ") != 1 { // the webhook's
		i.t.Errorf("of class istio: %s", out)
	}
	i.at("Gateways are warned of")
}
