package plan

import (
	"fmt"
	"strings"

	"navarch.io/navarch/store/model"
)

// providers returns fields of the mesh configuration: providers that CUSTOM policies name, and providers of access logs
// and spans, whose services may exist.
func (m *mesh) providers() string {
	all, more, config := m.authorizers(), "", ""
	if m.telemetries != nil {
		pick := func(from ...string) string { return from[m.telemetries.IntN(len(from))] }
		all = append(all, "{name: spans, zipkin: {service: "+pick("s0.a.svc.cluster.local", "a/s0.a.svc.cluster.local", "ext.example.com")+", port: 80}}",
			"{name: lines, envoyTcpAls: {service: s1.b.svc.cluster.local, port: 9000}}")
		more = ", defaultProviders: " + pick("{}", "{tracing: [spans]}", "{accessLogging: [lines]}") +
			", enableTracing: "
		config = pick("", "tracing: {sampling: 7}, ")
		more += pick("true", "false")
	}
	more += m.defaultConfig(config)
	if len(all) == 0 {
		return more
	}
	return ", extensionProviders: [" + strings.Join(all, ", ") + "]" + more
}

// telemetry makes, changes or deletes a Telemetry; its first edit makes the providers.
func (m *mesh) telemetry() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.telemetries.IntN(len(from))] }
	if m.records[model.MeshKey] == nil {
		put = rec(m.t, model.KindMesh, "/mesh", "{rootNamespace: istio-system"+m.providers()+"}")
		m.records[model.MeshKey] = put
		return put, model.Key{}
	}
	key := model.Key{Kind: model.KindTelemetry, Namespace: pick(namespaces...), Name: pick("t0", "t1")}
	if old, ok := m.records[key]; ok && m.telemetries.IntN(3) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	put = rec(m.t, key.Kind, fmt.Sprintf("%s/%s@%d", key.Namespace, key.Name, 1+m.telemetries.IntN(3)), fmt.Sprintf("{selector: {matchLabels: {%s}}%s%s}",
		pick("", "", "app: s0", "app: s1", "version: v1"),
		pick("", ", accessLogging: [{providers: [{name: envoy}], filter: {expression: a}}]", ", accessLogging: [{providers: [{name: envoy}], filter: {expression: b}}]",
			", accessLogging: [{providers: [{name: lines}], match: {mode: SERVER}}]", ", accessLogging: [{providers: [{name: envoy}], disabled: true}]"),
		pick("", "", ", tracing: [{randomSamplingPercentage: 9}]", ", tracing: [{providers: [{name: spans}]}]", ", tracing: [{disableSpanReporting: true, match: {mode: CLIENT}}]")))
	m.records[key] = put
	return put, model.Key{}
}
