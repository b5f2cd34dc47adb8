package view

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// A view contains the proxy's name only if a Telemetry makes the proxy send spans. Of the Telemetries of a namespace
// that select the proxy, the oldest applies.
func TestTelemetry(t *testing.T) {
	spans := "{tracing: [{randomSamplingPercentage: 1}]}"
	picks := "{selector: {matchLabels: {app: web}}, accessLogging: [{disabled: true}]}"
	target := "{selector: {matchLabels: {app: web}}, targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: %}], accessLogging: [{disabled: true}]}"
	node := web("service.istio.io/canonical-name=w", model.GatewayName+"=front")
	node.Service = "web.shop"
	for name, c := range map[string]struct {
		records []model.Record
		sends   bool
		picked  string
	}{
		"nothing":                          {nil, false, ""},
		"spans of the mesh":                {[]model.Record{rec(t, model.KindMesh, "/mesh", "{rootNamespace: istio-system, defaultProviders: {tracing: [a]}}")}, true, ""},
		"the tracer of the bootstrap":      {[]model.Record{rec(t, model.KindMesh, "/mesh", "{rootNamespace: istio-system, enableTracing: true, defaultConfig: {tracing: {}}}")}, true, ""},
		"that is not enabled":              {[]model.Record{rec(t, model.KindMesh, "/mesh", "{rootNamespace: istio-system, defaultConfig: {tracing: {}}}")}, false, ""},
		"spans of the root namespace":      {[]model.Record{rec(t, model.KindTelemetry, "istio-system/a", spans)}, true, ""},
		"spans of its namespace":           {[]model.Record{rec(t, model.KindTelemetry, "shop/a", spans)}, true, ""},
		"spans of another namespace":       {[]model.Record{rec(t, model.KindTelemetry, "other/a", spans)}, false, ""},
		"a tracer of a filter":             {[]model.Record{rec(t, model.KindEnvoyFilter, "shop/a", "{configPatches: [{applyTo: NETWORK_FILTER, patch: {value: {a: [{tracing: {}}]}}}]}")}, true, ""},
		"a tracer of the root namespace":   {[]model.Record{rec(t, model.KindEnvoyFilter, "istio-system/a", "{configPatches: [{patch: {value: {tracing: {}}}}]}")}, true, ""},
		"a tracer of another namespace":    {[]model.Record{rec(t, model.KindEnvoyFilter, "other/a", "{configPatches: [{patch: {value: {tracing: {}}}}]}")}, false, ""},
		"a filter without a tracer":        {[]model.Record{rec(t, model.KindEnvoyFilter, "shop/a", "{configPatches: [{applyTo: NETWORK_FILTER, patch: {value: {a: tracing}}}]}")}, false, ""},
		"logs":                             {[]model.Record{rec(t, model.KindTelemetry, "shop/a", "{accessLogging: [{disabled: true}]}")}, false, ""},
		"a selector":                       {[]model.Record{rec(t, model.KindTelemetry, "shop/a@2", picks), rec(t, model.KindTelemetry, "shop/b@1", picks)}, false, "b"},
		"a selector of the root namespace": {[]model.Record{rec(t, model.KindTelemetry, "istio-system/a", picks)}, false, ""},
		"a Gateway":                        {[]model.Record{rec(t, model.KindTelemetry, "shop/a", strings.ReplaceAll(target, "%", "front"))}, false, "a"},
		"another Gateway":                  {[]model.Record{rec(t, model.KindTelemetry, "shop/a", strings.ReplaceAll(target, "%", "other"))}, false, ""},
		"a selector of others":             {[]model.Record{rec(t, model.KindTelemetry, "shop/a", "{selector: {matchLabels: {app: db}}}")}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := Of(snapshot(c.records...), node)
			if v.Inputs.Telemetry.Name != c.picked || v.Inputs.Self.Sends != c.sends || v.Workload.Telemetry != v.Inputs.Telemetry || v.Workload.Self != v.Inputs.Self {
				t.Errorf("inputs %+v, workload %+v", v.Inputs, v.Workload)
			}
			if s := v.Inputs.Self; c.sends && (s.Name != "web.shop" || s.Service != "w" || s.Cluster != "Kubernetes") || !c.sends && s != (Self{}) {
				t.Errorf("it names itself %+v", s)
			}
			router := node
			if router.Kind = Router; Of(snapshot(c.records...), router).Inputs != (Inputs{}) {
				t.Error("a gateway differs")
			}
		})
	}
	s := snapshot()
	x := NewIndex(s)
	change := s.Apply(2, []model.Record{rec(t, model.KindTelemetry, "other/a", spans)}, nil)
	if !x.Apply(change.Edits[0]) || x.View(change.New, node) != Of(change.New, node) {
		t.Error("spans come, and no view is said to be another")
	}
}
