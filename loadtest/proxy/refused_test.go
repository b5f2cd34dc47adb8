package proxy

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"navarch.io/navarch/push/xds"
)

// A proxy whose stream ended before its first response has no resources: on the next stream it waits for its clusters
// before it subscribes to listeners, whatever else the server sends.
func TestRefusedBeforeTheFirstResponse(t *testing.T) {
	s := serve(t, nil)
	s.mute[xds.Cluster] = true // before anybody asks
	f := fleet(t, 0, Config{}, s)
	f.Add(identities(1)...)
	first := func(r *discoveryv3.DeltaDiscoveryRequest) bool { return r.TypeUrl == xds.Cluster.URL() }
	eventually(t, "it has asked", func() bool { return s.count(first) == 1 })
	f.Reconnect(All, Reconnect{})
	eventually(t, "it has asked again", func() bool { return s.count(first) == 2 })
	f.Add(identities(2)[1]) // when it has connected too, the ping of the first one was answered long ago
	eventually(t, "another has asked", func() bool { return s.count(first) == 3 })
	s.say(xds.Cluster, []string{"a", "b"}, nil)
	join(t, f, 2)
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []xds.Type
	for _, r := range s.requests {
		got = append(got, xds.ParseURL(r.TypeUrl))
	}
	if at := slices.Index(got, xds.Listener); at < slices.Index(got, xds.Endpoint) {
		t.Errorf("it asked for %v: listeners before it had clusters", got)
	}
}

// Proxies whose streams one of two servers ends before a response connect to the other one.
func TestRefusedFindAnotherServer(t *testing.T) {
	a, b := serve(t, nil), serve(t, nil)
	a.refuse = grpcstatus.Error(codes.Unavailable, "not yet")
	f := fleet(t, 4, Config{}, a, b)
	if st := f.Stats(); st.Ended["Unavailable"] == 0 {
		t.Errorf("nobody was refused: %+v", st)
	}
}
