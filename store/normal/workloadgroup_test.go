package normal

import (
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// The record of a WorkloadGroup has the fields from which WorkloadEntries are made, without address and probe.
func TestWorkloadGroup(t *testing.T) {
	group := func(spec string) *object.Object {
		return read(t, "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: vms, namespace: shop}\nspec: {"+spec+"}\n")
	}
	key := model.Key{Kind: model.KindWorkloadGroup, Namespace: "shop", Name: "vms"}
	for name, c := range map[string]struct {
		spec, want string
		problems   []string
	}{
		"an account": {"metadata: {labels: {app: web}, annotations: {a: b}}, template: {serviceAccount: vm, labels: {app: web}, ports: {http: 8080}, network: n1, weight: 3}",
			"metadata: {labels: {app: web}, annotations: {a: b}}\ntemplate: {serviceAccount: vm, labels: {app: web}, ports: {http: 8080}, network: n1, weight: 3}", nil},
		"none":       {"template: {}", "template: {serviceAccount: default}", nil},
		"an address": {"template: {address: 10.0.0.1, locality: r/z}", "template: {serviceAccount: default, locality: r/z}", []string{"warning spec.template.address: each machine has its own"}},
		"probes": {"template: {serviceAccount: vm}, probe: {periodSeconds: 5, httpGet: {port: 8080, scheme: HTTPS, path: /ready, httpHeaders: [{name: x-a, value: b}]}}",
			"template: {serviceAccount: vm}", nil},
		"probes by TCP":    {"template: {serviceAccount: vm}, probe: {tcpSocket: {port: 80}}", "template: {serviceAccount: vm}", nil},
		"probes by gRPC":   {"template: {serviceAccount: vm}, probe: {grpc: {port: 80}}", "template: {serviceAccount: vm}", nil},
		"probes by itself": {"template: {serviceAccount: vm}, probe: {exec: {command: [ls]}}", "template: {serviceAccount: vm}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := testNormal.Object(group(c.spec), &fake{})
			wantProblems(t, r.Problems, c.problems...)
			wantBody(t, r, key, c.want)
			if got := SourceObject(key); got != group("").ID {
				t.Errorf("its source is %v", got)
			}
		})
	}
	for spec, want := range map[string]string{
		"":                                 "spec.template: must not be empty",
		"metadata: {labels: {a: b}}":       "spec.template: must not be empty",
		"template: {ports: {http: 70000}}": "spec.template.ports[http]: port 70000",
		"template: {labels: {'a b': x}}":   "spec.template.labels: label key",
		"template: {}, metadata: {labels: {a: 'b c'}}":                            "spec.metadata.labels: label a=",
		"template: {}, probe: {periodSeconds: 1}":                                 "spec.probe: one of httpGet, tcpSocket, exec and grpc is needed",
		"template: {}, probe: {exec: {}}":                                         "spec.probe.exec.command: must not be empty",
		"template: {}, probe: {tcpSocket: {}}":                                    "spec.probe.tcpSocket.port: port 0",
		"template: {}, probe: {grpc: {port: 65536}}":                              "spec.probe.grpc.port: port 65536",
		"template: {}, probe: {httpGet: {port: 0}}":                               "spec.probe.httpGet.port: port 0",
		"template: {}, probe: {httpGet: {port: 1, scheme: http}}":                 `spec.probe.httpGet.scheme: "http" is not HTTP or HTTPS`,
		"template: {}, probe: {httpGet: {port: 1, httpHeaders: [{name: 'a b'}]}}": `spec.probe.httpGet.httpHeaders[0].name: "a b" is no header name`,
		"template: {}, probe: {timeoutSeconds: -1, tcpSocket: {port: 1}}":         "spec.probe.timeoutSeconds: -1 is negative",
		"template: {}, probe: {failureThreshold: -1, tcpSocket: {port: 1}}":       "spec.probe.failureThreshold: -1 is negative",
	} {
		r := testNormal.Object(group(spec), &fake{})
		wantProblems(t, r.Problems, want)
		if !r.Spoiled {
			t.Errorf("%s is taken", spec)
		}
	}
}
