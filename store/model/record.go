package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
)

// Schema is the version of record.proto that this build writes. It decodes Schema-1 to Schema+1.
const Schema = 1

// Hash is the first 128 bits of the SHA-256 of a record's canonical bytes: same hash, same content.
type Hash [16]byte

// String is the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// HashOf hashes canonical bytes.
func HashOf(b []byte) Hash {
	sum := sha256.Sum256(b)
	return Hash(sum[:16])
}

// Head is what every record has. Records are immutable once they left Decode.
type Head struct {
	Key     Key
	Hash    Hash
	Created int64 // Unix seconds; 0: unknown
}

// Meta gives access to the head behind the Record interface.
func (h *Head) Meta() *Head { return h }

// Older orders records by precedence: creation time, then name, then namespace, then kind and origin (Istio's rule for conflicts:
// pilot/pkg/model/config.go, sortByCreationComparator).
func (h *Head) Older(o *Head) int {
	return cmp.Or(cmp.Compare(h.Created, o.Created), cmp.Compare(h.Key.Name, o.Key.Name), h.Key.Compare(o.Key))
}

// Record is any of the typed records below.
type Record interface {
	Meta() *Head
	Body() proto.Message // frozen
}

// Of is a record with a body of one type. Same content, same pointer: the mirror interns records, so that pointers can
// be compared instead of contents and a struct of pointers can be a cache key.
type Of[Spec proto.Message] struct {
	Head
	Spec Spec // frozen: shared by all goroutines
}

// Body gives access to the spec behind the Record interface.
func (o *Of[Spec]) Body() proto.Message { return o.Spec }

// The typed records.
type (
	Mesh             = Of[*meshv1.MeshConfig]
	Service          = Of[*ServiceSpec] // kinds Service and ServiceEntry
	Endpoints        = Of[*EndpointsSpec]
	VirtualService   = Of[*networkingv1.VirtualService]
	DestinationRule  = Of[*networkingv1.DestinationRule]
	Sidecar          = Of[*networkingv1.Sidecar]
	EnvoyFilter      = Of[*networkingv1.EnvoyFilter]
	Secret           = Of[*SecretSpec]
	Gateway          = Of[*networkingv1.Gateway]
	SecretReader     = Of[*SecretReaderSpec]
	Workload         = Of[*WorkloadSpec]
	ServiceAccount   = Of[*ServiceAccountSpec]
	WorkloadGroup    = Of[*networkingv1.WorkloadGroup]
	NetworkGateways  = Of[*NetworkGatewaysSpec]
	Telemetry        = Of[*telemetryv1.Telemetry]
	TrafficExtension = Of[*extensionsv1.TrafficExtension] // kinds WasmPlugin and TrafficExtension
	ProxyConfig      = Of[*proxyconfigv1.ProxyConfig]
)

// Patch is one entry of an EnvoyFilter's configPatches: comparable, so it can stand in a Spec.
type Patch struct {
	Filter *EnvoyFilter
	Index  int
}

// Config is the patch itself.
func (p Patch) Config() *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch {
	return p.Filter.Spec.ConfigPatches[p.Index]
}

// Member is one endpoint at one of its ports: what a cluster selects. Comparable, so lists of it can be interned.
type Member struct {
	Endpoint *Endpoint
	Port     uint32
}

// SameEndpoint says whether two endpoints are equal, as proto.Equal does, which takes ten times as long.
func SameEndpoint(a, b *Endpoint) bool {
	return a.GetAddress() == b.GetAddress() && a.GetHealth() == b.GetHealth() && a.GetNamespace() == b.GetNamespace() &&
		a.GetServiceAccount() == b.GetServiceAccount() &&
		a.GetWorkload() == b.GetWorkload() && a.GetNetwork() == b.GetNetwork() && a.GetCluster() == b.GetCluster() &&
		a.GetLocality() == b.GetLocality() &&
		a.GetWeight() == b.GetWeight() && a.GetHostname() == b.GetHostname() && a.GetNode() == b.GetNode() && a.GetMtls() == b.GetMtls() &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetPorts(), b.GetPorts())
}

// ServiceEntryPrefix begins the names of the Endpoints that a ServiceEntry states itself, for the same reason: its name follows, and a colon before
// anything further.
const ServiceEntryPrefix = "serviceentry:"

// WorkloadEntryPrefix begins the names of Workloads that are WorkloadEntries, so that they clash with no Pod: no Kubernetes name has a
// colon in it.
const WorkloadEntryPrefix = "workloadentry:"

var canonical = proto.MarshalOptions{Deterministic: true}

// New makes a record of a normalised body: *ServiceSpec, *EndpointsSpec, *PolicySpec, *SecretSpec, *SecretReaderSpec,
// *WorkloadSpec, *ServiceAccountSpec, or the Istio message of the kind. A body that does not belong to the key's kind is a fault of the caller and is refused.
func New(key Key, created int64, body proto.Message) (Record, error) {
	_, record, err := encode(key, created, body)
	return record, err
}

// Encode is the canonical bytes of a record: what etcd holds and what Hash is the hash of. An error: a string of the record is not UTF-8.
func Encode(r Record) ([]byte, error) {
	b, _, err := encode(r.Meta().Key, r.Meta().Created, r.Body())
	return b, err
}

func encode(key Key, created int64, body proto.Message) ([]byte, Record, error) {
	if err := key.Check(); err != nil {
		return nil, nil, fmt.Errorf("encode %v: %w", key, err)
	}
	wire := &RecordValue{Schema: Schema, Created: created, Closing: writesMark(key.Kind)}
	if err := setBody(wire, key.Kind, body); err != nil {
		return nil, nil, fmt.Errorf("encode %v: %w", key, err)
	}
	b, err := canonical.Marshal(wire)
	if err != nil {
		return nil, nil, fmt.Errorf("encode %v: %w", key, err)
	}
	record, err := typed(Head{Key: key, Hash: HashOf(b), Created: created}, body)
	if err != nil {
		return nil, nil, fmt.Errorf("encode %v: %w", key, err)
	}
	return b, record, nil
}

// ErrNewer is in the error of what has a schema that this build does not read yet.
var ErrNewer = errors.New("was written by a newer build")

// CheckSchema refuses the schemas that this build does not read; later ones with ErrNewer.
func CheckSchema(schema uint32) error {
	switch {
	case schema > Schema+1:
		return fmt.Errorf("%w: schema %d, this build reads %d to %d", ErrNewer, schema, max(1, Schema-1), Schema+1)
	case schema == 0 || schema+1 < Schema:
		return fmt.Errorf("schema %d, this build reads %d to %d", schema, max(1, Schema-1), Schema+1)
	}
	return nil
}

// Decode reads canonical bytes. The error says what is wrong with the value (ErrNewer: nothing, but for its schema); whoever holds an
// older value keeps it.
func Decode(key Key, b []byte) (Record, error) {
	wire := &RecordValue{}
	if err := proto.Unmarshal(b, wire); err != nil {
		return nil, fmt.Errorf("decode %v: %w", key, err)
	}
	if err := CheckSchema(wire.Schema); err != nil {
		return nil, fmt.Errorf("decode %v: %w", key, err)
	}
	body, err := getBody(wire, key.Kind)
	if err != nil {
		return nil, fmt.Errorf("decode %v: %w", key, err)
	}
	decodedLabels.share(body)
	record, err := typed(Head{Key: key, Hash: HashOf(b), Created: wire.Created}, body)
	if err != nil {
		return nil, fmt.Errorf("decode %v: %w", key, err)
	}
	return record, nil
}
