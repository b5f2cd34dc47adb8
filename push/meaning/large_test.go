package meaning

import (
	"context"
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A tenant can have one resource with tens of thousands of elements. A comparison in one pass takes about a second, a
// quadratic one more than the limit.
func TestLargeResourcesAreComparedInOnePass(t *testing.T) {
	const elements, limit = 40_000, 40 * time.Second
	for name, of := range map[string]func(weight uint32) proto.Message{
		"localities": func(weight uint32) proto.Message {
			m := &endpointv3.ClusterLoadAssignment{ClusterName: "outbound|80||a.shop.svc.cluster.local"}
			for i := range elements {
				m.Endpoints = append(m.Endpoints, &endpointv3.LocalityLbEndpoints{
					Locality:            &corev3.Locality{Region: fmt.Sprint(i)},
					LoadBalancingWeight: wrapperspb.UInt32(weight),
					LbEndpoints: []*endpointv3.LbEndpoint{{LoadBalancingWeight: wrapperspb.UInt32(weight),
						HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: pipe(i)}}}}})
			}
			return m
		},
		"named elements": func(weight uint32) proto.Message {
			m := &clusterv3.Cluster{Name: "a"}
			for i := range elements {
				m.TransportSocketMatches = append(m.TransportSocketMatches,
					&clusterv3.Cluster_TransportSocketMatch{Name: fmt.Sprint(i, "/", weight/2)})
			}
			return m
		},
		"chains": func(weight uint32) proto.Message {
			m := &listenerv3.Listener{Name: "0.0.0.0_443", StatPrefix: fmt.Sprint(weight), Address: pipe(0)}
			for i := range elements {
				m.FilterChains = append(m.FilterChains, &listenerv3.FilterChain{Name: fmt.Sprint(i),
					FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: []string{fmt.Sprint(i)}},
					Filters:          []*listenerv3.Filter{{Name: "tcp", ConfigType: tcpTo(fmt.Sprint(i))}}})
			}
			return m
		},
		"filters": func(weight uint32) proto.Message {
			chain := &listenerv3.FilterChain{Name: fmt.Sprint(weight)}
			for range elements {
				chain.Filters = append(chain.Filters, &listenerv3.Filter{Name: "same"})
			}
			return &listenerv3.Listener{Name: "0.0.0.0_443", FilterChains: []*listenerv3.FilterChain{chain}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, now := of(1), of(2)
			done := make(chan int, 1)
			go func() { done <- len(compareMessages(old, now)) + len(compareMessages(nil, now)) }()
			select {
			case n := <-done:
				if n == 0 {
					t.Error("no difference was found")
				}
			case <-time.After(limit):
				t.Fatalf("the comparison of %d elements takes longer than %s", elements, limit)
			}
		})
	}
}

// compareMessages returns the facts about two messages; nil: the resource is new.
func compareMessages(old, now proto.Message) []Fact {
	switch now := now.(type) {
	case *clusterv3.Cluster:
		was, _ := old.(*clusterv3.Cluster)
		return clusterFacts(was, now)
	case *listenerv3.Listener:
		was, _ := old.(*listenerv3.Listener)
		return listenerFacts(Pair{Old: was, New: now}, newMemo(context.Background()))
	}
	was, _ := old.(*endpointv3.ClusterLoadAssignment)
	return assignmentFacts(was, now.(*endpointv3.ClusterLoadAssignment))
}

// pipe returns the address of a Unix socket.
func pipe(number int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: fmt.Sprint("/", number)}}}
}

// tcpTo returns a TCP proxy to a cluster.
func tcpTo(cluster string) *listenerv3.Filter_TypedConfig {
	config, err := anypb.New(&tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}})
	if err != nil {
		panic(err)
	}
	return &listenerv3.Filter_TypedConfig{TypedConfig: config}
}
