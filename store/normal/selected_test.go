package normal

import (
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Promise: security-workloads.md#who-has-a-machines-token
func TestPodIsAWorkload(t *testing.T) {
	const object = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop}\n"
	pod := Pod{Labels: map[string]string{"app": "web", "security.istio.io/tlsMode": "istio"}, Node: "n1", ServiceAccount: "sa", Workload: "web", Address: "10.1.0.1"}
	key := model.Key{Kind: model.KindWorkload, Namespace: "shop", Name: "web-1"}
	for name, c := range map[string]struct {
		change func(*Pod)
		want   string // empty: no record
	}{
		"ready": {func(*Pod) {}, `{endpoint: {address: 10.1.0.1, labels: {app: web, security.istio.io/tlsMode: istio}, namespace: shop, serviceAccount: sa,
			workload: web, cluster: Kubernetes, locality: r/z, node: n1, mtls: true}}`},
		"not ready": {func(p *Pod) { p.NotReady, p.Labels = true, nil }, `{endpoint: {address: 10.1.0.1, health: HEALTH_NOT_READY, namespace: shop, serviceAccount: sa,
			workload: web, cluster: Kubernetes, locality: r/z, node: n1}}`},
		"terminating": {func(p *Pod) { p.Terminating, p.Labels = true, nil }, `{endpoint: {address: 10.1.0.1, health: HEALTH_DRAINING, namespace: shop, serviceAccount: sa,
			workload: web, cluster: Kubernetes, locality: r/z, node: n1}}`},
		"of two families": {func(p *Pod) { p.Labels, p.More = nil, []string{"fd00::1"} }, `{endpoint: {address: 10.1.0.1, namespace: shop, serviceAccount: sa,
			workload: web, cluster: Kubernetes, locality: r/z, node: n1}, moreAddresses: ["fd00::1"]}`},
		"without an address": {func(p *Pod) { p.Address = "" }, ""},
		"ended":              {func(p *Pod) { p.Ended = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod
			c.change(&p)
			r := testNormal.Object(read(t, object), &fake{pods: map[string]*Pod{"shop/web-1": &p}, nodes: map[string]*Node{"n1": {Locality: "r/z"}}})
			wantProblems(t, r.Problems)
			if c.want == "" {
				if len(r.Records) > 0 {
					t.Errorf("got %v", r.Records)
				}
				return
			}
			wantBody(t, r, key, c.want)
		})
	}
	if got := SourceObject(key); got != (read(t, object)).ID {
		t.Errorf("its source is %v", got)
	}
}

func TestParsePodStatus(t *testing.T) {
	pod, problems := ParsePod(read(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop, deletionTimestamp: '2026-01-01T00:00:00Z'}\nstatus: {phase: Failed, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}, {ip: 'fd00::1'}]}"))
	wantProblems(t, problems)
	if !pod.Terminating || !pod.Ended || pod.Address != "10.1.0.1" || len(pod.More) != 1 || pod.More[0] != "fd00::1" {
		t.Errorf("%+v", pod)
	}
	if one := (Pod{Address: pod.Address}); one.Equal(&Pod{Address: pod.Address, More: pod.More}) {
		t.Error("a Pod that has got another address is as it was")
	}
}

func TestWorkloadEntry(t *testing.T) {
	entry := func(metadata, spec, rest string) *object.Object {
		return read(t, "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm, namespace: shop"+metadata+"}\nspec: {"+spec+"}\n"+rest)
	}
	key := model.Key{Kind: model.KindWorkload, Namespace: "shop", Name: "workloadentry:vm"}
	for name, c := range map[string]struct {
		in   *object.Object
		want string
	}{
		"labels of the object come first": {entry(", labels: {app: web}", "address: 192.0.2.1, labels: {app: x, version: v1}, serviceAccount: sa, ports: {http: 81}, weight: 3, locality: r/z", ""),
			`{source: WORKLOAD_SOURCE_WORKLOAD_ENTRY, endpoint: {address: 192.0.2.1, labels: {app: web, version: v1}, namespace: shop, serviceAccount: sa, workload: vm, cluster: Kubernetes,
			  locality: r/z, weight: 3, mtls: true, ports: {http: 81}}}`},
		"a name, without an identity": {entry("", "address: vm.example.com, network: net1", ""),
			`{source: WORKLOAD_SOURCE_WORKLOAD_ENTRY, endpoint: {address: vm.example.com, namespace: shop, workload: vm, cluster: Kubernetes, network: net1}}`},
		"healthy": {entry(", annotations: {proxy.istio.io/health-checks-enabled: 'true'}", "address: 192.0.2.1", "status: {conditions: [{type: Healthy, status: 'True'}]}"),
			`{source: WORKLOAD_SOURCE_WORKLOAD_ENTRY, endpoint: {address: 192.0.2.1, namespace: shop, workload: vm, cluster: Kubernetes}}`},
		"not known to be healthy": {entry(", annotations: {proxy.istio.io/health-checks-enabled: 'true'}", "address: 192.0.2.1", ""),
			`{source: WORKLOAD_SOURCE_WORKLOAD_ENTRY, endpoint: {address: 192.0.2.1, health: HEALTH_NOT_READY, namespace: shop, workload: vm, cluster: Kubernetes}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := testNormal.Object(c.in, &fake{})
			wantProblems(t, r.Problems)
			wantBody(t, r, key, c.want)
			if got := SourceObject(key); got != c.in.ID {
				t.Errorf("its source is %v", got)
			}
		})
	}
	for spec, want := range map[string]string{
		"":                                    "spec.address: must not be empty",
		"address: 'a b'":                      `spec.address: "a b" is no valid host name`,
		"address: 'unix://x'":                 `spec.address: "unix://x" is not an absolute path`,
		"address: 'unix:///x', ports: {a: 1}": "spec.ports: a Unix socket has no ports",
		"address: 192.0.2.1, ports: {http: 70000}": "spec.ports[http]: port 70000",
		"address: 192.0.2.1, labels: {'a b': x}":   "spec.labels: label key",
	} {
		r := testNormal.Object(entry("", spec, ""), &fake{})
		wantProblems(t, r.Problems, want)
		if !r.Spoiled {
			t.Errorf("%s is taken", spec)
		}
	}
	if r := testNormal.Object(entry("", "network: net1", ""), &fake{}); len(r.Records) != 1 || len(r.Problems) > 0 || r.Records[0].(*model.Workload).Spec.Endpoint.Network != "net1" {
		t.Errorf("one that gateways of its network reach: %v %v", r.Records, r.Problems)
	}
}
