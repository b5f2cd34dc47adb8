package analyze

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// front is a gateway of namespace edge, with a Service for it and one behind it.
const front = `
{apiVersion: v1, kind: Service, metadata: {name: edge, namespace: edge}, spec: {selector: {app: edge, istio: edge}, ports: [
  {name: http, port: 80}, {name: https, port: 443}, {name: tcp, port: 31400}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: edge}, spec: {clusterIP: 10.9.0.1, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: tcp, namespace: edge}, spec: {clusterIP: 10.9.0.2, ports: [{name: tcp, port: 9000}]}}
---
`

// frontPod is the Pod of that gateway, with its ServiceAccount.
const frontPod = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: edge, namespace: edge}}
---
{apiVersion: v1, kind: Pod, metadata: {name: edge-1, namespace: edge, labels: {app: edge, istio: edge}}, spec: {serviceAccountName: edge,
  containers: [{name: istio-proxy, image: "istio/proxyv2:1.27", args: [proxy, router]}]}, status: {phase: Running, podIP: 10.1.0.10,
  conditions: [{type: Ready, status: "True"}]}}
---
`

// may is a RoleBinding that lets the gateway read Secrets.
const may = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: edge, namespace: edge}, rules: [
  {apiGroups: [""], resources: [secrets], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: edge, namespace: edge}, roleRef: {kind: Role, name: edge,
  apiGroup: rbac.authorization.k8s.io}, subjects: [{kind: ServiceAccount, name: edge, namespace: edge}]}
---
`

// https is a Gateway with a server of a TLS mode, whose Secret is edge/cert.
func https(mode string) string {
	return strings.ReplaceAll(`{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: g, namespace: edge}, spec: {
  selector: {istio: edge}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, tls: {mode: MODE, credentialName: cert},
  hosts: [a.example.com]}]}}
---
`, "MODE", mode)
}

const (
	// plainTCP is a Gateway with a TCP server; two VirtualServices have a rule for it.
	plainTCP = `{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: g, namespace: edge}, spec: {selector: {istio: edge},
  servers: [{port: {number: 31400, name: tcp, protocol: TCP}, hosts: ["*"]}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: one, namespace: edge}, spec: {hosts: ["*"], gateways: [g],
  tcp: [{route: [{destination: {host: tcp}}]}]}}
---
`
	second = `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: two, namespace: edge}, spec: {hosts: ["*"], gateways: [g],
  tcp: [{route: [{destination: {host: tcp}}]}]}}
---
`
	local = `{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: g, namespace: edge}, spec: {selector: {istio: edge},
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: local, namespace: edge}, spec: {hosts: [l.example.com],
  ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: ADDRESS}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: edge}, spec: {hosts: ["l.example.com"],
  gateways: [g], http: [{route: [{destination: {host: l.example.com}}]}]}}
---
`
	filter = `{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: f, namespace: edge}, spec: {
  workloadSelector: {labels: {istio: edge}}, configPatches: [{applyTo: NETWORK_FILTER, match: {context: GATEWAY, listener: {filterChain: {
  filter: {name: envoy.filters.network.http_connection_manager}}}}, patch: {operation: MERGE, value: {typed_config: {
  "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, FIELD: 2}}}}]}}
---
`
)

// leading is a Gateway with an HTTP server, and a VirtualService that leads from it to a host.
func leading(to string) string {
	return strings.ReplaceAll(`{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: g, namespace: edge}, spec: {selector: {istio: edge},
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: edge}, spec: {hosts: ["a.example.com"],
  gateways: [g], http: [{route: [{destination: {host: TO, port: {number: 80}}}]}]}}
---
`, "TO", to)
}

// sidecar is a Pod with a sidecar, and a rule whose credentialName only gateways use.
const sidecar = `
{apiVersion: v1, kind: Pod, metadata: {name: app-1, namespace: edge, labels: {app: app, security.istio.io/tlsMode: istio}}, spec: {containers: [
  {name: app, image: a}, {name: istio-proxy, image: "istio/proxyv2:1.27"}]}, status: {phase: Running, podIP: 10.1.0.11, conditions: [
  {type: Ready, status: "True"}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: tls, namespace: edge}, spec: {host: web, trafficPolicy: {
  tls: {mode: SIMPLE, credentialName: c}}}}
---
`

