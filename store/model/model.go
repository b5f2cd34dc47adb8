// Package model is the vocabulary of the store: keys, hashes and the normalised records that replicas plan from.
//
// Owns: the wire format of records (record.proto).  Reads: nothing of ours.  Never: sockets, clocks, Envoy types.
package model

import (
	"cmp"
	"fmt"
	"strings"
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
	KindSecret       // Kubernetes Secret with TLS material, its key sealed
	KindGateway      // Istio Gateway; no listeners are planned of it yet, it says which Secrets its proxies use
	KindSecretReader // Kubernetes RoleBinding or ClusterRoleBinding (namespace "") that lets service accounts list Secrets
	KindWorkload     // Kubernetes Pod, or Istio WorkloadEntry: what selectors pick
	NumKinds         // how many there are; not a kind
)

var kindNames = [NumKinds]string{
	KindInvalid:             "Invalid",
	KindMesh:                "Mesh",
	KindService:             "Service",
	KindServiceEntry:        "ServiceEntry",
	KindEndpoints:           "Endpoints",
	KindVirtualService:      "VirtualService",
	KindDestinationRule:     "DestinationRule",
	KindSidecar:             "Sidecar",
	KindEnvoyFilter:         "EnvoyFilter",
	KindPeerAuthentication:  "PeerAuthentication",
	KindAuthorizationPolicy: "AuthorizationPolicy",
	KindSecret:              "Secret",
	KindGateway:             "Gateway",
	KindSecretReader:        "SecretReader",
	KindWorkload:            "Workload",
}

// String is the kind's name as stored in etcd and shown to users.
func (k Kind) String() string {
	if k >= NumKinds {
		return kindNames[KindInvalid]
	}
	return kindNames[k]
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
		if kindNames[k] == name {
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
}

// String is the key as users read it: Kind namespace/name.
func (k Key) String() string { return fmt.Sprintf("%s %s/%s", k.Kind, k.Namespace, k.Name) }

// Path is the key below records/ in etcd: kind/namespace/name.
func (k Key) Path() string { return k.Kind.String() + "/" + k.Namespace + "/" + k.Name }

// ParsePath is the inverse of Path. The error wraps ErrUnknownKind where nothing but the kind is wrong.
func ParsePath(path string) (Key, error) {
	parts := strings.SplitN(path, "/", 3)
	if len(parts) != 3 || parts[2] == "" {
		return Key{}, fmt.Errorf("record path %q: want kind/namespace/name", path)
	}
	kind, ok := ParseKind(parts[0])
	if !ok {
		return Key{}, fmt.Errorf("record path %q: %w %q", path, ErrUnknownKind, parts[0])
	}
	return Key{Kind: kind, Namespace: parts[1], Name: parts[2]}, nil
}

// Compare orders keys by kind, namespace, name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}
