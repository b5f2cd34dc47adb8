package normal

import (
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
)

func telemetryOf(t *testing.T, spec string) Result {
	t.Helper()
	return testNormal.Object(read(t, "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: x, namespace: shop}\nspec: "+spec+"\n"),
		&fake{mesh: &meshv1.MeshConfig{ExtensionProviders: []*meshv1.MeshConfig_ExtensionProvider{{Name: "zipkin"}}}})
}

// A Telemetry is stored unchanged. Values that Istio's webhook refuses are refused by the path of their field,
// including an expression that Envoy cannot parse.
func TestTelemetry(t *testing.T) {
	good := `{selector: {matchLabels: {app: web}}, accessLogging: [{providers: [{name: envoy}], filter: {expression: "response.code >= 400 && !('x' in request.headers)"}}], tracing: [{providers: [{name: Zipkin}], randomSamplingPercentage: 0}]}`
	r := telemetryOf(t, good)
	wantProblems(t, r.Problems)
	wantBody(t, r, key(model.KindTelemetry, "x"), good)
	if id := SourceObject(key(model.KindTelemetry, "x")); id != read(t, "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: x, namespace: shop}").ID {
		t.Errorf("its source is %v", id)
	}
	for spec, want := range map[string]string{
		"{}": "warning spec: neither tracing nor accessLogging nor metrics",
		"{accessLogging: [{providers: [{name: none}]}]}":                                 `warning spec.accessLogging[0].providers[0].name: no provider of extensionProviders is called "none"`,
		"{accessLogging: [{providers: [{}]}]}":                                           "spec.accessLogging[0].providers[0].name: must not be empty",
		"{accessLogging: [{filter: {expression: 'response.code >='}}]}":                  "spec.accessLogging[0].filter.expression: is no CEL expression: column 17",
		"{accessLogging: [{filter: {}}]}":                                                "spec.accessLogging[0].filter.expression: is no CEL expression",
		"{tracing: [{randomSamplingPercentage: 101}]}":                                   "spec.tracing[0].randomSamplingPercentage: 101 is not in 0-100",
		"{tracing: [{providers: [{name: zipkin}, {name: zipkin}]}]}":                     "warning spec.tracing[0].providers: spans go to the first one alone",
		"{tracing: [{customTags: {a: {}}}]}":                                             "warning spec.tracing[0].customTags[a]: has neither a literal",
		"{tracing: [{customTags: {a: {literal: {}}}}]}":                                  "spec.tracing[0].customTags[a].literal.value: must not be empty",
		"{tracing: [{customTags: {a: {environment: {defaultValue: x}}}}]}":               "spec.tracing[0].customTags[a].environment.name: must not be empty",
		"{tracing: [{customTags: {a: {header: {}}}}]}":                                   "spec.tracing[0].customTags[a].header.name: must not be empty",
		"{tracing: [{customTags: {a: {formatter: {}}}}]}":                                "spec.tracing[0].customTags[a].formatter.value: must not be empty",
		"{tracing: [{customTags: {'': {literal: {value: x}}}}]}":                         "spec.tracing[0].customTags: a tag without a name",
		"{selector: {matchLabels: {a: 'b*'}}, accessLogging: [{}]}":                      `spec.selector.matchLabels: label a="b*": wildcards`,
		"{metrics: [{overrides: [{match: {customMetric: ''}}]}]}":                        "spec.metrics[0].overrides[0].match.customMetric: must not be empty",
		"{metrics: [{overrides: [{tagOverrides: {a: {}}}]}]}":                            "spec.metrics[0].overrides[0].tagOverrides[a].value: must not be empty",
		"{metrics: [{overrides: [{tagOverrides: {a: {operation: REMOVE, value: x}}}]}]}": "spec.metrics[0].overrides[0].tagOverrides[a].value: cannot be combined with operation REMOVE",
		"{targetRefs: [{kind: Service, name: a}], accessLogging: [{}]}":                  "warning spec.targetRefs[0].kind: Service targets are for waypoints",
		"{accessLogging: [{providers: [{name: prometheus}], match: {mode: BOTH}}]}":      `spec.accessLogging[0].match.mode: unknown value "BOTH"`,
	} {
		wantProblems(t, telemetryOf(t, spec).Problems, want)
	}
	if r := telemetryOf(t, "{targetRefs: [{kind: Service, name: a}], accessLogging: [{}]}"); len(r.Records) > 0 {
		t.Error("one for a waypoint is there")
	}
	one := "{kind: Gateway, group: gateway.networking.k8s.io, name: a}"
	for _, targets := range []string{"targetRefs: [" + one + "]", "targetRef: " + one} {
		r := telemetryOf(t, "{"+targets+", accessLogging: [{}]}")
		wantProblems(t, r.Problems)
		wantBody(t, r, key(model.KindTelemetry, "x"),
			"{selector: {matchLabels: {gateway.networking.k8s.io/gateway-name: a}}, targetRefs: ["+one+"], accessLogging: [{}]}")
	}
}

