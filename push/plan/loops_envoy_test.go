//go:build !race

package plan

import (
	"bytes"
	"fmt"
	"testing"

	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/model"
)

// A request whose route leads to the gateway itself is answered 503 at once. Without the refusal it returns until the
// headers are too large, and is answered 431.
// Promise: security-gateways.md#publish-the-gateway-itself
func TestLoopAtGateways(t *testing.T) {
	for local, want := range map[bool]string{false: "503", true: "431"} {
		port, n := loopback.PortFor(t), routerOf("edge", "gw")
		n.Routers.Local = local
		startGateway(t, n, plainServer(port),
			[]func([]byte) []byte{func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"10.7.0.9"`), []byte(`"127.0.0.1"`)) }},
			rec(t, model.KindService, "edge/gw", fmt.Sprintf("{hosts: [gw.edge.svc.cluster.local], exportTo: ['*'], selector: {app: gw}, "+
				"ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP, targetNumber: %d}]}", port)),
			eps(t, "edge/gw-1", fmt.Sprintf("{name: http, number: %d}", port), "10.7.0.9"),
			rec(t, model.KindVirtualService, "evil/v", "{hosts: [loop.test], gateways: [edge/front], "+
				"http: [{route: [{destination: {host: gw.edge.svc.cluster.local, port: {number: 80}}}]}]}"))
		if got := ask(t, dialPort(t, port), get("/", "loop.test")); got != want {
			t.Errorf("with local destinations %t: %s, want %s", local, got, want)
		}
	}
}
