package attack

import (
	"cmp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// node contains the claims of a proxy about itself.
type node struct {
	namespace, account, name string
	labels                   map[string]string
	metadata                 map[string]string // further metadata
	address                  string            // empty: a default address
}

// message returns the node as in a first request.
func (n *node) message() *corev3.Node {
	address := cmp.Or(n.address, "10.99.99.99")
	labels := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for key, value := range n.labels {
		labels.Fields[key] = structpb.NewStringValue(value)
	}
	fields := map[string]*structpb.Value{"LABELS": structpb.NewStructValue(labels)}
	for key, value := range n.metadata {
		fields[key] = structpb.NewStringValue(value)
	}
	for key, value := range map[string]string{"NAME": n.name, "NAMESPACE": n.namespace, "SERVICE_ACCOUNT": n.account, "WORKLOAD_NAME": n.name,
		"CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": address, "NAVARCH_IDENTITY": "sds"} {
		fields[key] = structpb.NewStringValue(value)
	}
	return &corev3.Node{
		Id:      strings.Join([]string{"sidecar", address, n.name + "." + n.namespace, n.namespace + ".svc.cluster.local"}, "~"),
		Cluster: n.name + "." + n.namespace, Metadata: &structpb.Struct{Fields: fields},
	}
}
