package normal

import (
	"testing"

	"navarch.io/navarch/store/model"
)

func key(kind model.Kind, name string) model.Key {
	return model.Key{Kind: kind, Namespace: "shop", Name: name}
}

func TestVirtualServiceNames(t *testing.T) {
	r := testNormal.Object(read(t, istio("VirtualService", `
hosts: [Reviews, "*.example.com", ratings.backend]
gateways: [gw, ./own, other/gw, gw.far.svc.cluster.local, mesh]
exportTo: [".", zone]
http:
- match: [{gateways: [gw]}]
  route: [{destination: {host: reviews, subset: v1}, weight: 1}, {destination: {host: Ratings.backend}, weight: 1}]
  mirror: {host: shadow}
- match: [{port: 80}]
  mirrors: [{destination: {host: shadow}}]
  route: [{destination: {host: reviews.far.svc.cluster.local}}]
- delegate: {name: child}
tls:
- match: [{sniHosts: [A.example.com], gateways: [mesh]}]
  route: [{destination: {host: secure}}]
tcp:
- match: [{gateways: [./own]}]
  route: [{destination: {host: plain}}]
`)), &fake{})
	wantProblems(t, r.Problems, `warning spec.gateways[1]: "./own": write the VirtualService`, `warning spec.tcp[0].match[0].gateways[0]: "./own"`)
	wantBody(t, r, key(model.KindVirtualService, "x"), `
hosts: ["*.example.com", ratings.backend, reviews.shop.svc.cluster.local]
gateways: [far/gw, mesh, other/gw, shop/gw, shop/own]
exportTo: [shop, zone]
http:
- match: [{gateways: [shop/gw]}]
  route: [{destination: {host: reviews.shop.svc.cluster.local, subset: v1}, weight: 1}, {destination: {host: ratings.backend}, weight: 1}]
  mirror: {host: shadow.shop.svc.cluster.local}
- match: [{port: 80}]
  mirrors: [{destination: {host: shadow.shop.svc.cluster.local}}]
  route: [{destination: {host: reviews.far.svc.cluster.local}}]
- delegate: {name: child, namespace: shop}
tls:
- match: [{sniHosts: [a.example.com], gateways: [mesh]}]
  route: [{destination: {host: secure.shop.svc.cluster.local}}]
tcp:
- match: [{gateways: [shop/own]}]
  route: [{destination: {host: plain.shop.svc.cluster.local}}]
`)
	delegate := testNormal.Object(read(t, istio("VirtualService", "{http: [{route: [{destination: {host: a}}]}]}")), &fake{})
	wantBody(t, delegate, key(model.KindVirtualService, "x"), `{http: [{route: [{destination: {host: a.shop.svc.cluster.local}}]}], exportTo: ["*"]}`)
}

