package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

// stranger is a foreign server: it reads the folder in its own way, speaks delta, and has no pages. It serves only
// clusters and their endpoints, and ignores claimed versions.
type stranger struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	dir string

	mu        sync.Mutex
	resources [xds.NumTypes]map[string]*discoveryv3.Resource
	streams   map[*strange]bool
	nonce     int
}

// strange is one stream, with the names and types that it has subscribed to.
type strange struct {
	grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
	names map[string]bool
	asked [xds.NumTypes]bool
}

// host starts a stranger for a folder, and returns its address.
func host(t *testing.T, dir string) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stranger{dir: dir, streams: map[*strange]bool{}}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(lis) }) // ends with Stop
	wg.Go(func() { s.follow(done) })
	t.Cleanup(func() { close(done); server.Stop(); wg.Wait() })
	return lis.Addr().String()
}

// follow reads the folder again and again.
func (s *stranger) follow(done chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		s.read()
		select {
		case <-tick.C:
		case <-done:
			return
		}
	}
}

// read makes resources of the files of endpoints, and pushes assignments that changed.
func (s *stranger) read() {
	clusters, assignments := map[string]*discoveryv3.Resource{}, map[string]*discoveryv3.Resource{}
	_ = filepath.WalkDir(filepath.Join(s.dir, "endpoints"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return nil // not written yet, or away for the moment
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		service := strings.TrimSuffix(filepath.Base(path), ".yaml") + "." + filepath.Base(filepath.Dir(path)) + ".svc.cluster.local"
		ready := uint32(bytes.Count(raw, []byte("ready: true")))
		for _, port := range []uint32{80, 9000} {
			name := xds.OutboundCluster(port, "", service)
			clusters[name] = resourceOf(name, &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
				EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}}})
			assignments[name] = resourceOf(name, &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: ready}}})
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.resources[xds.Endpoint]
	s.resources[xds.Cluster], s.resources[xds.Endpoint] = clusters, assignments
	for st := range s.streams {
		var names []string
		for name, now := range assignments {
			if was := before[name]; st.names[name] && was != nil && was.Version != now.Version {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			_ = s.send(st, xds.Endpoint, names) // a stream that has ended is taken off by its handler
		}
	}
}

func resourceOf(name string, m proto.Message) *discoveryv3.Resource {
	body, err := anypb.New(m)
	if err != nil {
		panic(err) // the object is our own
	}
	return &discoveryv3.Resource{Name: name, Version: fmt.Sprintf("%x", sha256.Sum256(body.Value))[:16], Resource: body}
}

// send sends what there is of some names; mu is held.
func (s *stranger) send(st *strange, t xds.Type, names []string) error {
	s.nonce++
	slices.Sort(names)
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: t.URL(), Nonce: fmt.Sprint(s.nonce), SystemVersionInfo: "mine"}
	for _, name := range names {
		if one := s.resources[t][name]; one != nil {
			r.Resources = append(r.Resources, one)
		}
	}
	return st.Send(r)
}

// DeltaAggregatedResources serves one proxy.
func (s *stranger) DeltaAggregatedResources(stream grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	st := &strange{BidiStreamingServer: stream, names: map[string]bool{}}
	s.mu.Lock()
	s.streams[st] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, st)
	}()
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := s.answer(st, r); err != nil {
			return err
		}
	}
}

func (s *stranger) answer(st *strange, r *discoveryv3.DeltaDiscoveryRequest) error {
	t := xds.ParseURL(r.TypeUrl)
	if t == xds.Unknown || r.ResponseNonce != "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := r.ResourceNamesSubscribe
	if t.Wildcard() && !st.asked[t] {
		for name, one := range s.resources[t] {
			if r.InitialResourceVersions[name] != one.Version {
				names = append(names, name)
			}
		}
	} else if len(names) == 0 {
		return nil
	}
	st.asked[t] = true
	if t == xds.Endpoint {
		for _, name := range names {
			st.names[name] = true
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			return s.resources[t][name] != nil && r.InitialResourceVersions[name] == s.resources[t][name].Version
		})
	}
	return s.send(st, t, names)
}

// Any server of the protocol can be measured, by its address and the folder that it reads. Without its own debug page
// only proxies are measured; with its process ID its costs are, too.
func TestAnyServerOfTheProtocol(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{"the address alone": nil, "and the process": {"--pid", fmt.Sprint(os.Getpid())}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "mesh")
			args := append([]string{"run", "join", "endpoint", "reconnect", "--address", host(t, dir), "--config-dir", dir, "--settle", "300ms",
				"--scale", "0.02", "--proxies", "12", "--repeats", "1", "--processes", "0"}, more...)
			r := load(t, args...)
			for _, s := range r.Scenarios {
				if s.Failed != "" || s.Violated() > 0 || s.Traffic["EDS"].Resources == 0 {
					t.Errorf("%s: failed %q, violations %v, traffic %v", s.Name, s.Failed, s.Violations, s.Traffic)
				}
			}
			rows := map[string]bool{}
			for _, row := range slices.Concat(r.Scenarios[0].Rows, r.Scenarios[1].Rows) {
				rows[row.Name] = true
			}
			if !rows["edit to last ACK"] || rows["server CPU per edit"] != (more != nil) || rows["base RSS"] != (more != nil) {
				t.Errorf("figures: %v", rows)
			}
			if notes := strings.Join(r.Scenarios[1].Notes, " "); !strings.Contains(notes, "no page") {
				t.Errorf("notes: %s", notes)
			}
		})
	}
}
