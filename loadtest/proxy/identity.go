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

// Identity is one simulated workload: a pod with its Envoy and agent.
type Identity struct {
	Namespace, Name string
	// Workload is WORKLOAD_NAME (the Deployment); empty: Name.
	Workload       string
	ServiceAccount string // empty: "default"
	IP             string // of the pod
	Cluster        string // CLUSTER_ID; empty: "Kubernetes"
	Network        string
	// Region, Zone and Subzone are the node's locality.
	Region, Zone, Subzone string
	Labels                map[string]string
	// Type is the first part of the node's id; empty: "sidecar".
	Type string
	// Metadata are further string values of the node's metadata.
	Metadata map[string]string
	// View is a name for what this proxy should be sent: CheckEqual expects proxies of equal Views to hold the same names
	// and versions of the given types. Empty: it is compared with no other.
	View string
}

// String is name.namespace, as debug pages print it.
func (id Identity) String() string { return id.Name + "." + id.Namespace }

// SPIFFE is the identity of the workload's certificate.
func (id Identity) SPIFFE(trustDomain string) string {
	return "spiffe://" + trustDomain + "/ns/" + id.Namespace + "/sa/" + cmp.Or(id.ServiceAccount, "default")
}

// NodeKind says how much of a node the first request carries.
type NodeKind uint8

const (
	// Short is id, cluster, locality and the metadata keys NAME, NAMESPACE, LABELS, CLUSTER_ID, SERVICE_ACCOUNT,
	// INSTANCE_IPS (and ISTIO_VERSION, NETWORK, WORKLOAD_NAME where they are set).
	Short NodeKind = iota
	// Stock adds what an unmodified Envoy 1.40 sends with it: user agent and 516 extensions, 61 KB in all.
	Stock
)

// stockText is user_agent_name, user_agent_build_version and extensions as Envoy 1.40.0 sends them; made by
// TestStockNodeIsEnvoys with -update.
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

// encodeNode is the wire form of the node, as fields of core.v3.Node. It is used once and kept nowhere.
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
