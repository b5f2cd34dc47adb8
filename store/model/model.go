// Package model is the vocabulary of the store: keys, hashes and the normalised records that replicas plan from.
//
// Owns: the wire format of records (record.proto).  Reads: store/origin.  Never: sockets, clocks, Envoy types.
//
// # Kinds that a build does not know
//
// Each kind has a mark (mark.go). A build that does not know a kind skips its records, or, where the kind is closing
// (policies), takes no new streams from the proxies that a record covers. A record of a closing kind has the field
// RecordValue.closing, and its path names its namespace, so that an older build can tell what the record covers
// (ReadUnknown). mirror.Snapshot keeps such records apart from the others, and push/join refuses the proxies that they
// cover.
package model

import (
	"cmp"
	"fmt"
	"strings"

	"navarch.io/navarch/store/origin"
)

// Kind says what a record is. The order is the order of keys in etcd listings and nothing else; the names are stored,
// never the numbers, so kinds may be added anywhere.
type Kind uint8

// The kinds of record. Nodes have none: what they say is folded into Endpoints and Workloads by the normaliser.
const (
	KindInvalid      Kind = iota
	KindMesh              // MeshConfig; one per mesh, namespace "" and name "mesh"
	KindService           // Kubernetes Service
	KindServiceEntry      // Istio ServiceEntry, as a Service
	KindEndpoints         // one EndpointSlice, or the inline endpoints of one ServiceEntry
	KindVirtualService
	KindDestinationRule
	KindSidecar
	KindEnvoyFilter
	KindPeerAuthentication
	KindAuthorizationPolicy
	KindRequestAuthentication
	KindSecret       // Kubernetes Secret with TLS material, its key sealed
	KindGateway      // Istio Gateway; no listeners are planned of it yet, it says which Secrets its proxies use
	KindSecretReader // Kubernetes RoleBinding or ClusterRoleBinding (namespace "") that lets service accounts list Secrets
	KindWorkload     // Kubernetes Pod, or Istio WorkloadEntry: what selectors pick
	// KindServiceAccount is a Kubernetes ServiceAccount: tokens are compared with it, and no plan reads it.
	KindServiceAccount
	// KindWorkloadGroup is an Istio WorkloadGroup: it says which service account is a machine's, and no plan reads it.
	KindWorkloadGroup
	// KindNamespace is a Kubernetes Namespace, whether its objects are read or not: that it is there. Tokens are compared with it, and no plan
	// reads it.
	KindNamespace
	// KindNetworkGateways is the gateways of networks that one object names: a Kubernetes Service, or meshNetworks (namespace "").
	KindNetworkGateways
	// KindTelemetry is an Istio Telemetry.
	KindTelemetry
	KindWasmPlugin       // Istio WasmPlugin, as the TrafficExtension that it is a part of
	KindTrafficExtension // Istio TrafficExtension
	// KindProxyConfig is an Istio ProxyConfig: Pods are injected by it, and no plan reads it.
	KindProxyConfig
	NumKinds // how many there are; not a kind
)

// Groups of Istio's API.
const (
	groupNetworking = "networking.istio.io"
	groupSecurity   = "security.istio.io"
	groupTelemetry  = "telemetry.istio.io"
	groupExtensions = "extensions.istio.io"
)

// kinds has a row for each Kind. Two kinds of one Kubernetes kind (Gateway of Istio, Gateway of the Gateway API) have two
// stored names: that of the younger one is kind.group, as kubectl writes it.
var kinds = [NumKinds]struct {
	name   string // as stored
	group  string // of the objects that most records of the kind are made of
	object string // their kind; empty: name
}{
	KindInvalid:               {"Invalid", "", ""},
	KindMesh:                  {"Mesh", "", "ConfigMap"},
	KindService:               {"Service", "", ""},
	KindServiceEntry:          {"ServiceEntry", groupNetworking, ""},
	KindEndpoints:             {"Endpoints", "discovery.k8s.io", "EndpointSlice"},
	KindVirtualService:        {"VirtualService", groupNetworking, ""},
	KindDestinationRule:       {"DestinationRule", groupNetworking, ""},
	KindSidecar:               {"Sidecar", groupNetworking, ""},
	KindEnvoyFilter:           {"EnvoyFilter", groupNetworking, ""},
	KindPeerAuthentication:    {"PeerAuthentication", groupSecurity, ""},
	KindAuthorizationPolicy:   {"AuthorizationPolicy", groupSecurity, ""},
	KindRequestAuthentication: {"RequestAuthentication", groupSecurity, ""},
	KindSecret:                {"Secret", "", ""},
	KindGateway:               {"Gateway", groupNetworking, ""},
	KindSecretReader:          {"SecretReader", "rbac.authorization.k8s.io", "RoleBinding"},
	KindWorkload:              {"Workload", "", "Pod"},
	KindServiceAccount:        {"ServiceAccount", "", ""},
	KindWorkloadGroup:         {"WorkloadGroup", groupNetworking, ""},
	KindNamespace:             {"Namespace", "", ""},
	KindNetworkGateways:       {"NetworkGateways", "", "Service"},
	KindTelemetry:             {"Telemetry", groupTelemetry, ""},
	KindWasmPlugin:            {"WasmPlugin", groupExtensions, ""},
	KindTrafficExtension:      {"TrafficExtension", groupExtensions, ""},
	KindProxyConfig:           {"ProxyConfig", groupNetworking, ""},
}

