package proxy

import (
	"cmp"
	_ "embed"
	"maps"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Identity is one simulated workload: a Pod with its Envoy and agent.
type Identity struct {
	Namespace, Name string
	// Workload is WORKLOAD_NAME (the Deployment); empty: Name.
	Workload       string
	ServiceAccount string // empty: "default"
	IP             string // IP address of the Pod
	Cluster        string // CLUSTER_ID; empty: "Kubernetes"
	Network        string
	// Region, Zone and Subzone are the node's locality.
	Region, Zone, Subzone string
	Labels                map[string]string
	// Type is the first part of the node's id; empty: "sidecar".
	Type string
	// Metadata are further string values of the node's metadata.
	Metadata map[string]string
	// View names the configuration that this proxy should receive: CheckEqual expects equal names and versions on proxies
	// with the same View. Empty: the proxy is not compared.
	View string
}

// String returns name.namespace, as debug pages print it.
func (id Identity) String() string { return id.Name + "." + id.Namespace }

// SPIFFE returns the identity of the workload's certificate.
func (id Identity) SPIFFE(trustDomain string) string {
	return "spiffe://" + trustDomain + "/ns/" + id.Namespace + "/sa/" + cmp.Or(id.ServiceAccount, "default")
}

// NodeKind selects the content of the node in the first request.
type NodeKind uint8

const (
	// Short is id, cluster, locality and the metadata keys NAME, NAMESPACE, LABELS, CLUSTER_ID, SERVICE_ACCOUNT,
	// INSTANCE_IPS (and ISTIO_VERSION, NETWORK, WORKLOAD_NAME where they are set).
	Short NodeKind = iota
	// Stock adds the content that an unmodified Envoy 1.40 sends: user agent and 516 extensions, 61 KB in all.
	Stock
)

// stockText has user_agent_name, user_agent_build_version and extensions as Envoy 1.40.0 sends them;
// TestStockNodeIsEnvoys with -update writes it.
//
//go:embed stock.node.textproto
var stockText []byte

// stockTail is the wire form of stockText.
var stockTail = sync.OnceValues(func() ([]byte, error) {
	tail := &corev3.Node{}
	if err := prototext.Unmarshal(stockText, tail); err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(tail)
})

// encodeNode returns the encoded node. The result is used once. The error is that of a label that is not UTF-8.
func encodeNode(id Identity, cfg *Config) ([]byte, error) {
	account, workload := cmp.Or(id.ServiceAccount, "default"), cmp.Or(id.Workload, id.Name)
	meta := map[string]string{
		"NAME": id.Name, "NAMESPACE": id.Namespace, "CLUSTER_ID": cmp.Or(id.Cluster, "Kubernetes"), "SERVICE_ACCOUNT": account,
		"INSTANCE_IPS": id.IP,
	}
	for key, value := range map[string]string{"ISTIO_VERSION": cfg.IstioVersion, "NETWORK": id.Network, "WORKLOAD_NAME": id.Workload} {
		if value != "" {
			meta[key] = value
		}
	}
	maps.Copy(meta, id.Metadata)
	fields := make(map[string]*structpb.Value, len(meta)+1)
	for key, value := range meta {
		fields[key] = structpb.NewStringValue(value)
	}
	labels := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for key, value := range id.Labels {
		labels.Fields[key] = structpb.NewStringValue(value)
	}
	fields["LABELS"] = structpb.NewStructValue(labels)
	node := &corev3.Node{
		Id: strings.Join([]string{cmp.Or(id.Type, "sidecar"), id.IP, id.Name + "." + id.Namespace,
			id.Namespace + ".svc.cluster.local"}, "~"),
		Cluster:  workload + "." + id.Namespace,
		Metadata: &structpb.Struct{Fields: fields},
	}
	if id.Region != "" || id.Zone != "" || id.Subzone != "" {
		node.Locality = &corev3.Locality{Region: id.Region, Zone: id.Zone, SubZone: id.Subzone}
	}
	b, err := proto.Marshal(node)
	if err != nil || cfg.Node != Stock {
		return b, err
	}
	tail, err := stockTail()
	return append(b, tail...), err
}

// appendNode appends the node as field `number` of a request.
func appendNode(b, node []byte, number protowire.Number) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendBytes(b, node)
}
