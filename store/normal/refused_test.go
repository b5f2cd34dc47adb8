package normal

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

const oneRoute = "http: [{route: [{destination: {host: a}}]}]"

// ruleFor is a DestinationRule with a locality setting.
func ruleFor(s string) string {
	return "{host: a, trafficPolicy: {loadBalancer: {localityLbSetting: {" + s + "}}}}"
}

// refused are objects that the webhook refuses and that are applied if they exist, each with the path of the invalid
// field. Istio's webhook refuses most of them. The others would harm the users of shared proxies.
var refused = []struct{ kind, spec, field string }{
	{"VirtualService", "{hosts: [a, a], " + oneRoute + "}", "spec.hosts[1]"},
	{"VirtualService", "{hosts: ['*.a.com', www.a.com], " + oneRoute + "}", "spec.hosts[1]"},
	{"VirtualService", "{hosts: ['*'], " + oneRoute + "}", "spec.hosts[0]"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {':path': /}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[:path]"},
	{"VirtualService", "{hosts: [a], http: [{headers: {response: {remove: [Host]}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.response.remove[0]"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {remove: [':path']}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.remove[0]"},
	{"VirtualService", "{hosts: [a], http: [{match: [{headers: {b: {prefix: ''}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].headers[b].prefix"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {Host: b, ':authority': c}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[Host]"},
	{"VirtualService", "{hosts: [a], http: [{match: [{method: {prefix: ''}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].method.prefix"},
	{"VirtualService", "{hosts: [a], http: [{corsPolicy: {allowOrigins: [{}]}, route: [{destination: {host: a}}]}]}", "spec.http[0].corsPolicy.allowOrigins[0]"},
	{"VirtualService", "{hosts: [a], http: [{match: [{headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].headers[@request.auth.claims.group]"},
	{"VirtualService", "{hosts: [a], gateways: [mesh], http: [{match: [{withoutHeaders: {'@request.auth.claims[group]': {}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].withoutHeaders[@request.auth.claims[group]]"},
	{"VirtualService", "{hosts: [a], http: [{retries: {attempts: 33}, route: [{destination: {host: a}}]}]}", "spec.http[0].retries.attempts"},
	{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: a}}], mirrors: [" + strings.Repeat("{destination: {host: b}},", 9) + "]}]}", "spec.http[0].mirrors"},
	{"VirtualService", "{hosts: [a], http: [{match: [{uri: {regex: '(.*a.{0,30}){20}'}}], route: [{destination: {host: a}}]}]}", "spec.http[0]"},
	{"VirtualService", "{hosts: [a.b.42], " + oneRoute + "}", "spec.hosts[0]"},
	{"VirtualService", "{hosts: [" + strings.Repeat("x", 64) + ".com], " + oneRoute + "}", "spec.hosts[0]"},
	{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: 10.0.0.1}}]}]}", "spec.http[0].route[0].destination.host"},
	{"VirtualService", "{hosts: [a], exportTo: [b, b], " + oneRoute + "}", "spec.exportTo[1]"},
	{"VirtualService", "{hosts: [a], exportTo: [., shop], " + oneRoute + "}", "spec.exportTo[1]"},
	{"VirtualService", "{hosts: [a], exportTo: ['*', b], " + oneRoute + "}", "spec.exportTo"},
	{"VirtualService", "{hosts: [a], exportTo: ['~'], " + oneRoute + "}", "spec.exportTo"},
	{"VirtualService", "{hosts: [a], gateways: [./b], " + oneRoute + "}", "spec.gateways[0]"},
	{"VirtualService", "{hosts: [a], gateways: [b/c.d], " + oneRoute + "}", "spec.gateways[0]"},
	{"VirtualService", "{hosts: [a], http: [{timeout: 1500us, route: [{destination: {host: a}}]}]}", "spec.http[0].timeout"},
	{"VirtualService", "{hosts: [a], http: [{match: [{headers: {a.b: {exact: c}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].headers[a.b]"},
	{"VirtualService", "{hosts: [a], http: [{match: [{sourceNamespace: a.b}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].sourceNamespace"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {x: '%NO_SUCH_COMMAND%'}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[x]"},
	{"VirtualService", "{hosts: [a], http: [{headers: {response: {set: {x: '%ENVIRONMENT(HOME)%'}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.response.set[x]"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {Content-Length: '0'}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[Content-Length]"},
	{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: a}, headers: {response: {add: {transfer-encoding: chunked}}}}]}]}", "spec.http[0].route[0].headers.response.add[transfer-encoding]"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {X-Envoy-Max-Retries: '33'}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[X-Envoy-Max-Retries]"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {remove: [connection]}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.remove[0]"},
	{"VirtualService", "{hosts: [a], http: [{rewrite: {uri: '/a HTTP/1.1 b'}, route: [{destination: {host: a}}]}]}", "spec.http[0].rewrite.uri"},
	{"VirtualService", "{hosts: [a], http: [{rewrite: {authority: 'a b'}, route: [{destination: {host: a}}]}]}", "spec.http[0].rewrite.authority"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {host: 'a b'}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[host]"},
	{"VirtualService", "{hosts: [a], http: [{rewrite: {uriRegexRewrite: {match: a, rewrite: 'b c'}}, route: [{destination: {host: a}}]}]}", "spec.http[0].rewrite.uriRegexRewrite.rewrite"},
	{"Telemetry", "{tracing: [{customTags: {a: {formatter: {value: '%NO_SUCH_COMMAND%'}}}}]}", "spec.tracing[0].customTags[a].formatter.value"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {x: '50%'}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[x]"},
	{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: a}, headers: {response: {add: {x: '%START_TIME%%'}}}}]}]}", "spec.http[0].route[0].headers.response.add[x]"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {x: \"a\\nb\"}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[x]"},
	{"VirtualService", "{hosts: [a], http: [{rewrite: {authority: b}, headers: {request: {set: {Host: c}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.set[Host]"},
	{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {':authority': b}, add: {host: c}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].headers.request.add[host]"},
	{"VirtualService", "{hosts: [a], http: [{rewrite: {uriRegexRewrite: {match: b}}, route: [{destination: {host: a}}]}]}", "spec.http[0].rewrite.uriRegexRewrite.rewrite"},
	{"VirtualService", "{hosts: [a], http: [{directResponse: {status: 200}, fault: {abort: {httpStatus: 500}}}]}", "spec.http[0].fault"},
	{"VirtualService", "{hosts: [a], http: [{directResponse: {status: 200}, rewrite: {uri: /}}]}", "spec.http[0].rewrite"},
	{"VirtualService", "{hosts: [a], http: [{fault: {abort: {httpStatus: 500, percentage: {value: 0.00001}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].fault.abort.percentage.value"},
	{"VirtualService", "{hosts: [a], http: [{retries: {attempts: 0, perTryTimeout: 1s}, route: [{destination: {host: a}}]}]}", "spec.http[0].retries.attempts"},
	{"VirtualService", "{hosts: [a], http: [{retries: {attempts: 1, retryOn: '5xx, reset'}, route: [{destination: {host: a}}]}]}", "spec.http[0].retries.retryOn"},
	{"VirtualService", "{hosts: [a], http: [{retries: {attempts: 1, retryOn: '5xx,'}, route: [{destination: {host: a}}]}]}", "spec.http[0].retries.retryOn"},
	{"VirtualService", "{hosts: [a], http: [{retries: {attempts: 1, retryOn: '503,599'}, route: [{destination: {host: a}}]}]}", "spec.http[0].retries.retryOn"},
	{"VirtualService", "{hosts: [a], http: [{corsPolicy: {allowMethods: [GET, '*']}, route: [{destination: {host: a}}]}]}", "spec.http[0].corsPolicy.allowMethods[1]"},
	{"VirtualService", "{hosts: [a], http: [{corsPolicy: {allowHeaders: ['*', 'a b']}, route: [{destination: {host: a}}]}]}", "spec.http[0].corsPolicy.allowHeaders[1]"},
	{"VirtualService", "{hosts: [a], http: [{corsPolicy: {exposeHeaders: ['']}, route: [{destination: {host: a}}]}]}", "spec.http[0].corsPolicy.exposeHeaders[0]"},
	{"VirtualService", "{hosts: [a], http: [{corsPolicy: {maxAge: 1500ms}, route: [{destination: {host: a}}]}]}", "spec.http[0].corsPolicy.maxAge"},
	{"DestinationRule", "{host: 10.0.0.1}", "spec.host"},
	{"DestinationRule", "{host: a, exportTo: [., b], workloadSelector: {matchLabels: {a: b}}}", "spec.exportTo"},
	{"DestinationRule", "{host: a, trafficPolicy: {tunnel: {targetHost: b, targetPort: 1}, proxyProtocol: {}}}", "spec.trafficPolicy.proxyProtocol"},
	{"DestinationRule", "{host: a, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, maglev: {}}}}}", "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize"},
	{"DestinationRule", "{host: a, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 5000011}}}}}", "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize"},
	{"DestinationRule", "{host: a, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, minimumRingSize: 9, ringHash: {}}}}}", "spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize"},
	{"DestinationRule", "{host: a, trafficPolicy: {outlierDetection: {interval: 1500us}}}", "spec.trafficPolicy.outlierDetection.interval"},
	{"DestinationRule", ruleFor("failover: [{from: a/b, to: c}]"), "spec.trafficPolicy.loadBalancer.localityLbSetting.failover[0]"},
	{"DestinationRule", ruleFor("failover: [{from: a, to: '*'}]"), "spec.trafficPolicy.loadBalancer.localityLbSetting.failover[0]"},
	{"DestinationRule", ruleFor("failover: [{from: a, to: b}], failoverPriority: [topology.kubernetes.io/zone]"), "spec.trafficPolicy.loadBalancer.localityLbSetting.failoverPriority"},
	{"DestinationRule", ruleFor("distribute: [{from: '*', to: {a: 100}}, {from: b, to: {a: 100}}]"), "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute"},
	{"DestinationRule", ruleFor("distribute: [{from: a, to: {a/b: 50, 'a/b/*': 50}}]"), "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to"},
	{"DestinationRule", ruleFor("distribute: [{from: a, to: {'a*/b': 100}}]"), "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to"},
	{"DestinationRule", ruleFor("distribute: [{from: a, to: {a//b: 100}}]"), "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to"},
	{"DestinationRule", "{host: a, trafficPolicy: {tls: {mode: SIMPLE, insecureSkipVerify: true, caCertificates: /a}}}", "spec.trafficPolicy.tls.caCertificates"},
	{"DestinationRule", "{host: a, trafficPolicy: {tls: {mode: MUTUAL, insecureSkipVerify: true, credentialName: a, subjectAltNames: [a]}}}", "spec.trafficPolicy.tls.subjectAltNames"},
	{"DestinationRule", "{host: a, trafficPolicy: {tls: {mode: SIMPLE, insecureSkipVerify: true, credentialName: a}}}", "spec.trafficPolicy.tls.credentialName"},
	{"DestinationRule", "{host: a, trafficPolicy: {tls: {mode: MUTUAL, credentialName: a, privateKey: /a}}}", "spec.trafficPolicy.tls.privateKey"},
	{"DestinationRule", "{host: a, trafficPolicy: {tls: {mode: SIMPLE, credentialName: a, caCrl: /a}}}", "spec.trafficPolicy.tls.caCrl"},
	{"ServiceEntry", "{hosts: [10.0.0.1], ports: [{number: 80, name: a, protocol: HTTP}], resolution: NONE}", "spec.hosts[0]"},
	{"ServiceEntry", "{hosts: [a.com], addresses: [10.0.0.0/8], ports: [{number: 80, name: a, protocol: HTTP}], resolution: DNS}", "spec.addresses[0]"},
	{"ServiceEntry", "{hosts: [a.com], ports: [{number: 80, name: a, protocol: HTTP}, {number: 81, name: b, protocol: HTTP}], resolution: STATIC, endpoints: [{address: unix:///a}]}", "spec.endpoints[0].address"},
	{"ServiceEntry", "{hosts: [a.com], exportTo: ['*', .], ports: [{number: 80, name: a, protocol: HTTP}], resolution: DNS}", "spec.exportTo"},
	{"ServiceEntry", "{hosts: [a.com, b.com], addresses: [10.0.0.1], ports: [{number: 80, name: a, protocol: TCP}], resolution: DNS}", "spec.ports[0].protocol"},
	{"Sidecar", "{}", "spec"},
	{"Sidecar", "{egress: [{hosts: [./a]}]}", "spec.egress[0].hosts[0]"},
	{"Sidecar", "{egress: [{hosts: ['*/a']}]}", "spec.egress[0].hosts[0]"},
	{"Sidecar", "{egress: [{hosts: ['*/*-a.com']}]}", "spec.egress[0].hosts[0]"},
	{"Sidecar", "{egress: [{hosts: ['*/10.0.0.1']}]}", "spec.egress[0].hosts[0]"},
	{"Sidecar", "{egress: [{port: {number: 80}, bind: 10.0.0.1, hosts: ['*/*']}, {port: {number: 80}, bind: 10.0.0.2, hosts: ['*/*']}]}", "spec.egress[1].port.number"},
	{"Sidecar", "{ingress: [{port: {number: 80}, bind: 10.0.0.1}, {port: {number: 80}, bind: 10.0.0.2}]}", "spec.ingress[1].port.number"},
	{"Sidecar", "{ingress: [{port: {number: 80, targetPort: 81}}]}", "spec.ingress[0].port.targetPort"},
	{"Sidecar", "{ingress: [{port: {}, bind: unix:///a}]}", "spec.ingress[0].bind"},
	{"Sidecar", "{outboundTrafficPolicy: {mode: REGISTRY_ONLY, egressProxy: {host: a, port: {number: 1}}}}", "spec.outboundTrafficPolicy.egressProxy"},
	{"Sidecar", "{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: a}}}", "spec.outboundTrafficPolicy.egressProxy.port"},
	{"PeerAuthentication", "{selector: {matchLabels: {a: b}}, portLevelMtls: {70000: {mode: STRICT}}}", "spec.portLevelMtls[70000]"},
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
	{"AuthorizationPolicy", "{rules: [{to: [{operation: {paths: ['/users/{id}']}}]}]}", "spec.rules[0].to[0].operation.paths[0]"},
	{"AuthorizationPolicy", "{rules: [{when: [{key: request.headers, values: ['1']}]}]}", "spec.rules[0].when[0].key"},
	{"AuthorizationPolicy", "{rules: [{when: [{key: 'request.auth.claims[]', values: ['1']}]}]}", "spec.rules[0].when[0].key"},
	{"AuthorizationPolicy", "{rules: [{when: [{key: 'experimental.a[b]', values: ['1']}]}]}", "spec.rules[0].when[0].key"},
	{"AuthorizationPolicy", "{rules: [{when: [{key: source.port, values: ['1']}]}]}", "spec.rules[0].when[0].key"},
	{"Gateway", "{selector: {a: b}}", "spec.servers"},
	{"Gateway", oneServer("hosts: [a]"), "spec.servers[0].hosts[0]"},
	{"Gateway", oneServer("hosts: ['f::1']"), "spec.servers[0].hosts[0]"},
	{"Gateway", oneServer("hosts: ['~/a.com']"), "spec.servers[0].hosts[0]"},
	{"Gateway", oneServer("hosts: ['*-a.com']"), "spec.servers[0].hosts[0]"},
	{"Gateway", oneServer("hosts: [a.1]"), "spec.servers[0].hosts[0]"},
	{"Gateway", oneServer("hosts: [" + strings.Repeat("x", 64) + ".com]"), "spec.servers[0].hosts[0]"},
	{"Gateway", oneServer("port: {number: 80, protocol: HTTP}"), "spec.servers[0].port.name"},
	{"Gateway", oneServer("port: {number: 80, name: a, protocol: HTTP, targetPort: 8080}"), "spec.servers[0].port.targetPort"},
	{"Gateway", "{servers: [{hosts: [a.com], port: {number: 80, name: a, protocol: HTTP}}, {hosts: [a.com], port: {number: 81, name: a, protocol: TCP}}]}", "spec.servers[1].port.name"},
	{"Gateway", oneServer("port: {number: 80, name: a, protocol: TCP}, tls: {mode: SIMPLE, credentialName: a}"), "spec.servers[0].tls"},
	{"Gateway", oneServer("port: {number: 80, name: a, protocol: TCP}, tls: {}"), "spec.servers[0].tls"},
	{"Gateway", oneServer("tls: {mode: SIMPLE, credentialName: a}"), "spec.servers[0].tls"},
	{"Gateway", oneServer("tls: {httpsRedirect: true, serverCertificate: /a}"), "spec.servers[0].tls"},
	{"Gateway", oneTLS("mode: SIMPLE, serverCertificate: /a, privateKey: /b, caCrl: /c"), "spec.servers[0].tls.caCrl"},
	{"Gateway", oneTLS("mode: PASSTHROUGH, credentialName: a, caCrl: /c"), "spec.servers[0].tls.caCrl"},
	{"Gateway", oneTLS("mode: PASSTHROUGH, credentialName: a, credentialNames: [b]"), "spec.servers[0].tls.credentialNames"},
}

