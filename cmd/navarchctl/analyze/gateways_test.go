package analyze

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// A Pod with the labels of another namespace's Gateway is a router of the Gateway, or with OwnGateways a sidecar.
func TestOwnGateways(t *testing.T) {
	const objects = `@CERT60@
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: edge, security.istio.io/tlsMode: istio}},
  spec: {containers: [{name: istio-proxy, image: p}]}, status: {podIP: 10.0.0.1, phase: Running}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: edge, namespace: edge}, spec: {selector: {app: edge}, servers: [
  {port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: cert}}]}}
`
	in := input(t, []txtar.File{{Name: "both/cluster.yaml", Data: []byte(objects)}}, "both")
	for _, own := range []bool{false, true} {
		config := config
		config.Normal.OwnGateways = own
		if got := lines(Run(in, config), "IST0101"); own == strings.Contains(got, "Secret shop/cert does not exist") {
			t.Errorf("OwnGateways %v: %s", own, got)
		}
		if got := newWorld(in, config).sidecars()["shop"]; own != (len(got) == 1) {
			t.Errorf("OwnGateways %v: sidecars %v", own, got)
		}
	}
}
