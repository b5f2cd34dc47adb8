package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// node returns the node of a sidecar, as an agent sends it.
func node(namespace, workload, ip string) *corev3.Node {
	meta, err := structpb.NewStruct(map[string]any{
		"NAME": workload + "-0", "NAMESPACE": namespace, "CLUSTER_ID": "Kubernetes", "SERVICE_ACCOUNT": workload,
		"WORKLOAD_NAME": workload, "INSTANCE_IPS": ip, "LABELS": map[string]any{"app": workload},
	})
	if err != nil {
		panic(err)
	}
	return &corev3.Node{Id: fmt.Sprintf("sidecar~%s~%s-0.%s~%s.svc.cluster.local", ip, workload, namespace, namespace), Metadata: meta}
}

// everything requests all resources of a proxy from a replica, like an Envoy on its first connection, and returns the
// bodies by type and name. It acknowledges all responses.
func everything(ctx context.Context, address string, n *corev3.Node) (map[string][]byte, error) {
	return everythingAs(ctx, insecure.NewCredentials(), address, n)
}

func everythingAs(ctx context.Context, creds credentials.TransportCredentials, address string, n *corev3.Node) (map[string][]byte, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	a := asking{stream: stream, node: n, got: map[string][]byte{}}
	return a.got, a.everything()
}

// everything requests all resources, like an Envoy on its first connection.
func (a asking) everything() error {
	for _, pair := range [][2]xds.Type{{xds.Cluster, xds.Endpoint}, {xds.Listener, xds.Route}} {
		if err := a.ask(pair[0], nil); err != nil {
			return err
		}
		parents, err := a.receive(pair[0], 1)
		if err != nil {
			return err
		}
		names, err := needs(pair[0], parents)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			continue
		}
		if err := a.ask(pair[1], names); err != nil {
			return err
		}
		if _, err := a.receive(pair[1], len(names)); err != nil {
			return err
		}
	}
	return nil
}

// asking is a proxy's stream, with the received resources by type and name.
type asking struct {
	stream grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
	node   *corev3.Node
	got    map[string][]byte
}

func (a asking) ask(t xds.Type, subscribe []string) error {
	err := a.stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: a.node, TypeUrl: t.URL(), ResourceNamesSubscribe: subscribe})
	if errors.Is(err, io.EOF) {
		return nil // refused already: Recv returns the reason
	}
	return err
}

// receive receives and acknowledges responses until `want` resources of the type have arrived.
func (a asking) receive(t xds.Type, want int) ([]*discoveryv3.Resource, error) {
	var all []*discoveryv3.Resource
	for {
		res, err := a.stream.Recv()
		if err != nil {
			return nil, err
		}
		err = a.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce})
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		for _, r := range res.Resources {
			a.got[res.TypeUrl+" "+r.Name] = r.Resource.Value
			a.got[res.TypeUrl+" "+r.Name+" version"] = []byte(r.Version)
		}
		if res.TypeUrl == t.URL() {
			all = append(all, res.Resources...)
			if len(all) >= want {
				return all, nil
			}
		}
	}
}

// same fails the test unless the answers of two replicas are equal byte for byte.
func same(t *testing.T, a, b map[string][]byte) {
	t.Helper()
	for name, body := range a {
		if string(b[name]) != string(body) {
			t.Errorf("%s differs: %d bytes and %d bytes", name, len(body), len(b[name]))
		}
	}
	if len(a) != len(b) || len(a) == 0 {
		t.Errorf("%d answers and %d answers", len(a), len(b))
	}
}

func unmarshal[M proto.Message](r *discoveryv3.Resource, into M) (M, error) {
	return into, r.Resource.UnmarshalTo(into)
}

// needs returns the names that Envoy would request next: the endpoints of EDS clusters, the route configurations of
// listeners.
func needs(t xds.Type, parents []*discoveryv3.Resource) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	add := func(name string) {
		if name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, r := range parents {
		if t == xds.Cluster {
			c, err := unmarshal(r, &clusterv3.Cluster{})
			if err != nil {
				return nil, err
			}
			if c.GetType() == clusterv3.Cluster_EDS {
				add(c.Name)
			}
			continue
		}
		l, err := unmarshal(r, &listenerv3.Listener{})
		if err != nil {
			return nil, err
		}
		for _, chain := range l.FilterChains {
			for _, f := range chain.Filters {
				hcm := &hcmv3.HttpConnectionManager{}
				if f.GetTypedConfig().MessageIs(hcm) {
					if err := f.GetTypedConfig().UnmarshalTo(hcm); err != nil {
						return nil, err
					}
					add(hcm.GetRds().GetRouteConfigName())
				}
			}
		}
	}
	return names, nil
}
