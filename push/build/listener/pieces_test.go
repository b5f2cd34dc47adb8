package listener

import (
	"fmt"
	"testing"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// A listener that is built in pieces has the bytes, references and errors of one that is built at once, also with
// patches that Envoy refuses. There is a pause between the chains, in each stage.
func TestInboundInPieces(t *testing.T) {
	var list []InboundPort
	for i := range 40 {
		protocol := []model.Protocol{model.Protocol_PROTOCOL_HTTP, model.Protocol_PROTOCOL_AUTO, model.Protocol_PROTOCOL_TCP}[i%3]
		list = append(list, InboundPort{Port: uint32(1000 + i), Protocol: protocol, Cluster: xds.InboundCluster(uint32(1000 + i)),
			Host: "a.shop.svc.cluster.local", ServicePort: 80, MTLS: Permissive})
	}
	const filter = "- {applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}, " +
		"patch: {operation: INSERT_FIRST, value: {name: f, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: %d}}}}\n"
	good, bad := envoyFilter(t, fmt.Sprintf(filter, 9)), envoyFilter(t, fmt.Sprintf(filter+filter, 9, 0))
	for what, c := range map[string]struct {
		port    uint32
		patches []model.Patch
	}{"plain": {15006, nil}, "patched": {15006, good}, "a bad patch": {15006, bad}, "invalid": {70000, nil}} {
		v := VirtualInbound{Port: c.port, Ports: ports.List(list...), Common: stock(t)}
		v.Patches = patches.List(c.patches...)
		want, wantErr := v.Build()
		pauses := 0
		got, err := v.BuildInPieces(func() { pauses++ })
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s: %v, want %v", what, err, wantErr)
		}
		if err != nil {
			continue
		}
		if got.Version != want.Version || string(got.Body()) != string(want.Body()) || fmt.Sprint(got.Needs) != fmt.Sprint(want.Needs) {
			t.Errorf("%s: another listener: %d and %d bytes, %v and %v", what, got.Size(), want.Size(), got.Needs, want.Needs)
		}
		if pauses < 4*len(list) {
			t.Errorf("%s: %d pauses", what, pauses)
		}
	}
}
