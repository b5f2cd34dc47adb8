package analyze

import (
	"fmt"
	"testing"

	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/object"
)

// mesh returns the objects of files: services in namespaces of 100, and half as many VirtualServices, some at gateways,
// with a workload, a DestinationRule and an AuthorizationPolicy for every tenth service.
func mesh(t testing.TB, services int) Input {
	t.Helper()
	var in Input
	put := func(group, version, kind, namespace, name, body string) {
		raw, err := yaml.YAMLToJSON(fmt.Appendf(nil, "{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %s}, %s}", version, kind, name,
			namespace, body))
		if err != nil {
			t.Fatal(err)
		}
		id := object.ID{Origin: Origin, Group: group, Kind: kind, Namespace: namespace, Name: name}
		in.Events = append(in.Events, object.Event{Op: object.Put, ID: id, Object: &object.Object{ID: id, Version: version, JSON: raw,
			Location: "mesh.yaml#1"}})
	}
	for i := range services {
		namespace, name := fmt.Sprintf("n%d", i/100), fmt.Sprintf("s%d", i)
		put("", "v1", "Service", namespace, name, fmt.Sprintf(
			"spec: {selector: {app: %s}, ports: [{name: http, port: 80}, {name: grpc, port: 81}]}", name))
		if i%2 == 0 {
			gateways := ""
			if i%20 == 0 {
				gateways = fmt.Sprintf(", gateways: [edge/g%d]", i%200)
			}
			put("networking.istio.io", "v1", "VirtualService", namespace, name, fmt.Sprintf("spec: {hosts: [%s.example.com]%s, http: ["+
				"{match: [{uri: {prefix: /a}}], route: [{destination: {host: %s, port: {number: 80}}}]}, {route: ["+
				"{destination: {host: %s, port: {number: 81}}, weight: 90}, {destination: {host: s%d, port: {number: 81}}, weight: 10}]}]}",
				name, gateways, name, name, i/100*100))
		}
		if i%10 == 0 {
			put("apps", "v1", "Deployment", namespace, name, fmt.Sprintf(
				"spec: {template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: app, image: a}]}}}", name))
			put("networking.istio.io", "v1", "DestinationRule", namespace, name, fmt.Sprintf(
				"spec: {host: %s, subsets: [{name: v1, labels: {version: v1}}]}", name))
			put("security.istio.io", "v1", "AuthorizationPolicy", namespace, name, fmt.Sprintf(
				"spec: {selector: {matchLabels: {app: %s}}, rules: [{}]}", name))
		}
	}
	for i := range 10 {
		put("networking.istio.io", "v1", "Gateway", "edge", fmt.Sprintf("g%d", 20*i), fmt.Sprintf(
			"spec: {selector: {app: edge}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ['*']}]}", 8000+i))
	}
	return in
}

// 5,000 VirtualServices and 10,000 Services, beside others, are analyzed in at most a second on one core.
func BenchmarkAnalyze(b *testing.B) {
	in := mesh(b, 10_000)
	for b.Loop() {
		if len(Run(in, config)) == 0 {
			b.Fatal("nothing is found")
		}
	}
}

// Twice the objects are twice the work, in allocations.
func TestWorkGrowsWithTheObjects(t *testing.T) {
	work := func(services int) float64 {
		in := mesh(t, services)
		return testing.AllocsPerRun(1, func() { Run(in, config) })
	}
	if one, two := work(500), work(1000); two > 2.3*one {
		t.Errorf("%.0f allocations for 500 services, %.0f for 1,000", one, two)
	}
}