func TestVirtualServiceProblems(t *testing.T) {
	to := "route: [{destination: {host: a}}]"
	for http, want := range map[string][]string{
		"{}":                         {"spec.http[0]: exactly one of route, redirect and directResponse is needed"},
		to + ", redirect: {uri: /}":  {"spec.http[0]: exactly one of route, redirect and directResponse is needed, not redirect and route"},
		"delegate: {name: a}, " + to: {"spec.http[0].delegate: cannot be combined with route"},
		"route: [{destination: {host: a}, weight: -1}, {destination: {host: b}, weight: 2}]": {"spec.http[0].route[0].weight: must not be negative"},
		"route: [{destination: {host: a}}, {destination: {host: b}}]":                        {"spec.http[0].route: the sum of the weights is 0"},
		"route: [{weight: 1}]":                                              {"spec.http[0].route[0].destination: must not be empty"},
		"route: [{destination: {host: '*'}}]":                               {`spec.http[0].route[0].destination.host: "*" matches every host`},
		"route: [{destination: {host: a, port: {number: 70000}}}]":          {"spec.http[0].route[0].destination.port.number: port 70000"},
		"match: [{uri: {regex: '('}}], " + to:                               {"spec.http[0].match[0].uri.regex: is no regular expression"},
		"match: [{headers: {'a b': {exact: x}}}], " + to:                    {`spec.http[0].match[0].headers[a b]: "a b" is no header name`},
		"match: [{sourceLabels: {a: 'b c'}}], " + to:                        {"spec.http[0].match[0].sourceLabels: label a"},
		"match: [{port: 70000}], " + to:                                     {"spec.http[0].match[0].port: port 70000"},
		"match: [{gateways: ['a/b/c']}], " + to:                             {`spec.http[0].match[0].gateways[0]: "a/b/c" is no gateway`},
		"timeout: 10us, " + to:                                              {"spec.http[0].timeout: must be at least 1ms"},
		"retries: {attempts: -1}, " + to:                                    {"spec.http[0].retries.attempts: must not be negative"},
		"retries: {attempts: 2, retryOn: '5xx,503,sometimes'}, " + to:       {`spec.http[0].retries.retryOn: "sometimes"`},
		"fault: {}, " + to:                                                  {"spec.http[0].fault: at least one of delay and abort"},
		"fault: {delay: {fixedDelay: 1s, percentage: {value: 101}}}, " + to: {"spec.http[0].fault.delay.percentage.value: 101 is not in 0-100"},
		"fault: {abort: {httpStatus: 99}}, " + to:                           {"spec.http[0].fault.abort.httpStatus: 99"},
		"fault: {abort: {grpcStatus: BAD}}, " + to:                          {`spec.http[0].fault.abort.grpcStatus: "BAD"`},
		"redirect: {}":                          {"spec.http[0].redirect: at least one of"},
		"redirect: {uri: /, redirectCode: 200}": {"spec.http[0].redirect.redirectCode: 200"},
		"directResponse: {status: 99}":          {"spec.http[0].directResponse.status: 99"},
		"rewrite: {}, " + to:                    {"spec.http[0].rewrite: at least one of"},
		"rewrite: {uri: /, uriRegexRewrite: {match: a, rewrite: b}}, " + to: {"spec.http[0].rewrite: uri and uriRegexRewrite"},
		"mirror: {host: a}, mirrors: [{destination: {host: a}}], " + to:     {"spec.http[0].mirrors: cannot be combined with mirror"},
		"mirrors: [{percentage: {value: 3}}], " + to:                        {"spec.http[0].mirrors[0].destination: must not be empty"},
		"headers: {request: {set: {'a b': c}}}, " + to:                      {"spec.http[0].headers.request.set[a b]"},
		"corsPolicy: {allowOrigins: [{regex: '['}]}, " + to:                 {"spec.http[0].corsPolicy.allowOrigins[0].regex: is no regular"},
	} {
		r := testNormal.Object(read(t, istio("VirtualService", "{hosts: [a], http: [{"+trimBraces(http)+"}]}")), &fake{})
		wantProblems(t, r.Problems, want...)
		if !r.Spoiled || len(r.Records) > 0 {
			t.Errorf("%s: was taken", http)
		}
	}
	for spec, want := range map[string]string{
		"{hosts: [a]}": "spec: at least one of http, tls and tcp",
		"{hosts: ['2001:db8::1%a.b'], http: [{" + to + "}]}":                    `spec.hosts[0]: "2001:db8::1%a.b" must have no zone`,
		"{hosts: ['*a.b'], http: [{" + to + "}]}":                               `spec.hosts[0]: "*a.b" a wildcard must be a whole label`,
		"{gateways: [a], http: [{" + to + "}]}":                                 "spec.hosts: must not be empty",
		"{hosts: [a], exportTo: [a, A_B], http: [{" + to + "}]}":                `spec.exportTo: "A_B" is no namespace`,
		"{hosts: [a], tcp: [{}]}":                                               "spec.tcp[0].route: must not be empty",
		"{hosts: [a], tls: [{match: [{sniHosts: [b]}], " + to + "}]}":           `spec.tls[0].match[0].sniHosts[0]: "b" is not covered by spec.hosts`,
		"{hosts: [a], tcp: [{match: [{destinationSubnets: [x]}], " + to + "}]}": `spec.tcp[0].match[0].destinationSubnets[0]: "x" is no IP address`,
		"{hosts: [a], http: [{" + to + "}, {" + to + "}]}":                      "warning spec.http[1]: never used",
	} {
		wantProblems(t, testNormal.Object(read(t, istio("VirtualService", spec)), &fake{}).Problems, want)
	}
}

func trimBraces(s string) string {
	if s == "{}" {
		return ""
	}
	return s
}