// The mesh's providers: an unknown name, and a sampler without a service.
func TestTelemetryProviders(t *testing.T) {
	for mesh, want := range map[string]string{
		"defaultProviders: {tracing: [none], accessLogging: [envoy]}":                                                     `warning data.mesh.defaultProviders.tracing[0]: no provider of extensionProviders is called "none"`,
		"extensionProviders: [{name: a, opentelemetry: {service: b, port: 1, dynatraceSampler: {tenant: t}}}]":            "warning data.mesh.extensionProviders[0].opentelemetry.dynatraceSampler.httpService: must be stated",
		"extensionProviders: [{name: a, opentelemetry: {service: b, port: 1, http: {headers: [{name: a, envName: B}]}}}]": "warning data.mesh.extensionProviders[0].opentelemetry.http.headers[0].envName: is not acted on",
	} {
		wantProblems(t, testNormal.ParseMesh(read(t, meshMap(mesh, "networks: {}"))).Problems, want)
	}
}

// A provider that is wrong is left out, by name and field; the other providers and the rest of the mesh configuration
// apply.
func TestProviderThatIsWrong(t *testing.T) {
	const good = "{name: good, zipkin: {service: obs/zipkin.obs.svc, port: 9411}}"
	for provider, want := range map[string]string{
		"{name: a, zipkin: {service: b, port: 1, headers: [{name: 'x y', value: z}]}}":            `.zipkin.headers[0].name: "x y" is no header name`,
		"{name: a, opentelemetry: {service: b, port: 1, http: {path: /, headers: [{name: ''}]}}}": `.opentelemetry.http.headers[0].name: "" is no header name`,
		"{name: a, zipkin: {service: b}}":                                                                     ".zipkin.port: port 0",
		"{name: a, datadog: {port: 1}}":                                                                       `.datadog.service: "": want [NAMESPACE/]HOST`,
		"{name: a, skywalking: {service: /b, port: 1}}":                                                       `.skywalking.service: "/b": want [NAMESPACE/]HOST`,
		"{name: a, envoyOtelAls: {service: '*.b', port: 1}}":                                                  `.envoyOtelAls.service: "*.b": want [NAMESPACE/]HOST`,
		"{name: a, envoyExtAuthzGrpc: {service: b, port: 1, statusOnError: '299'}}":                           `.envoyExtAuthzGrpc.statusOnError: "299" is no status`,
		"{name: a, envoyExtAuthzGrpc: {service: b, port: 1, timeout: 1us}}":                                   ".envoyExtAuthzGrpc.timeout: ",
		"{name: a, envoyExtAuthzGrpc: {service: b, port: 1, includeRequestBodyInCheck: {packAsBytes: true}}}": ".envoyExtAuthzGrpc.includeRequestBodyInCheck.maxRequestBytes: must be more than 0",
		"{name: a, envoyExtAuthzHttp: {service: b, port: 1, pathPrefix: b}}":                                  `.envoyExtAuthzHttp.pathPrefix: "b" is no path`,
		"{name: a, envoyExtAuthzHttp: {service: b, port: 1, headersToUpstreamOnAllow: ['*']}}":                `.envoyExtAuthzHttp.headersToUpstreamOnAllow[0]: "*": want a header`,
		"{name: a, envoyExtAuthzHttp: {service: b, port: 1, includeAdditionalHeadersInCheck: {'x y': z}}}":    ".envoyExtAuthzHttp.includeAdditionalHeadersInCheck[x y]: ",
		"{zipkin: {service: b, port: 1}}":                                                                     ".name: must not be empty",
		"{name: a}":                                                                                           ": needs the kind of the provider",
		"{name: good, envoyFileAccessLog: {path: /dev/stdout}}":                                               `.name: another provider is called "good" too`,
	} {
		got := testNormal.ParseMesh(read(t, meshMap("accessLogFile: /dev/stderr\nextensionProviders: ["+good+", "+provider+"]", "networks: {}")))
		wantProblems(t, got.Problems, "data.mesh.extensionProviders[1]"+want, "data.mesh.extensionProviders[1]: provider |is left out")
		if all := got.Config.GetExtensionProviders(); got.Config.GetAccessLogFile() != "/dev/stderr" || len(all) != 1 || all[0].GetZipkin() == nil {
			t.Errorf("%s: got %v", provider, got.Config)
		}
	}
}