// many has more services than are planned for one proxy.
var many = func() string {
	var out strings.Builder
	for i := range mostHosts + 1 {
		fmt.Fprintf(&out, "{apiVersion: v1, kind: Service, metadata: {name: s%d, namespace: many}, spec: {ports: [{name: http, port: 80}]}}\n---\n", i)
	}
	return out.String()
}()

// render plans the proxy that it is given; analyze plans those that the objects describe, and reports the same.
func TestPlansOfProxiesAreAnalysed(t *testing.T) {
	tests := []struct {
		name, files string
		want        []string // parts of the findings, in order; of further ones only infos are allowed
	}{
		{"the CA of OPTIONAL_MUTUAL is missing", front + frontPod + may + https("OPTIONAL_MUTUAL") + "@CERT60@",
			[]string{"[IST0101] (Gateway edge/g files/in.yaml:24) spec.servers[0].tls.credentialName: there is neither a Secret edge/cert-cacert"}},
		{"SIMPLE needs none", front + frontPod + may + https("SIMPLE") + "@CERT60@", nil},
		{"no binding lets the Secret be used", front + frontPod + https("SIMPLE") + "@CERT60@",
			[]string{"no RoleBinding of namespace edge"}},
		{"bindings of a gateway without ServiceAccount are elsewhere",
			front + strings.TrimPrefix(frontPod, "\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: edge, namespace: edge}}\n---") +
				https("SIMPLE") + "@CERT60@", nil},
		{"two connect at an assumed router", front + plainTCP + second,
			[]string{"[IST0145] (VirtualService edge/two", "at port 31400 of gateway workloads in namespace edge belong to VirtualService edge/one"}},
		{"one connects", front + plainTCP, nil},
		{"a local destination", front + strings.ReplaceAll(local, "ADDRESS", "127.0.0.1"), []string{"a loopback address is the gateway's own Pod"}},
		{"of a gateway on the loopback itself", front + strings.ReplaceAll(frontPod, "10.1.0.10", "127.0.0.9") +
			strings.ReplaceAll(local, "ADDRESS", "127.0.0.1"), nil},
		{"another destination", front + strings.ReplaceAll(local, "ADDRESS", "10.1.0.9"), nil},
		{"a field of a patch", strings.ReplaceAll(filter, "FIELD", "xff_num_trusted_hops"), nil},
		{"an unknown field of a patch", strings.ReplaceAll(filter, "FIELD", "xff_num_trusted_hop"), []string{`unknown field "xff_num_trusted_hop"`}},
		{"a destination that is not there is found once", front + leading("nope"), []string{`no service has host "nope.edge.svc.cluster.local"`}},
		{"a Secret that is not there is found once", front + frontPod + may + https("SIMPLE") +
			"{apiVersion: v1, kind: Secret, metadata: {name: other, namespace: edge}, type: Opaque}", []string{"Secret edge/cert does not exist"}},
		{"a rule that sidecars do not follow", front + sidecar, []string{"DestinationRule edge/tls", "is for gateways, and for the sidecars of a rule"}},
		{"no sidecar", front + sidecar[strings.Index(sidecar, "---"):], nil},
		{"two connect in a large mesh", many + front + plainTCP + second, []string{"[IST0145] (VirtualService edge/two"}},
		{"a destination in a large mesh", many + front + leading("s7.many.svc.cluster.local"), nil},
		{"none in a large mesh", many + front + leading("t7.many.svc.cluster.local"), []string{`no service has host "t7.many.svc.cluster.local"`}},
		{"an unknown field of a patch in a large mesh", many + strings.ReplaceAll(filter, "FIELD", "x"), []string{`unknown field "x"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var found []Finding
			for _, f := range Run(input(t, []txtar.File{{Name: "in.yaml", Data: []byte(test.files)}}, "in"), config) {
				if f.Severity != "Info" && f.Code != "IST0103" && f.Code != "NAV1011" && f.Code != "NAV1001" {
					found = append(found, f)
				}
			}
			text := lines(found, "")
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not found", want)
				}
			}
			if limit := min(1, len(test.want)); len(found) > limit {
				t.Errorf("%d findings, want %d", len(found), limit)
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}
