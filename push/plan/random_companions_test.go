package plan

import (
	"fmt"

	"navarch.io/navarch/store/model"
)

// gateways makes, changes or deletes the gateways of networks.
func (m *mesh) gateways() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.nets.IntN(len(from))] }
	key := model.MeshGatewaysKey
	if m.nets.IntN(2) == 0 {
		key = model.Key{Kind: model.KindNetworkGateways, Namespace: "istio-system", Name: "gw"}
	}
	if old, ok := m.records[key]; ok && m.nets.IntN(2) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	put = rec(m.t, key.Kind, key.Namespace+"/"+key.Name, fmt.Sprintf("gateways: [{network: %s, address: 192.0.2.1, port: 15443}%s]", pick("n1", "n2"),
		pick("", ", {network: n2, address: 192.0.2.2, port: 15443}", ", {network: n1, cluster: west, address: 192.0.2.3, port: 443}")))
	m.records[key] = put
	return put, model.Key{}
}

// extensions makes, changes or deletes a WasmPlugin or TrafficExtension.
func (m *mesh) extensions() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.exts.IntN(len(from))] }
	kind := []model.Kind{model.KindWasmPlugin, model.KindTrafficExtension}[m.exts.IntN(2)]
	key := model.Key{Kind: kind, Namespace: pick("a", "b", "istio-system"), Name: pick("e0", "e1")}
	if old, ok := m.records[key]; ok && m.exts.IntN(3) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	filter := fmt.Sprintf("wasm: {url: '%s', type: %s, failStrategy: %s, pluginName: %s}", pick("file:///m.wasm", "oci://r/i:1"), pick("HTTP", "NETWORK"),
		pick("FAIL_OPEN", "FAIL_CLOSE"), pick("one", "two"))
	if kind == model.KindTrafficExtension && m.exts.IntN(2) == 0 {
		filter = "lua: {inlineCode: '" + pick("--one", "--two") + "'}"
	}
	put = rec(m.t, kind, key.Namespace+"/"+key.Name, fmt.Sprintf("{selector: {matchLabels: {%s}}, phase: %s, priority: %s, match: [%s], %s}",
		pick("", "app: s0", "version: v1"), pick("AUTHN", "AUTHZ", "STATS", "UNSPECIFIED"), pick("1", "2"),
		pick("", "{mode: CLIENT}", "{mode: SERVER}", "{ports: [{number: 80}]}, {mode: SERVER, ports: [{number: 8080}]}"), filter))
	m.records[key] = put
	return put, model.Key{}
}
