package meaning

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/loopback"
)

// packed encodes a message; literals do not fail.
func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// plainChain returns a chain for a port that leads to a cluster.
func plainChain(port uint32, cluster string) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(port)},
		Filters: []*listenerv3.Filter{{Name: "tcp", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(&tcpv3.TcpProxy{
			StatPrefix: cluster, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}})}}}}
}

// inspector returns a listener filter.
func inspector(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: packed(config)}}
}

// A listener for which NP301 is reported is one that Envoy replaces; others it updates in place.
func TestEnvoyReplacesListeners(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "listeners.json")
	host, port := "127.0.0.1", uint32(loopback.PortFor(t))
	l := &listenerv3.Listener{Name: "l", FilterChains: []*listenerv3.FilterChain{plainChain(1, "a"), plainChain(2, "b")},
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}},
		ListenerFilters: []*listenerv3.ListenerFilter{
			inspector("tls", &tlsinspectorv3.TlsInspector{}), inspector("http", &httpinspectorv3.HttpInspector{})}}
	write := func(version int) {
		raw, err := protojson.Marshal(&discoveryv3.DiscoveryResponse{VersionInfo: fmt.Sprint(version), Resources: []*anypb.Any{packed(l)}})
		if err == nil {
			err = os.WriteFile(file+".new", raw, 0o600)
		}
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	envoy := envoytest.Start(t, envoytest.Bootstrap{"node": map[string]any{"id": "n", "cluster": "c"}, "dynamic_resources": map[string]any{
		"lds_config": map[string]any{"resource_api_version": "V3", "path_config_source": map[string]any{
			"path": file, "watched_directory": map[string]any{"path": folder}}}}})
	envoy.Live()
	inPlaces, replacements := 0, 0
	for i, c := range []struct {
		what   string
		change func()
	}{
		{"a chain leads elsewhere", func() { l.FilterChains[0] = plainChain(1, "c") }},
		{"a buffer", func() { l.PerConnectionBufferLimitBytes = wrapperspb.UInt32(9000) }},
		{"another chain", func() { l.FilterChains = append(l.FilterChains, plainChain(3, "d")) }},
		{"the order of listener filters", func() { slices.Reverse(l.ListenerFilters) }},
		{"a listener filter less", func() { l.ListenerFilters = l.ListenerFilters[:1] }},
		{"a default chain", func() {
			l.DefaultFilterChain = plainChain(4, "e")
			l.DefaultFilterChain.FilterChainMatch = nil
		}},
		{"a timeout", func() { l.ListenerFiltersTimeout = durationpb.New(time.Second) }},
		{"the order of chains", func() { slices.Reverse(l.FilterChains) }},
	} {
		before := counts(t, envoy)
		old := proto.CloneOf(l)
		c.change()
		write(i + 1)
		after := counts(t, envoy)
		const updates = "listener_manager.lds.update_success"
		for began := time.Now(); after[updates] == before[updates]; after = counts(t, envoy) {
			if time.Since(began) > envoytest.Patience {
				t.Fatalf("%s: Envoy does not read the file: %v", c.what, after)
			}
			time.Sleep(envoytest.Pause(time.Since(began)))
		}
		inPlace := after["listener_manager.listener_in_place_updated"] > before["listener_manager.listener_in_place_updated"]
		replaced := after["listener_manager.listener_modified"] > before["listener_manager.listener_modified"] && !inPlace
		inPlaces += map[bool]int{true: 1}[inPlace]
		replacements += map[bool]int{true: 1}[replaced]
		empty, _ := new(Decoder).Between(nil, nil)
		of := Pair{Type: xds.Listener, Name: "l", Old: old, New: proto.CloneOf(l)}
		risks := Risks(View{Before: empty.Before, After: empty.After, Pairs: []Pair{of}})
		if reported := slices.ContainsFunc(risks, func(r Risk) bool { return r.Code == ListenerReplaced }); reported != replaced {
			t.Errorf("%s: NP301 is %v; Envoy replaces the listener: %v, updates it in place: %v", c.what, reported, replaced, inPlace)
		}
	}
	if inPlaces != 5 || replacements != 3 {
		t.Errorf("Envoy updates %d times in place and replaces %d times, want 5 and 3", inPlaces, replacements)
	}
}

// counts returns the counters of Envoy.
func counts(t *testing.T, envoy *envoytest.Envoy) map[string]int {
	t.Helper()
	all, err := envoytest.Stats(envoy.Admin)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