func TestDestinationRule(t *testing.T) {
	r := testNormal.Object(read(t, istio("DestinationRule", "{host: Reviews, exportTo: ['~'], subsets: [{name: v2, labels: {version: v2}}, {name: v1}], trafficPolicy: {loadBalancer: {simple: RANDOM}}}")), &fake{})
	wantProblems(t, r.Problems, `warning spec.exportTo: "~" (nobody) is for`)
	wantBody(t, r, key(model.KindDestinationRule, "x"), `{host: reviews.shop.svc.cluster.local, exportTo: ["~"], subsets: [{name: v1}, {name: v2, labels: {version: v2}}], trafficPolicy: {loadBalancer: {simple: RANDOM}}}`)
	for spec, want := range map[string]string{
		"{}": `spec.host: "" must not be empty`,
		"{host: a, subsets: [{name: a}, {name: a}]}": `spec.subsets[1].name: "a" is used twice`,
		"{host: a, subsets: [{}]}":                   "spec.subsets[0].name: must not be empty",
		"{host: a, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 10}}}}}": "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: 10 is no prime",
		"{host: a, trafficPolicy: {loadBalancer: {warmup: {duration: 30s, aggression: 0}}}}":                       "spec.trafficPolicy.loadBalancer.warmup.aggression: must be greater than 0",
		"{host: a, trafficPolicy: {loadBalancer: {warmup: {duration: 30s, aggression: NaN}}}}":                     "spec.trafficPolicy.loadBalancer.warmup.aggression: must be greater than 0",
		"{host: a, trafficPolicy: {connectionPool: {tcp: {maxConnections: -1}}}}":                                  "spec.trafficPolicy.connectionPool.tcp.maxConnections: must not be negative",
		"{host: a, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 0s}}}}":                                  "spec.trafficPolicy.connectionPool.tcp.connectTimeout: must be at least 1ms",
		"{host: a, trafficPolicy: {outlierDetection: {maxEjectionPercent: 101}}}":                                  "spec.trafficPolicy.outlierDetection.maxEjectionPercent: 101",
		"{host: a, trafficPolicy: {outlierDetection: {failurePercentageThreshold: 101}}}":                          "spec.trafficPolicy.outlierDetection.failurePercentageThreshold: 101",
		"{host: a, trafficPolicy: {tls: {mode: MUTUAL, clientCertificate: a}}}":                                    "spec.trafficPolicy.tls.privateKey: mode MUTUAL needs it",
		"{host: a, trafficPolicy: {portLevelSettings: [{tls: {}}]}}":                                               "spec.trafficPolicy.portLevelSettings[0].port.number: port 0",
		"{host: a, trafficPolicy: {loadBalancer: {localityLbSetting: {distribute: [{from: a, to: {b: 50}}]}}}}":    "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to: the weights add up to 50",
	} {
		r := testNormal.Object(read(t, istio("DestinationRule", spec)), &fake{})
		wantProblems(t, r.Problems, want)
		if !r.Spoiled {
			t.Errorf("%s: was taken", spec)
		}
	}
}

