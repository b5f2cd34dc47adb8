package relay

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/agentapi"
)

// mesh is the configuration that all replicas of a set serve.
type mesh struct {
	mu        sync.Mutex
	resources map[string]map[string]*discoveryv3.Resource // type -> name
	owner     string
	revision  int
	store     string
	changed   chan struct{} // closed and replaced by each change
}

func newMesh() *mesh {
	return &mesh{resources: map[string]map[string]*discoveryv3.Resource{}, revision: 1, store: "s1", changed: make(chan struct{})}
}

func (m *mesh) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	m.revision++
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *mesh) set(t *testing.T, url, name, version string, body proto.Message) {
	t.Helper()
	b, err := anypb.New(body)
	if err != nil {
		t.Fatal(err)
	}
	m.change(func() {
		if m.resources[url] == nil {
			m.resources[url] = map[string]*discoveryv3.Resource{}
		}
		m.resources[url][name] = &discoveryv3.Resource{Name: name, Version: version, Resource: b}
	})
}

func (m *mesh) setOwner(addr string) { m.change(func() { m.owner = addr }) }

// replica is a small delta server of a mesh: it sends the difference from the versions that the client states.
type replica struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t    *testing.T
	mesh *mesh
	addr string
	stop func()

	mu       sync.Mutex
	headers  []metadata.MD                          // of each stream
	requests [][]*discoveryv3.DeltaDiscoveryRequest // of each stream
	sent     int                                    // resources and removals that are no agent resources
	refuse   error                                  // new streams
	behind   int                                    // the only revision that it has: it refuses clients that have seen a newer one
}

func (m *mesh) replica(t *testing.T, opts ...grpc.ServerOption) *replica {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &replica{t: t, mesh: m, addr: l.Addr().String()}
	s := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, v)
	go s.Serve(l)
	v.stop = s.Stop
	t.Cleanup(s.Stop)
	return v
}

type watched struct {
	all   bool
	asked map[string]bool // true: an answer is due
	held  map[string]string
	first bool // an answer is due, also an empty one
	nonce string
}

func (v *replica) DeltaAggregatedResources(s deltaServer) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	v.mu.Lock()
	refuse, behind, id := v.refuse, v.behind, len(v.headers)
	v.headers, v.requests = append(v.headers, md), append(v.requests, nil)
	v.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	if seen := md.Get("navarch-revision"); behind > 0 && len(seen) == 1 && seen[0] != strconv.Itoa(behind) {
		s.SetTrailer(metadata.Pairs("navarch-behind", strconv.Itoa(behind)))
		return status.Error(codes.Unavailable, "behind")
	}
	if err := s.SendHeader(metadata.Pairs("navarch-store", v.mesh.store)); err != nil {
		return err
	}
	requests := received(s)
	types, order, nonce := map[string]*watched{}, []string(nil), 0
	for {
		v.mesh.mu.Lock()
		changed := v.mesh.changed
		v.mesh.mu.Unlock()
		for _, url := range order {
			if w := types[url]; w.nonce == "" {
				if out := v.diff(url, w); out != nil {
					nonce++
					out.Nonce = strconv.Itoa(nonce)
					w.nonce = out.Nonce
					if err := s.Send(out); err != nil {
						return err
					}
				}
			}
		}
		select {
		case req, ok := <-requests:
			if !ok {
				return nil
			}
			v.mu.Lock()
			v.requests[id] = append(v.requests[id], req)
			if first := len(v.requests[id]) == 1; first != (req.Node != nil) {
				v.t.Errorf("replica %s: a node in a request: %v, and it is the first: %v", v.addr, req.Node != nil, first)
			}
			v.mu.Unlock()
			if types[req.TypeUrl] == nil {
				order = append(order, req.TypeUrl)
			}
			v.take(types, req)
		case <-changed:
		}
	}
}

// received returns the messages of a stream until its end.
func received(s deltaServer) <-chan *discoveryv3.DeltaDiscoveryRequest {
	requests := make(chan *discoveryv3.DeltaDiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			req, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- req:
			case <-s.Context().Done():
				return
			}
		}
	}()
	return requests
}

func (v *replica) take(types map[string]*watched, req *discoveryv3.DeltaDiscoveryRequest) {
	w := types[req.TypeUrl]
	if w == nil {
		w = &watched{all: len(req.ResourceNamesSubscribe) == 0, asked: map[string]bool{}, held: maps.Clone(req.InitialResourceVersions)}
		if w.held == nil {
			w.held = map[string]string{}
		}
		w.first = w.all && len(w.held) == 0
		types[req.TypeUrl] = w
	}
	if req.ResponseNonce != "" {
		if req.ResponseNonce != w.nonce {
			v.t.Errorf("replica %s, %s: nonce %q, in flight %q", v.addr, req.TypeUrl, req.ResponseNonce, w.nonce)
		}
		w.nonce = ""
	}
	for _, name := range req.ResourceNamesSubscribe {
		_, claimed := req.InitialResourceVersions[name]
		w.asked[name] = !claimed
	}
	for _, name := range req.ResourceNamesUnsubscribe {
		delete(w.asked, name)
		delete(w.held, name)
	}
}

// diff returns the next response of a type; nil: there is no difference.
func (v *replica) diff(url string, w *watched) *discoveryv3.DeltaDiscoveryResponse {
	m := v.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, SystemVersionInfo: strconv.Itoa(m.revision)}
	have := m.resources[url]
	if url == agentapi.OwnerURL && m.owner != "" {
		self := m.owner == v.addr
		fields, _ := structpb.NewStruct(map[string]any{"address": m.owner, "self": self})
		body, _ := anypb.New(fields)
		have = map[string]*discoveryv3.Resource{agentapi.OwnerName: {Name: agentapi.OwnerName, Version: m.owner + strconv.FormatBool(self), Resource: body}}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, asked := w.asked[name]; (asked || w.all) && (w.asked[name] || w.held[name] != have[name].Version) {
			out.Resources = append(out.Resources, have[name])
			w.held[name] = have[name].Version
		}
	}
	for name := range w.held {
		if have[name] == nil {
			out.RemovedResources = append(out.RemovedResources, name)
			delete(w.held, name)
		}
	}
	for name, due := range w.asked {
		if due && have[name] == nil {
			out.RemovedResources = append(out.RemovedResources, name)
		}
		w.asked[name] = false
	}
	n := len(out.Resources) + len(out.RemovedResources)
	if n == 0 && !w.first {
		return nil
	}
	w.first = false
	if url == typeCDS || url == typeEDS || url == typeLDS || url == typeRDS {
		v.mu.Lock()
		v.sent += n
		v.mu.Unlock()
	}
	return out
}

const (
	typeCDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	typeEDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	typeLDS = "type.googleapis.com/envoy.config.listener.v3.Listener"
	typeRDS = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

// count returns the number of opened streams and of the messages sent on all of them.
func (v *replica) count() (streams, sent int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.headers), v.sent
}

// stream is the headers and the requests of the nth stream, as far as they are there.
func (v *replica) stream(n int) (metadata.MD, []*discoveryv3.DeltaDiscoveryRequest) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n >= len(v.headers) {
		return nil, nil
	}
	return v.headers[n], slices.Clone(v.requests[n])
}
