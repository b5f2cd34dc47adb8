package normal

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// What Istio's webhook refuses, and istiod draws all the same where it is there: a warning, and a refusal for the webhook; the records stand.
func TestRefused(t *testing.T) {
	route := "http: [{route: [{destination: {host: a}}]}]"
	for _, c := range []struct{ kind, spec, field string }{
		{"VirtualService", "{hosts: [a, a], " + route + "}", "spec.hosts[1]"},
		{"VirtualService", "{hosts: ['*.a.com', www.a.com], " + route + "}", "spec.hosts[1]"},
		{"VirtualService", "{hosts: ['*'], " + route + "}", "spec.hosts[0]"},
		{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {':path': /}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[:path]"},
		{"VirtualService", "{hosts: [a], http: [{headers: {response: {remove: [Host]}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.response.remove[0]"},
		{"VirtualService", "{hosts: [a], http: [{match: [{method: {prefix: ''}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].method.prefix"},
		{"VirtualService", "{hosts: [a], http: [{corsPolicy: {allowOrigins: [{}]}, route: [{destination: {host: a}}]}]}", "spec.http[0].corsPolicy.allowOrigins[0]"},
		{"VirtualService", "{hosts: [a], http: [{match: [{headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].headers[@request.auth.claims.group]"},
		{"VirtualService", "{hosts: [a], gateways: [mesh], http: [{match: [{withoutHeaders: {'@request.auth.claims[group]': {}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].withoutHeaders[@request.auth.claims[group]]"},
		{"DestinationRule", "{host: a, trafficPolicy: {}}", "spec.trafficPolicy"},
		{"DestinationRule", "{host: a, trafficPolicy: {connectionPool: {}}}", "spec.trafficPolicy.connectionPool"},
		{"DestinationRule", "{host: a, trafficPolicy: {portLevelSettings: [{port: {number: 1}}]}}", "spec.trafficPolicy.portLevelSettings[0]"},
		{"DestinationRule", "{host: a, trafficPolicy: {tunnel: {protocol: GET, targetHost: b, targetPort: 1}}}", "spec.trafficPolicy.tunnel.protocol"},
		{"DestinationRule", "{host: a, subsets: [{name: v1.0}]}", "spec.subsets[0].name"},
		{"ServiceEntry", "{hosts: [a.com], ports: [{number: 80, name: a_b, protocol: HTTP}], resolution: DNS}", "spec.ports[0].name"},
		{"Sidecar", "{ingress: [{port: {number: 80, name: a_b, protocol: HTTP}}]}", "spec.ingress[0].port.name"},
		{"Sidecar", "{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: a, port: {}}}}", "spec.outboundTrafficPolicy.egressProxy.port.number"},
		{"EnvoyFilter", "{configPatches: [{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {}}}}, patch: {operation: REMOVE}}]}", "spec.configPatches[0].match.listener.filterChain.filter.name"},
		{"EnvoyFilter", "{configPatches: [{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: a, subFilter: {name: b}}}}}, patch: {operation: REMOVE}}]}", "spec.configPatches[0].match.listener.filterChain.filter.name"},
		{"EnvoyFilter", "{configPatches: [{applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {name: a, subFilter: {name: b}}}}}, patch: {operation: REMOVE}}]}", "spec.configPatches[0].match.listener.filterChain.filter.subFilter"},
		{"EnvoyFilter", "{configPatches: [{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.http_connection_manager, subFilter: {}}}}}, patch: {operation: REMOVE}}]}", "spec.configPatches[0].match.listener.filterChain.filter.subFilter.name"},
		{"RequestAuthentication", "{jwtRules: [{issuer: a, jwksUri: 'https://a/b', jwks: '" + oneKey + "'}]}", "spec.jwtRules[0].jwksUri"},
		{"AuthorizationPolicy", "{action: DENY}", "spec.rules"},
		{"AuthorizationPolicy", "{provider: {name: a}, rules: [{}]}", "spec.provider"},
		{"AuthorizationPolicy", "{action: CUSTOM, provider: {name: a}}", "spec.rules"},
		{"AuthorizationPolicy", "{action: CUSTOM, provider: {name: a}, rules: [{from: [{source: {namespaces: [a]}}]}]}", "spec.rules[0].from[0].source.namespaces"},
		{"AuthorizationPolicy", "{action: CUSTOM, provider: {name: a}, rules: [{from: [{source: {requestPrincipals: [a]}}]}]}", "spec.rules[0].from[0].source.requestPrincipals"},
		{"AuthorizationPolicy", "{action: CUSTOM, provider: {name: a}, rules: [{when: [{key: request.auth.audiences, values: [a]}]}]}", "spec.rules[0].when[0].key"},
		{"AuthorizationPolicy", "{action: CUSTOM, rules: [{}]}", "spec.provider"},
		{"AuthorizationPolicy", "{provider: {}, rules: [{}]}", "spec.provider"},
		{"AuthorizationPolicy", "{selector: {}, targetRefs: [{kind: Service, name: a}], rules: [{}]}", "spec.targetRefs"},
		{"AuthorizationPolicy", "{targetRef: {kind: Service, name: a}, targetRefs: [{kind: Service, name: a}], rules: [{}]}", "spec.targetRefs"},
		{"AuthorizationPolicy", "{targetRefs: [{kind: Service, group: core, name: a}, {kind: Pod, name: a}], rules: [{}]}", "spec.targetRefs[1].kind"},
		{"AuthorizationPolicy", "{targetRef: {kind: ServiceEntry, group: networking.istio.io}, rules: [{}]}", "spec.targetRef.name"},
		{"RequestAuthentication", "{targetRefs: [{kind: GatewayClass, group: gateway.networking.k8s.io, name: a, namespace: b}]}", "spec.targetRefs[0].namespace"},
		{"WasmPlugin", "{url: a.com/b, targetRefs: [{kind: Gateway, name: a}]}", "spec.targetRefs[0].kind"},
		{"WasmPlugin", "{url: a.com/b, targetRef: {kind: Service}}", "spec.targetRef.name"},
		{"TrafficExtension", "{lua: {inlineCode: a}, targetRefs: [{kind: Service}]}", "spec.targetRefs[0].name"},
		{"WorkloadEntry", "{address: 10.0.0.1, ports: {a_b: 80}}", "spec.ports[a_b]"},
		{"AuthorizationPolicy", "{rules: [{from: [{source: {}}]}]}", "spec.rules[0].from[0].source"},
		{"AuthorizationPolicy", "{rules: [{from: [{}]}]}", "spec.rules[0].from[0].source"},
		{"AuthorizationPolicy", "{rules: [{to: [{operation: {paths: ['']}}]}]}", "spec.rules[0].to[0].operation.paths"},
		{"AuthorizationPolicy", "{rules: [{when: [{key: source.port, values: ['1']}]}]}", "spec.rules[0].when[0].key"},
	} {
		r := testNormal.Object(read(t, istio(c.kind, c.spec)), &fake{})
		if len(r.Refused) != 1 || r.Refused[0].Field != c.field || r.Refused[0].Severity != problem.Warning || !slices.Contains(r.Problems, r.Refused[0]) {
			t.Errorf("%s %s: refused for %v, want %s; problems %v", c.kind, c.spec, r.Refused, c.field, r.Problems)
		}
		if r.Spoiled || len(r.Records) == 0 {
			t.Errorf("%s %s: it does not apply", c.kind, c.spec)
		}
	}
}

// What Istio admits although it may mean nothing applies, with a warning where it means nothing.
func TestAdmitted(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, c := range []struct{ kind, spec, warning string }{
		{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: '*.a'}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{match: [{uri: {}}], route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{match: [{uri: {prefix: ''}}], route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {':authority': b, Host: c}}}, route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{delegate: {namespace: b}}]}", "spec.http[0].delegate.name"},
		{"VirtualService", "{hosts: [a], gateways: [mesh, b], http: [{match: [{headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].headers[@request.auth.claims.group]"},
		{"VirtualService", "{http: [{match: [{headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].headers[@request.auth.claims.group]"},
		{"VirtualService", "{hosts: [a], gateways: [b], http: [{match: [{headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], gateways: [mesh, b], http: [{match: [{gateways: [b], headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", ""},
		{"DestinationRule", "{host: a, trafficPolicy: {loadBalancer: {consistentHash: {}}}}", "spec.trafficPolicy.loadBalancer.consistentHash"},
		{"DestinationRule", "{host: a, subsets: [{name: V1, labels: {a: " + long + "}}]}", "spec.subsets[0].labels"},
		{"DestinationRule", "{host: a, workloadSelector: {matchLabels: {a: 'b c'}}}", "spec.workloadSelector.matchLabels"},
		{"PeerAuthentication", "{selector: {matchLabels: {a: 'b c'}}}", "spec.selector.matchLabels"},
		{"Telemetry", "{tracing: [{customTags: {a: {}}}]}", "spec.tracing[0].customTags[a]"},
		{"Telemetry", "{metrics: [{overrides: [{tagOverrides: {'': {value: a}}}]}]}", "spec.metrics[0].overrides[0].tagOverrides"},
		{"EnvoyFilter", "{configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE, value: {}}}]}", "spec.configPatches[0].patch.value"},
		{"EnvoyFilter", "{configPatches: [{applyTo: LISTENER_FILTER, match: {cluster: {}}, patch: {operation: ADD, value: {}}}]}", "spec.configPatches[0].match"},
	} {
		r := testNormal.Object(read(t, istio(c.kind, c.spec)), &fake{})
		if r.Spoiled || len(r.Records) == 0 || len(r.Refused) > 0 || (len(r.Problems) == 1) != (c.warning != "") || c.warning != "" && r.Problems[0].Field != c.warning {
			t.Errorf("%s %s: %+v", c.kind, c.spec, r)
		}
	}
}

// However many warnings an object has, what spoils it is among its problems.
func TestErrorsAreNotHiddenByWarnings(t *testing.T) {
	rule := "{route: [{destination: {host: a}}]}, "
	r := testNormal.Object(read(t, istio("VirtualService", "{hosts: [a], http: ["+strings.Repeat(rule, 2*maxProblems)+"{route: [{destination: {host: '*'}}]}]}")), &fake{})
	if !r.Spoiled || len(r.Problems) != maxProblems || !slices.ContainsFunc(r.Problems, func(p object.Problem) bool { return p.Severity == problem.Error }) {
		t.Errorf("%d problems: %v", len(r.Problems), r.Problems)
	}
}