func TestServiceEntry(t *testing.T) {
	r := testNormal.Object(read(t, istio("ServiceEntry", `
hosts: [B.example.com, a.example.com]
addresses: [240.0.0.2, 10.0.0.0/8]
location: MESH_INTERNAL
resolution: STATIC
exportTo: ["."]
ports: [{number: 443, name: tls, protocol: TLS}, {number: 80, name: http, protocol: HTTP, targetPort: 8080}]
endpoints:
- {address: 10.0.0.2, locality: r/z, weight: 3, network: far, serviceAccount: sa}
- {address: 10.0.0.1, labels: {app: a, security.istio.io/tlsMode: disabled}, serviceAccount: sa, ports: {http: 9080}}
`)), &fake{})
	wantProblems(t, r.Problems)
	wantBody(t, r, key(model.KindServiceEntry, "x"), `
hosts: [a.example.com, b.example.com]
addresses: [10.0.0.0/8, 240.0.0.2]
exportTo: [shop]
ports: [{number: 80, name: http, protocol: PROTOCOL_HTTP, targetNumber: 8080}, {number: 443, name: tls, protocol: PROTOCOL_TLS, targetNumber: 443}]
`)
	wantBody(t, r, key(model.KindEndpoints, "serviceentry:x"), `
hosts: [a.example.com, b.example.com]
ports: [{name: http, number: 8080, service: 80}, {name: tls, number: 443, service: 443}]
endpoints:
- {address: 10.0.0.1, labels: {app: a, security.istio.io/tlsMode: disabled}, namespace: shop, serviceAccount: sa, cluster: Kubernetes, ports: {http: 9080}}
- {address: 10.0.0.2, namespace: shop, serviceAccount: sa, cluster: Kubernetes, network: far, locality: r/z, weight: 3, mtls: true}
`)
	dns := testNormal.Object(read(t, istio("ServiceEntry", "{hosts: [a.com, b.com], resolution: DNS, ports: [{number: 80, name: http}]}")), &fake{})
	wantBody(t, dns, key(model.KindServiceEntry, "x"), `{hosts: [a.com, b.com], resolution: RESOLUTION_DNS, external: true, exportTo: ["*"], ports: [{number: 80, name: http, targetNumber: 80}]}`)
	for _, host := range []string{"a.com", "b.com"} {
		wantBody(t, dns, key(model.KindEndpoints, "serviceentry:x:"+host), `{hosts: [`+host+`], ports: [{name: http, number: 80, service: 80}], endpoints: [{address: `+host+`, namespace: shop}]}`)
	}
	beyond := testNormal.Object(read(t, istio("ServiceEntry", "{hosts: [a.com], resolution: STATIC, ports: [{number: 80, name: http}], endpoints: [{network: far, serviceAccount: sa}]}")), &fake{})
	wantProblems(t, beyond.Problems)
	wantBody(t, beyond, key(model.KindEndpoints, "serviceentry:x"), `{hosts: [a.com], ports: [{name: http, number: 80, service: 80}], endpoints: [{namespace: shop, serviceAccount: sa, cluster: Kubernetes, network: far, mtls: true}]}`)
	none := testNormal.Object(read(t, istio("ServiceEntry", "{hosts: ['*.a.com'], ports: [{number: 443, name: tls, protocol: TLS}]}")), &fake{})
	if len(none.Records) != 1 || none.Records[0].(*model.Service).Spec.Resolution != model.Resolution_RESOLUTION_NONE {
		t.Errorf("NONE: %v %v", none.Records, none.Problems)
	}
}

func TestServiceEntryProblems(t *testing.T) {
	port := "ports: [{number: 80, name: http}]"
	for spec, want := range map[string]string{
		"{" + port + "}":                                              "spec.hosts: at least one host",
		"{hosts: ['*'], " + port + "}":                                `spec.hosts[0]: "*" would match every host`,
		"{hosts: ['*.a.com'], resolution: DNS, " + port + "}":         `spec.hosts[0]: "*.a.com" has no address to resolve`,
		"{hosts: [a.com], addresses: [x], " + port + "}":              `spec.addresses[0]: "x" is no IP address or CIDR`,
		"{hosts: ['*.a.com'], resolution: DYNAMIC_DNS, " + port + "}": "warning spec.ports[0].protocol: \"\" carries no host name to resolve",
		"{hosts: ['*.a.com'], resolution: DYNAMIC_DNS, endpoints: [{address: b.com}], ports: [{number: 80, name: http, protocol: HTTP}]}": "warning spec.endpoints: with resolution DYNAMIC_DNS",
		"{hosts: [a.com], resolution: STATIC, " + port + "}":                                                                              "warning spec.endpoints: is empty",
		"{hosts: [a.com], resolution: NONE, endpoints: [{address: 1.1.1.1}], " + port + "}":                                               "spec.endpoints: with resolution NONE",
		"{hosts: [a.com], resolution: STATIC, endpoints: [{address: b.com}], " + port + "}":                                               `spec.endpoints[0].address: "b.com" is no IP address`,
		"{hosts: [a.com], resolution: STATIC, endpoints: [{}], " + port + "}":                                                             "spec.endpoints[0].address: must not be empty",
		"{hosts: [a.com], resolution: STATIC, endpoints: [{address: 1.1.1.1, ports: {x: 1}}], " + port + "}":                              "spec.endpoints[0].ports[x]: no port of that name",
		"{hosts: [a.com], resolution: STATIC, endpoints: [{address: 1.1.1.1}], workloadSelector: {labels: {a: b}}, " + port + "}":         "spec.workloadSelector: cannot be combined with endpoints",
		"{hosts: [a.com], resolution: DNS_ROUND_ROBIN, endpoints: [{address: a.b}, {address: c.d}], " + port + "}":                        "spec.endpoints: resolution DNS_ROUND_ROBIN has one endpoint at most",
		"{hosts: [a.com], ports: [{number: 80}]}":                                                                                         "spec.ports[0].name: must not be empty",
		"{hosts: [a.com], ports: [{number: 80, name: a}, {number: 80, name: b}]}":                                                         "spec.ports[1].number: port 80 is used twice",
		"{hosts: [a.com], ports: [{number: 80, name: a, protocol: SMOKE}]}":                                                               `spec.ports[0].protocol: unknown protocol "SMOKE"`,
		"{hosts: [a.com]}": "warning spec.ports: is empty",
	} {
		wantProblems(t, testNormal.Object(read(t, istio("ServiceEntry", spec)), &fake{}).Problems, want)
	}
}

