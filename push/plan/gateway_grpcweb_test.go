//go:build !race

package plan

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/model"
)

// A younger server of another namespace with the protocol GRPC-Web changes no byte of the chain that all HTTP servers
// of a port share. Promise: security-gateways.md#make-a-gateway-fail
func TestGRPCWebLeavesTheSharedChain(t *testing.T) {
	server := func(name, protocol, hosts string) model.Record {
		return rec(t, model.KindGateway, name, fmt.Sprintf(
			"{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: %s}, hosts: [%s]}]}", protocol, hosts))
	}
	p, _, gw := gatewayPlanner(server("edge/front@1", "HTTP", "a.test"))
	before, head := chainsOf(t, gw.Set(), "0.0.0.0_80")
	for _, protocol := range []string{"GRPC-WEB", "GRPC", "HTTP2"} {
		edited(p, server("evil/g@2", protocol, "b.test"))
		after, now := chainsOf(t, gw.Set(), "0.0.0.0_80")
		if !bytes.Equal(head, now) || len(after) != 1 || !bytes.Equal(before[""], after[""]) {
			t.Errorf("a server of %s changes the listener", protocol)
		}
	}
}

// Envoy translates gRPC-Web requests for hosts of servers with the protocol GRPC-Web, and for no other host of the
// port. Of two servers with a host, the older decides.
func TestGRPCWebAtGateways(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{} // host -> the content type that the backend received
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.Host] = r.Header.Get("Content-Type")
	}))
	t.Cleanup(app.Close)
	port := app.Listener.Addr().(*net.TCPAddr).Port
	at := loopback.PortFor(t)
	server := func(protocol, hosts string) string {
		return fmt.Sprintf("{port: {number: %d, name: %s, protocol: %s}, bind: 127.0.0.1, hosts: [%s]}", at, protocol, protocol, hosts)
	}
	startGateway(t, routerOf("edge", "gw"), server("HTTP", "plain.test, both.test")+", "+server("GRPC-WEB", "web.test, both.test"),
		[]func([]byte) []byte{func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"10.7.0.1"`), []byte(`"127.0.0.1"`)) }},
		svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"), eps(t, "a/s0-1", fmt.Sprintf("{name: http, number: %d}", port), "10.7.0.1"),
		leadsTo(t, "p", "plain.test", "s0"), leadsTo(t, "w", "web.test", "s0"), leadsTo(t, "b", "both.test", "s0"))
	for host, want := range map[string]string{"plain.test": "application/grpc-web", "both.test": "application/grpc-web", "web.test": "application/grpc"} {
		ask(t, dialPort(t, at), "POST / HTTP/1.1\r\nHost: "+host+"\r\nContent-Type: application/grpc-web\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		mu.Lock()
		if got := seen[host]; got != want {
			t.Errorf("host %s: the backend receives %q, want %q", host, got, want)
		}
		mu.Unlock()
	}
}
