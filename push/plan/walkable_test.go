package plan

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/push/xds"
)

// walkable returns the messages of a plan.
func walkable(t testing.TB, set *manifest.Set) *walk.Messages {
	t.Helper()
	held := &walk.Messages{}
	for _, r := range set.Types[xds.Listener].Sorted() {
		held.Add(listenerOf(t, set, r.Name))
	}
	for _, of := range []struct {
		kind xds.Type
		make func() proto.Message
	}{
		{xds.Route, func() proto.Message { return &routev3.RouteConfiguration{} }},
		{xds.Cluster, func() proto.Message { return &clusterv3.Cluster{} }},
		{xds.Endpoint, func() proto.Message { return &endpointv3.ClusterLoadAssignment{} }},
	} {
		for _, r := range set.Types[of.kind].Sorted() {
			held.Add(decode(t, set, of.kind, r.Name, of.make()))
		}
	}
	return held
}

// called returns the status that a client gets by the walk through both proxies: 200 is the application's.
func called(c walk.Call) int {
	switch {
	case c.Broken != "", c.Server != nil && c.Server.Outcome == walk.Closed:
		return http.StatusServiceUnavailable
	case c.Server != nil && c.Server.Outcome == walk.Forwarded:
		return http.StatusOK
	case c.Server != nil:
		return c.Server.Status
	case c.Client.Outcome == walk.Forwarded: // nothing can receive the request
		return http.StatusServiceUnavailable
	}
	return c.Client.Status
}

// callWalked follows the request of asImpostor from the client's proxy at a port to the server's.
func callWalked(t testing.TB, client, server *manifest.Set, port int, identity string) walk.Call {
	t.Helper()
	return callOf(walk.Peer{Held: walkable(t, client), Addresses: []string{"127.0.0.1"}, Identity: "spiffe://cluster.local/ns/a/sa/client"},
		walk.Peer{Held: walkable(t, server), Addresses: []string{"127.0.0.1"}, Identity: identity}, port)
}

// callOf is callWalked for two peers, at the present time.
func callOf(client, server walk.Peer, port int) walk.Call {
	const host = "server.b.svc.cluster.local"
	return walk.Between(client, server, walk.Request{Scheme: "http", Name: host, Address: "127.0.0.1", Port: uint32(port), Time: time.Now(),
		Headers: map[string]string{":method": "GET", ":authority": host, ":scheme": "http", ":path": "/x/y"}})
}