func TestSidecar(t *testing.T) {
	r := testNormal.Object(read(t, istio("Sidecar", `
workloadSelector: {labels: {app: web}}
ingress: [{port: {number: 8080, protocol: HTTP, name: http}, bind: 127.0.10.1, captureMode: NONE, defaultEndpoint: 0.0.0.0:9080}]
egress:
- {port: {number: 80, protocol: HTTP, name: http}, bind: 127.0.10.1, captureMode: NONE, hosts: [backend/*, ./*, "*/A.example.com", ./reviews, far/reviews]}
- {port: {number: 81}, hosts: [./*, ~far/reviews, ~./reviews, ~/A.example.com, "~*/*.example.org", "~else/*"]}
- {hosts: ["~/*"]}
`)), &fake{})
	wantProblems(t, r.Problems, `warning spec.egress[0].hosts[3]: host "reviews"`, `warning spec.egress[0].hosts[4]: host "reviews" is not fully qualified: want reviews.far.svc`,
		`warning spec.egress[1].hosts[1]: host "reviews"`, `warning spec.egress[1].hosts[2]: host "reviews"`)
	wantBody(t, r, key(model.KindSidecar, "x"), `
workloadSelector: {labels: {app: web}}
ingress: [{port: {number: 8080, protocol: HTTP, name: http}, bind: 127.0.10.1, captureMode: NONE, defaultEndpoint: "0.0.0.0:9080"}]
egress:
- {port: {number: 80, protocol: HTTP, name: http}, bind: 127.0.10.1, captureMode: NONE, hosts: ["*/a.example.com", ./*, ./reviews.shop.svc.cluster.local, backend/*, far/reviews.far.svc.cluster.local]}
- {port: {number: 81}, hosts: [./*, "~*/*.example.org", "~*/a.example.com", ~./reviews.shop.svc.cluster.local, "~else/*", ~far/reviews.far.svc.cluster.local]}
- {hosts: ["~/*"]}
`)
	for spec, want := range map[string]string{
		"{egress: [{}]}":                                                    "spec.egress[0].hosts: must not be empty",
		"{egress: [{hosts: [a]}]}":                                          `spec.egress[0].hosts[0]: "a" must have the form namespace/host`,
		"{egress: [{hosts: ['A_B/*']}]}":                                    `spec.egress[0].hosts[0]: "A_B" is no namespace`,
		"{egress: [{hosts: ['a/b*']}]}":                                     `spec.egress[0].hosts[0]: host "b*"`,
		"{egress: [{hosts: ['./*', '~/*']}]}":                               `warning spec.egress[0].hosts: "~/*" imports nothing`,
		"{egress: [{hosts: ['./*', '~*/*']}]}":                              `warning spec.egress[0].hosts: "~/*" imports nothing`,
		"{egress: [{hosts: ['~a/*']}]}":                                     `warning spec.egress[0].hosts: all entries exclude hosts`,
		"{egress: [{hosts: ['./*', '~~/*']}]}":                              `spec.egress[0].hosts[1]: "~~" is no namespace`,
		"{egress: [{hosts: ['./*', '~A_B/x.y']}]}":                          `spec.egress[0].hosts[1]: "~A_B" is no namespace`,
		"{egress: [{hosts: ['./*', '~/a']}]}":                               `warning spec.egress[0].hosts[1]: host "a" is not fully qualified`,
		"{egress: [{hosts: ['*/a']}]}":                                      `warning spec.egress[0].hosts[0]: host "a" is not fully qualified`,
		"{egress: [{hosts: ['./*']}, {hosts: ['./*'], port: {number: 1}}]}": "spec.egress[0].port: must not be empty but in the last",
		"{egress: [{hosts: ['./*'], port: {number: 1}}, {hosts: ['./*'], port: {number: 1}}]}": `spec.egress[1].port.number: another listener has bind "" and port 1`,
		"{egress: [{hosts: ['./*'], port: {number: 1}, bind: x}]}":                             `spec.egress[0].bind: "x" is neither`,
		"{ingress: [{}]}": "spec.ingress[0].port: must not be empty",
		"{ingress: [{port: {number: 1, protocol: SMOKE}}]}":                  `spec.ingress[0].port.protocol: unknown protocol "SMOKE"`,
		"{ingress: [{port: {number: 1}, defaultEndpoint: '10.0.0.1:80'}]}":   `spec.ingress[0].defaultEndpoint: "10.0.0.1" must be 127.0.0.1,`,
		"{ingress: [{port: {number: 1}, defaultEndpoint: '127.0.0.2:80'}]}":  `spec.ingress[0].defaultEndpoint: "127.0.0.2" must be`,
		"{ingress: [{port: {number: 1}, defaultEndpoint: ':80'}]}":           `spec.ingress[0].defaultEndpoint: "" must be`,
		"{ingress: [{port: {number: 1}, defaultEndpoint: 'localhost:80'}]}":  `spec.ingress[0].defaultEndpoint: "localhost" must be`,
		"{ingress: [{port: {number: 1}, defaultEndpoint: '127.0.0.1:0'}]}":   `spec.ingress[0].defaultEndpoint: "0" is no port`,
		"{ingress: [{port: {number: 1}, defaultEndpoint: '0.0.0.0:65536'}]}": `spec.ingress[0].defaultEndpoint: "65536" is no port`,
		"{ingress: [{port: {number: 1}, defaultEndpoint: '[::]:1x'}]}":       `spec.ingress[0].defaultEndpoint: "1x" is no port`,
		"{ingress: [{port: {number: 1}, defaultEndpoint: 'unix://tmp'}]}":    `spec.ingress[0].defaultEndpoint: "tmp" is not an absolute path`,
	} {
		wantProblems(t, testNormal.Object(read(t, istio("Sidecar", spec)), &fake{}).Problems, want)
	}
}

