// Package model defines the keys, hashes and typed records of the store: the normalised configuration from which
// replicas plan.
//
// Owns: the wire format of records (record.proto). Reads: store/origin. Never: uses sockets, clocks or Envoy's types.
//
// # Kinds that a build does not know
//
// A build is a compiled version of this program. Each kind has a mark (mark.go). A build skips records of a kind that
// it does not know. If the kind is closing (policies), the build also accepts no further streams from the proxies that
// a record covers. A record of a closing kind has the field RecordValue.closing, and its path names its namespace, so
// that an older build can determine which proxies the record covers (ReadUnknown). mirror.Snapshot keeps such records
// apart from the others, and push/join refuses the proxies that they cover.
package model

import (
	"cmp"
	"fmt"
	"strings"

	"navarch.io/navarch/store/origin"
)

// Kind is the kind of a record. The numbers only order keys in memory; etcd stores the names. So kinds may be added
// anywhere.
type Kind uint8

// The kinds of record. Kubernetes Nodes are not stored: the normaliser adds their data to Endpoints and Workloads.
const (
	KindInvalid               Kind = iota // the zero value; not a kind
	KindMesh                              // MeshConfig; one per mesh, namespace "" and name "mesh"
	KindService                           // Kubernetes Service
	KindServiceEntry                      // Istio ServiceEntry, as a Service
	KindEndpoints                         // one EndpointSlice, or the inline endpoints of one ServiceEntry
	KindVirtualService                    // Istio VirtualService
	KindDestinationRule                   // Istio DestinationRule
	KindSidecar                           // Istio Sidecar
	KindEnvoyFilter                       // Istio EnvoyFilter
	KindPeerAuthentication                // Istio PeerAuthentication
	KindAuthorizationPolicy               // Istio AuthorizationPolicy
	KindRequestAuthentication             // Istio RequestAuthentication
	KindSecret                            // Kubernetes Secret with TLS material or registry credentials; private parts are encrypted
	KindGateway                           // Istio Gateway; its servers are listeners of the routers that it selects
	KindSecretReader                      // RoleBinding, or ClusterRoleBinding (namespace ""), that lets service accounts list Secrets
	KindWorkload                          // Kubernetes Pod or Istio WorkloadEntry; selectors select it
	// KindServiceAccount is a Kubernetes ServiceAccount. Tokens are compared with it, and no plan reads it.
	KindServiceAccount
	// KindWorkloadGroup is an Istio WorkloadGroup. It states the service account of a machine, and no plan reads it.
	KindWorkloadGroup
	// KindNamespace states that a Kubernetes Namespace exists, even if objects of it are not read. Tokens are compared
	// with it, and no plan reads it.
	KindNamespace
	// KindNetworkGateways contains the gateways of networks that one object names: a Kubernetes Service, or
	// meshNetworks (namespace "").
	KindNetworkGateways
	// KindTelemetry is an Istio Telemetry.
	KindTelemetry
	KindWasmPlugin       // Istio WasmPlugin, in the form of a TrafficExtension
	KindTrafficExtension // Istio TrafficExtension
	// KindProxyConfig is an Istio ProxyConfig. The injection of Pods uses it, and no plan reads it.
	KindProxyConfig
	NumKinds // the number of kinds, not a kind
)

// Groups of the APIs of Istio and Kubernetes whose objects become records. The core group is empty.
const (
	GroupDiscovery  = "discovery.k8s.io"
	GroupRBAC       = "rbac.authorization.k8s.io"
	GroupNetworking = "networking.istio.io"
	GroupSecurity   = "security.istio.io"
	GroupTelemetry  = "telemetry.istio.io"
	GroupExtensions = "extensions.istio.io"
)

// Defined reports whether the kinds of a group are defined by CustomResourceDefinitions, as Istio's are. It is false
// only for the core group, GroupDiscovery and GroupRBAC. Other groups of Kubernetes itself must not be passed.
func Defined(group string) bool {
	return group != "" && group != GroupDiscovery && group != GroupRBAC
}