// The problems are warnings, and refusals for the webhook; the records stay in effect.
func TestRefused(t *testing.T) {
	for _, c := range refused {
		r := testNormal.Object(read(t, istio(c.kind, c.spec)), &fake{})
		if len(r.Refused) != 1 || r.Refused[0].Field != c.field || r.Refused[0].Severity != problem.Warning || !slices.Contains(r.Problems, r.Refused[0]) {
			t.Errorf("%s %s: refused for %v, want %s; problems %v", c.kind, c.spec, r.Refused, c.field, r.Problems)
		}
		if forSidecars := !strings.Contains(c.spec, "targetRef") || c.kind == "WasmPlugin" || c.kind == "TrafficExtension"; r.Spoiled || forSidecars != (len(r.Records) > 0) {
			t.Errorf("%s %s: it does not apply", c.kind, c.spec)
		}
	}
}

// Values without an effect that Istio admits are applied, with a warning.
func TestAdmitted(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, c := range []struct{ kind, spec, warning string }{
		{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: '*.a'}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{match: [{uri: {}}], route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{match: [{uri: {prefix: ''}}], route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{headers: {request: {set: {Host: c}}}, route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{delegate: {namespace: b}}]}", "spec.http[0].delegate.name"},
		{"VirtualService", "{hosts: [a], gateways: [mesh, b], http: [{match: [{headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].headers[@request.auth.claims.group]"},
		{"VirtualService", "{http: [{match: [{headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].headers[@request.auth.claims.group]"},
		{"VirtualService", "{hosts: [a], gateways: [b], http: [{match: [{headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], gateways: [mesh, b], http: [{match: [{gateways: [b], headers: {'@request.auth.claims.group': {exact: b}}}], route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a.com., b.com.], exportTo: ['*'], http: [{route: [{destination: {host: a.b.}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{match: [{withoutHeaders: {b: {regex: '*'}}}], route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{fault: {delay: {percentage: {value: 5}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].fault.delay.fixedDelay"},
		{"VirtualService", "{hosts: [a], http: [{fault: {abort: {percentage: {value: 5}}}, route: [{destination: {host: a}}]}]}", "spec.http[0].fault.abort"},
		{"VirtualService", "{hosts: [a], http: [{directResponse: {status: 200, body: {string: " + strings.Repeat("x", 1<<20) + "}}}]}", ""},
		{"VirtualService", "{hosts: [a.com], tls: [{match: [{sniHosts: [10.0.0.1]}], route: [{destination: {host: a}}]}]}", "spec.tls[0].match[0].sniHosts[0]"},
		{"VirtualService", "{hosts: [10.0.0.1, 'f::1'], http: [{route: [{destination: {host: a}}]}]}", ""},
		{"DestinationRule", "{host: a, trafficPolicy: {portLevelSettings: [{port: {number: 1}, tls: {}}, {port: {number: 1}, tls: {}}]}}", "spec.trafficPolicy.portLevelSettings[1].port.number"},
		{"DestinationRule", "{host: a, trafficPolicy: {loadBalancer: {localityLbSetting: {distribute: [{from: a, to: {a: 100}}], failoverPriority: [b]}}}}", "spec.trafficPolicy.loadBalancer.localityLbSetting.failoverPriority"},
		{"ServiceEntry", "{hosts: [a.com.], exportTo: ['~'], ports: [{number: 80, name: a, protocol: HTTP}], resolution: DNS}", ""},
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

// The annotation of a dry run is for AuthorizationPolicies that allow or deny, of all of Istio's kinds.
func TestDryRunIsRefused(t *testing.T) {
	for spec, kind := range map[string]string{"{action: CUSTOM, provider: {name: a}, rules: [{}]}": "AuthorizationPolicy", "{action: AUDIT, rules: [{}]}": "AuthorizationPolicy",
		"{mtls: {mode: STRICT}}": "PeerAuthentication", "{host: a}": "DestinationRule"} {
		raw := strings.Replace(istio(kind, spec), "namespace: shop", "namespace: shop, annotations: {istio.io/dry-run: 'true'}", 1)
		r := testNormal.Object(read(t, raw), &fake{})
		if len(r.Refused) != 1 || r.Refused[0].Field != "metadata.annotations[istio.io/dry-run]" || len(r.Problems) != 1 || r.Spoiled || len(r.Records) == 0 {
			t.Errorf("%s %s: %+v", kind, spec, r)
		}
	}
}

// A DENY rule applies without its HTTP fields at TCP ports. A warning reports it, unless the rule names ports.
func TestDenyAtPortsOfTCP(t *testing.T) {
	for rule, warned := range map[string]bool{
		"{to: [{operation: {paths: [/a]}}]}":                                                           true,
		"{to: [{operation: {paths: [/a], ports: ['80']}}]}":                                            false,
		"{from: [{source: {namespaces: [a]}}], to: [{operation: {notMethods: [GET]}}]}":                true,
		"{from: [{source: {requestPrincipals: [a]}}]}":                                                 true,
		"{from: [{source: {namespaces: [a]}}]}":                                                        false,
		"{when: [{key: 'request.auth.claims[a]', values: [b]}]}":                                       true,
		"{when: [{key: 'request.headers[a]', notValues: [b]}], to: [{operation: {notPorts: ['80']}}]}": false,
		"{when: [{key: destination.port, values: ['80']}, {key: 'request.headers[a]', values: [b]}]}":  false,
		"{when: [{key: source.ip, values: [10.0.0.1]}]}":                                               false,
		"{}": false,
	} {
		r := testNormal.Object(read(t, istio("AuthorizationPolicy", "{action: DENY, rules: [{from: [{source: {namespaces: [b]}}]}, "+rule+"]}")), &fake{})
		if (len(r.Problems) == 1 && r.Problems[0].Field == "spec.rules[1]") != warned || len(r.Problems) > 1 || r.Spoiled || len(r.Refused) > 0 {
			t.Errorf("%s: %+v", rule, r.Problems)
		}
		if allow := testNormal.Object(read(t, istio("AuthorizationPolicy", "{rules: ["+rule+"]}")), &fake{}); len(allow.Problems) > 0 {
			t.Errorf("ALLOW %s: %+v", rule, allow.Problems)
		}
	}
}

// For any number of warnings, the error that spoils an object is among its problems.
func TestErrorsAreNotHiddenByWarnings(t *testing.T) {
	rule := "{route: [{destination: {host: a}}]}, "
	r := testNormal.Object(read(t, istio("VirtualService", "{hosts: [a], http: ["+strings.Repeat(rule, 2*maxProblems)+"{route: [{destination: {host: '*'}}]}]}")), &fake{})
	if !r.Spoiled || len(r.Problems) != maxProblems || !slices.ContainsFunc(r.Problems, func(p object.Problem) bool { return p.Severity == problem.Error }) {
		t.Errorf("%d problems: %v", len(r.Problems), r.Problems)
	}
}