func TestEnvoyFilter(t *testing.T) {
	r := testNormal.Object(read(t, istio("EnvoyFilter", `
priority: 3
configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: a}}, patch: {operation: MERGE, value: {lb_policy: RANDOM, list: [1, {a: null}]}}}]
`)), &fake{})
	wantProblems(t, r.Problems)
	wantBody(t, r, key(model.KindEnvoyFilter, "x"), `{priority: 3, configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: a}}, patch: {operation: MERGE, value: {lb_policy: RANDOM, list: [1, {a: null}]}}}]}`)
	for patch, want := range map[string]string{
		"{patch: {operation: REMOVE}}":                                                        "spec.configPatches[0].applyTo: must be stated",
		"{applyTo: NOWHERE, patch: {operation: REMOVE}}":                                      `spec.configPatches[0].applyTo: unknown value "NOWHERE"`,
		"{applyTo: CLUSTER}":                                                                  "spec.configPatches[0].patch: must not be empty",
		"{applyTo: CLUSTER, patch: {value: {a: b}}}":                                          "spec.configPatches[0].patch.operation: must be stated",
		"{applyTo: CLUSTER, patch: {operation: ADD}}":                                         "spec.configPatches[0].patch.value: must not be empty for operation ADD",
		"{applyTo: CLUSTER, patch: {operation: ADD, value: 3}}":                               "spec.configPatches[0].patch.value: must be an object",
		"{applyTo: CLUSTER, match: {listener: {}}, patch: {operation: REMOVE}}":               "spec.configPatches[0].match: applyTo CLUSTER needs a match on cluster",
		"{applyTo: LISTENER, patch: {operation: INSERT_FIRST, value: {a: b}}}":                "warning spec.configPatches[0].patch.operation: INSERT_FIRST does nothing to LISTENER",
		"{applyTo: CLUSTER, match: {proxy: {proxyVersion: '('}}, patch: {operation: REMOVE}}": "spec.configPatches[0].match.proxy.proxyVersion: is no regular",
	} {
		wantProblems(t, testNormal.Object(read(t, istio("EnvoyFilter", "{configPatches: ["+patch+"]}")), &fake{}).Problems, want)
	}
}

// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		kind, spec string
		closed     bool
	}{
		{"AuthorizationPolicy", "{rules: [{}]}", false},
		{"AuthorizationPolicy", "{action: ALLOW}", false}, // allows nothing
		{"AuthorizationPolicy", "{rules: [{from: [{source: {namespaces: [a]}}]}]}", false},
		{"AuthorizationPolicy", "{rules: [{from: [{source: {requestPrincipals: [a]}}]}]}", false},
		{"AuthorizationPolicy", "{rules: [{when: [{key: 'request.auth.claims[a][b]', values: [b]}, {key: request.auth.principal, values: [a/b]}]}]}", false},
		{"AuthorizationPolicy", "{rules: [{when: [{key: 'request.auth.claims', values: [b]}]}]}", true},
		{"AuthorizationPolicy", "{rules: [{when: [{key: 'experimental.envoy.filters.a.b[c]', values: [b]}]}]}", false},
		{"AuthorizationPolicy", "{rules: [{when: [{key: 'experimental.envoy.filters.a.b', values: [b]}]}]}", true},
		{"AuthorizationPolicy", "{rules: [{when: [{key: 'request.headers[a]', values: [b]}, {key: source.ip, notValues: [10.0.0.0/8]}]}]}", false},
		{"AuthorizationPolicy", "{rules: [{to: [{operation: {paths: ['/a/{*}/{**}']}}]}]}", false},
		{"AuthorizationPolicy", "{rules: [{when: [{key: 'request.headers[:authority]', values: [b]}, {key: 'request.experimental.inline.headers[a]', values: [b]}]}]}", false},
		{"AuthorizationPolicy", "{rules: [{when: [{key: 'request.headers[a:b]', values: [b]}]}]}", true},
		{"AuthorizationPolicy", "{rules: [{to: [{operation: {}}]}]}", true},
		{"AuthorizationPolicy", "{rules: [{from: [{source: {}}]}]}", true},
		{"AuthorizationPolicy", "{action: DENY}", false},
		{"AuthorizationPolicy", "{action: DENY, rules: [{}]}", false},
		{"AuthorizationPolicy", "{action: AUDIT, rules: [{}]}", false},
		{"AuthorizationPolicy", "{action: CUSTOM, provider: {name: a}, rules: [{}]}", false},
		{"AuthorizationPolicy", "{action: CUSTOM, provider: {name: a}, rules: [{from: [{source: {principals: [a]}}]}]}", false},
		{"AuthorizationPolicy", "{action: CUSTOM, provider: {name: a}, rules: [{when: [{key: 'request.auth.claims[a]', values: [a]}]}]}", true},
		{"RequestAuthentication", "{}", false},
		{"RequestAuthentication", "{jwtRules: [{issuer: a, jwks: '" + oneKey + "'}]}", false},
		{"PeerAuthentication", "{}", false},
		{"PeerAuthentication", "{mtls: {mode: DISABLE}}", false},
		{"PeerAuthentication", "{mtls: {mode: PERMISSIVE}}", false},
		{"PeerAuthentication", "{mtls: {mode: STRICT}}", false},
		{"PeerAuthentication", "{selector: {matchLabels: {a: b}}, portLevelMtls: {80: {mode: STRICT}}}", false},
	} {
		r := testNormal.Object(read(t, istio(c.kind, c.spec)), &fake{})
		if r.Spoiled {
			t.Errorf("%s %s: %v", c.kind, c.spec, r.Problems)
		} else if p := r.Records[0].(*model.Policy).Spec; p.Closed != c.closed {
			t.Errorf("%s %s: closed %v", c.kind, c.spec, p.Closed)
		} else if c.closed != (len(r.Problems) == len(r.Refused)+1) {
			t.Errorf("%s %s: problems %v", c.kind, c.spec, r.Problems)
		}
	}
}