// kinds has a row for each Kind. Istio and the Gateway API both have a Kubernetes kind Gateway. If two kinds have one
// Kubernetes kind, the name of the kind added later is kind.group, as kubectl writes it.
var kinds = [NumKinds]struct {
	name   string // as stored
	group  string // API group of the objects from which most records of the kind are made
	object string // kind of these objects; empty: equal to name
}{
	KindInvalid:               {"Invalid", "", ""},
	KindMesh:                  {"Mesh", "", "ConfigMap"},
	KindService:               {"Service", "", ""},
	KindServiceEntry:          {"ServiceEntry", GroupNetworking, ""},
	KindEndpoints:             {"Endpoints", GroupDiscovery, "EndpointSlice"},
	KindVirtualService:        {"VirtualService", GroupNetworking, ""},
	KindDestinationRule:       {"DestinationRule", GroupNetworking, ""},
	KindSidecar:               {"Sidecar", GroupNetworking, ""},
	KindEnvoyFilter:           {"EnvoyFilter", GroupNetworking, ""},
	KindPeerAuthentication:    {"PeerAuthentication", GroupSecurity, ""},
	KindAuthorizationPolicy:   {"AuthorizationPolicy", GroupSecurity, ""},
	KindRequestAuthentication: {"RequestAuthentication", GroupSecurity, ""},
	KindSecret:                {"Secret", "", ""},
	KindGateway:               {"Gateway", GroupNetworking, ""},
	KindSecretReader:          {"SecretReader", GroupRBAC, "RoleBinding"},
	KindWorkload:              {"Workload", "", "Pod"},
	KindServiceAccount:        {"ServiceAccount", "", ""},
	KindWorkloadGroup:         {"WorkloadGroup", GroupNetworking, ""},
	KindNamespace:             {"Namespace", "", ""},
	KindNetworkGateways:       {"NetworkGateways", "", "Service"},
	KindTelemetry:             {"Telemetry", GroupTelemetry, ""},
	KindWasmPlugin:            {"WasmPlugin", GroupExtensions, ""},
	KindTrafficExtension:      {"TrafficExtension", GroupExtensions, ""},
	KindProxyConfig:           {"ProxyConfig", GroupNetworking, ""},
}

// String returns the kind's name as etcd stores it and users read it; "Invalid" for values that are not kinds.
func (k Kind) String() string {
	if k >= NumKinds {
		k = KindInvalid
	}
	return kinds[k].name
}

// Object returns the API group and the kind of the Kubernetes objects from which most records of the kind are made.
// Some records are made from other objects: Endpoints from ServiceEntries, Workloads from WorkloadEntries,
// SecretReaders from ClusterRoleBindings (normal.SourceObject). For values that are not kinds it returns "" and
// "Invalid".
func (k Kind) Object() (group, kind string) {
	if k >= NumKinds {
		k = KindInvalid
	}
	return kinds[k].group, cmp.Or(kinds[k].object, kinds[k].name)
}

// FollowsWorkloads reports whether records of the kind change whenever workloads do, without an edit of configuration.
// Such changes are frequent.
func (k Kind) FollowsWorkloads() bool { return k == KindEndpoints || k == KindWorkload }

// Kinds lists every kind of record, in the order of their numbers, without KindInvalid. The caller owns the slice.
func Kinds() []Kind {
	all := make([]Kind, 0, NumKinds-1)
	for k := KindInvalid + 1; k < NumKinds; k++ {
		all = append(all, k)
	}
	return all
}

// ParseKind returns the kind with a name, as the inverse of String. For any other name, also "Invalid", it returns
// KindInvalid and false.
func ParseKind(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if kinds[k].name == name {
			return k, true
		}
	}
	return KindInvalid, false
}

// Key identifies one record. It is comparable.
type Key struct {
	Kind      Kind
	Namespace string        // empty: the record is of the whole mesh
	Name      string        // not empty
	Origin    origin.Origin // cluster and source of the objects from which the record is made
}

// String returns the key as users read it: "Kind namespace/name", or "Kind name" without a namespace. For a cluster
// other than the config cluster, " in cluster NAME" follows. The key of the mesh configuration is "MeshConfig".
func (k Key) String() string {
	switch {
	case k.Kind == KindMesh:
		return "MeshConfig"
	case k.Namespace == "":
		return k.Kind.String() + " " + k.Name + k.Origin.Suffix()
	}
	return k.Kind.String() + " " + k.Namespace + "/" + k.Name + k.Origin.Suffix()
}

// Path returns the path of the record below records/ in etcd: kind/cluster/source/namespace/name. Parts may be empty.
// The path is unique among keys that Check accepts.
func (k Key) Path() string {
	return k.Kind.String() + "/" + k.Origin.Cluster() + "/" + k.Origin.Source() + "/" + k.Namespace + "/" + k.Name
}

// pathParts is the number of parts of a path.
const pathParts = 5

// Check returns an error for a key without a unique path: its kind is invalid, a part has a slash or a NUL, or the name
// is empty.
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

// ParsePath returns the key with a path, as the inverse of Path. It fails if the path does not have five parts, the
// name is empty, there is a NUL, or the kind is unknown. Only the error for an unknown kind matches ErrUnknownKind.
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

// Compare orders keys by kind, namespace and name, then by origin, the config cluster first. It returns a negative
// number, 0 or a positive number.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name), k.Origin.Compare(o.Origin))
}
