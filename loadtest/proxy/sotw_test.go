package proxy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"navarch.io/navarch/push/xds"
)

// sotwStream is one stream of the older form.
type sotwStream = grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]

// sotwServer is a small, correct server of state of the world over the same small mesh.
type sotwServer struct {
	*server
	open  []sotwStream
	asked map[string][]*discoveryv3.DiscoveryRequest // by type
}

func serveSotW(t *testing.T) *sotwServer {
	w := &sotwServer{asked: map[string][]*discoveryv3.DiscoveryRequest{}}
	w.server = serve(t, nil)
	w.server.sotwStreams = w
	return w
}

// StreamAggregatedResources implements the state-of-the-world protocol of the server.
func (s *server) StreamAggregatedResources(st sotwStream) error {
	w := s.sotwStreams
	s.mu.Lock()
	w.open = append(w.open, st)
	s.mu.Unlock()
	subscribed := map[string][]string{}
	for {
		r, err := st.Recv()
		if err != nil {
			return nil
		}
		s.mu.Lock()
		w.asked[r.TypeUrl] = append(w.asked[r.TypeUrl], r)
		names, known := subscribed[r.TypeUrl]
		if subscribed[r.TypeUrl] = r.ResourceNames; !known || !slices.Equal(names, r.ResourceNames) {
			err = w.all(st, xds.ParseURL(r.TypeUrl), r.ResourceNames)
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// all sends everything of a type, or of the named type those names; mu is held.
func (w *sotwServer) all(st sotwStream, t xds.Type, names []string) error {
	w.nonce++
	r := &discoveryv3.DiscoveryResponse{TypeUrl: t.URL(), Nonce: fmt.Sprint(w.nonce), VersionInfo: fmt.Sprint("v", w.nonce),
		ControlPlane: nil}
	for name, one := range w.server.sotw[t] {
		if t.Wildcard() || slices.Contains(names, name) {
			r.Resources = append(r.Resources, one.Resource)
		}
	}
	return st.Send(r)
}

// push sends all of a type to every stream.
func (w *sotwServer) push(t xds.Type, names ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, st := range w.open {
		if err := w.all(st, t, names); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *sotwServer) newest(t xds.Type) *discoveryv3.DiscoveryRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.asked[t.URL()]
	return all[len(all)-1]
}

// Proxies with the state-of-the-world protocol join, list all names in every request, and acknowledge by version.
func TestSotWJoins(t *testing.T) {
	w := serveSotW(t)
	f := fleet(t, 2, Config{SotW: 1, Sample: 1}, w.server)
	clean(t, f)
	s := f.Stats()
	if s.Types["CDS"].Resources != 4 || s.Types["EDS"].Resources != 4 || s.Types["RDS"].Acks != 2 {
		t.Errorf("%+v", s.Types)
	}
	last := w.newest(xds.Endpoint)
	slices.Sort(last.ResourceNames)
	if !slices.Equal(last.ResourceNames, []string{"a", "b"}) || last.VersionInfo == "" || last.ResponseNonce == "" {
		t.Errorf("the ACK of the endpoints: %v", last)
	}
	if f.CheckEqual() != 0 {
		t.Error("proxies that were told the same differ")
	}
}

// Clusters that a response omits are removed, in use or not; omitted endpoints are kept.
func TestSotWRemovesByOmission(t *testing.T) {
	w := serveSotW(t)
	f := fleet(t, 1, Config{SotW: 1}, w.server)
	w.push(xds.Endpoint, "a") // b is not named
	probe := f.Watch(Change{Type: xds.Cluster, Name: "b", Gone: true})
	w.mu.Lock()
	delete(w.server.sotw[xds.Cluster], "b")
	w.mu.Unlock()
	w.push(xds.Cluster)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if o := probe.Wait(ctx); o.Acked != 1 {
		t.Errorf("%+v", o)
	}
	found := f.Stats().Found
	if found[RemovedInUse].Count != 1 || len(found) != 1 { // the route still names b
		t.Errorf("%+v", found)
	}
}

// A proxy that reconnects receives everything again, which does not count as duplicate, and holds the same resources.
func TestSotWResumes(t *testing.T) {
	w := serveSotW(t)
	f := fleet(t, 1, Config{SotW: 1}, w.server)
	before := f.Stats()
	f.Reconnect(All, Reconnect{Now: true})
	eventually(t, "the proxy is back", func() bool {
		s := f.Stats()
		return s.Streams == 2 && s.Joined == 1
	})
	clean(t, f)
	if got := f.Stats().Since(before).Types; got["CDS"].Resources != 2 || got["RDS"].Resources != 1 {
		t.Errorf("%+v", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.asked[xds.Cluster.URL()] {
		if r.ErrorDetail != nil {
			t.Errorf("%v", r)
		}
	}
}

// A NACK names the previous version, and the proxy keeps its resources.
func TestSotWRefuses(t *testing.T) {
	w := serveSotW(t)
	f := fleet(t, 1, Config{SotW: 1}, w.server)
	good := w.newest(xds.Cluster).VersionInfo
	f.SetBehaviour(All, Behaviour{Refuse: []Ref{{xds.Cluster, "a"}}})
	w.set(xds.Cluster, "a", "2", cluster("a", 2))
	w.push(xds.Cluster)
	eventually(t, "the proxy refuses", func() bool { return f.Stats().Types["CDS"].Nacks == 1 })
	eventually(t, "the server is told", func() bool { return w.newest(xds.Cluster).ErrorDetail != nil })
	if r := w.newest(xds.Cluster); r.VersionInfo != good {
		t.Errorf("the NACK names version %q; good was %q", r.VersionInfo, good)
	}
	clean(t, f)
}
