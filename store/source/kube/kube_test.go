//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/store/object"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// listen runs a source of a control plane until the test ends.
func listen(t *testing.T, c *controlplane.ControlPlane, tune func(*Config)) *recorder {
	t.Helper()
	config := Config{Kubeconfig: c.Kubeconfig(), Discover: 200 * time.Millisecond}
	if tune != nil {
		tune(&config)
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return hear(t, s)
}

func virtualService(name, timeout string) string {
	return fmt.Sprintf(`{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": %q},
		"spec": {"hosts": ["a.example.com"], "http": [{"timeout": %q, "route": [{"destination": {"host": "web"}}]}]}}`, name, timeout)
}

// everyKind is one object of each kind that is namespaced and read.
const everyKind = `
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {networking.istio.io/exportTo: .}}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.244.0.9]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: imported, labels: {multicluster.kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.244.0.8]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio}
data: {mesh: "{}"}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r}
rules: [{apiGroups: [""], resources: [secrets], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}
subjects: [{kind: ServiceAccount, name: web}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v}
spec: {hosts: [a.example.com], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d}
spec: {host: web}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e}
spec: {hosts: [b.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: w}
spec: {address: 10.1.2.3}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: g}
spec: {template: {serviceAccount: vm}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default}
spec: {egress: [{hosts: ["./*"]}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: f}
spec: {configPatches: []}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g}
spec: {selector: {a: b}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: p}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: a}
spec: {}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: t}
spec: {}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: h}
spec: {parentRefs: [{name: g}]}
`

// Every kind is emitted, with the fields that records need and no others; of mesh configurations only that of the
// system namespace. An edit is one event, a deletion is one, and a heartbeat causes no event.
func TestKubeKinds(t *testing.T) {
	c := controlplane.Shared(t)
	ns := c.Namespace(t)
	e := listen(t, c, nil)
	e.untilSynced()
	c.Kubectl(t, everyKind, "-n", ns, "apply", "-f", "-")
	c.RunPod(t, ns, "web-1", "n1", "10.244.0.9", map[string]string{"app": "web"})
	const all = "AuthorizationPolicy a, DestinationRule d, EndpointSlice web-1, EnvoyFilter f, Gateway g, HTTPRoute h, PeerAuthentication p, Pod web-1, " +
		"Role r, RoleBinding b, Service web, ServiceAccount web, ServiceEntry e, Sidecar default, Telemetry t, VirtualService v, WorkloadEntry w, WorkloadGroup g"
	e.untilNames(ns, all)
	e.until(func() string {
		if o := e.objects[object.ID{Origin: e.s.Origin(), Kind: "Pod", Namespace: ns, Name: "web-1"}]; !strings.Contains(string(o.JSON), `"podIP":"10.244.0.9"`) {
			return "the Pod has no address: " + string(o.JSON)
		}
		return ""
	})
	pod := e.find("Pod", ns, "web-1")
	for _, dropped := range []string{"containers\":[", "managedFields", "startTime", "resourceVersion"} {
		if strings.Contains(string(pod.JSON), dropped) {
			t.Errorf("a Pod is emitted with its %s: %s", dropped, pod.JSON)
		}
	}
	if pod.UID == "" || pod.Created.IsZero() || pod.Labels["app"] != "web" || pod.Version != "v1" {
		t.Errorf("the Pod: %+v", pod)
	}
	if svc := e.find("Service", ns, "web"); svc.Annotations["networking.istio.io/exportTo"] != "." || len(svc.Annotations) != 1 {
		t.Errorf("the Service's annotations: %v", svc.Annotations)
	}
	if route := e.find("HTTPRoute", ns, "h"); strings.Contains(string(route.JSON), "spec") {
		t.Errorf("a kind of which no record is made is emitted in full: %s", route.JSON)
	}
	var vs struct{ Spec struct{ Hosts []string } }
	if o := e.find("VirtualService", ns, "v"); json.Unmarshal(o.JSON, &vs) != nil || len(vs.Spec.Hosts) != 1 || o.Version != "v1" {
		t.Errorf("the VirtualService: %s", o.JSON)
	}
	e.mu.Lock()
	before := len(e.events)
	e.mu.Unlock()
	// The status of the Pod changes where no record reads it, and its object so much as a version; then the VirtualService
	// is edited.
	c.Kubectl(t, "", "-n", ns, "patch", "pod", "web-1", "--subresource=status", "-p", `{"status": {"message": "still here"}}`)
	c.Kubectl(t, virtualService("v", "3s"), "-n", ns, "apply", "-f", "-")
	c.Kubectl(t, "", "-n", ns, "delete", "authorizationpolicy", "a")
	e.untilNames(ns, strings.TrimPrefix(all, "AuthorizationPolicy a, "))
	e.mu.Lock()
	defer e.mu.Unlock()
	var got []string
	for _, event := range e.events[before:] {
		if event.ID.Namespace == ns {
			got = append(got, fmt.Sprint(event.Op, " ", event.ID.Kind))
		}
	}
	if slices.Sort(got); !slices.Equal(got, []string{"1 VirtualService", "2 AuthorizationPolicy"}) {
		t.Errorf("emitted %v", got)
	}
}