// String returns the kind's name as stored in etcd and shown to users.
func (k Kind) String() string {
	if k >= NumKinds {
		k = KindInvalid
	}
	return kinds[k].name
}

// Object returns the API group and the kind of the Kubernetes objects that records of the kind are made of. Some records are made of others too:
// Endpoints of ServiceEntries, Workloads of WorkloadEntries, SecretReaders of ClusterRoleBindings (normal.SourceObject).
func (k Kind) Object() (group, kind string) {
	if k >= NumKinds {
		k = KindInvalid
	}
	return kinds[k].group, cmp.Or(kinds[k].object, kinds[k].name)
}

// FollowsWorkloads says whether records of the kind come, change and go as workloads do, without anybody editing configuration: such
// changes are frequent, are not debounced, and are no tenant's doing.
func (k Kind) FollowsWorkloads() bool { return k == KindEndpoints || k == KindWorkload }

// Kinds lists every kind of record, in order.
func Kinds() []Kind {
	all := make([]Kind, 0, NumKinds-1)
	for k := KindInvalid + 1; k < NumKinds; k++ {
		all = append(all, k)
	}
	return all
}

// ParseKind is the inverse of String; false for names that are no kind.
func ParseKind(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if kinds[k].name == name {
			return k, true
		}
	}
	return KindInvalid, false
}

// Key names one record. Namespace is empty for what belongs to the mesh.
type Key struct {
	Kind      Kind
	Namespace string
	Name      string
	Origin    origin.Origin
}

// String is the key as users read it: Kind namespace/name, or Kind name of what has no namespace, with the cluster where it is not the
// config cluster. The mesh configuration, of which there is one, is "MeshConfig".
func (k Key) String() string {
	switch {
	case k.Kind == KindMesh:
		return "MeshConfig"
	case k.Namespace == "":
		return k.Kind.String() + " " + k.Name + k.Origin.Suffix()
	}
	return k.Kind.String() + " " + k.Namespace + "/" + k.Name + k.Origin.Suffix()
}

// Path is the key below records/ in etcd: kind/cluster/source/namespace/name. Only what Check takes is a path of its own.
func (k Key) Path() string {
	return k.Kind.String() + "/" + k.Origin.Cluster() + "/" + k.Origin.Source() + "/" + k.Namespace + "/" + k.Name
}

// pathParts is how many parts a path has.
const pathParts = 5

// Check refuses keys whose path would be another key's, or none: a part of it has a slash or a NUL, or there is no name.
func (k Key) Check() error {
	switch {
	case k.Kind == KindInvalid || k.Kind >= NumKinds:
		return fmt.Errorf("key %v: it is of no kind", k)
	case k.Name == "":
		return fmt.Errorf("key %v: it has no name", k)
	case strings.ContainsAny(k.Origin.Cluster()+k.Origin.Source()+k.Namespace+k.Name, "/\x00"):
		return fmt.Errorf("key %v: no part of it may have a slash or a NUL", k)
	}
	return nil
}

// ParsePath is the inverse of Path. The error wraps ErrUnknownKind where nothing but the kind is wrong.
func ParsePath(path string) (Key, error) {
	parts := strings.Split(path, "/")
	if len(parts) != pathParts || parts[pathParts-1] == "" || strings.Contains(path, "\x00") {
		return Key{}, fmt.Errorf("record path %q: want kind/cluster/source/namespace/name", path)
	}
	kind, ok := ParseKind(parts[0])
	if !ok {
		return Key{}, fmt.Errorf("record path %q: %w %q", path, ErrUnknownKind, parts[0])
	}
	return Key{Kind: kind, Origin: origin.New(parts[1], parts[2]), Namespace: parts[3], Name: parts[4]}, nil
}

// Compare orders keys by kind, namespace and name, then by origin, the config cluster first.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name), k.Origin.Compare(o.Origin))
}
