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

// Schema is the version of record.proto that this build writes. The build decodes records with Schema-1 to Schema+1,
// except 0.
const Schema = 1

// Hash is the first 128 bits of the SHA-256 of a record's canonical bytes (Encode). Equal hashes mean equal content.
// The key is not part of the content.
type Hash [16]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// HashOf returns the hash of the canonical bytes of a record (Encode).
func HashOf(b []byte) Hash {
	sum := sha256.Sum256(b)
	return Hash(sum[:16])
}

// Head is the common part of all records. Records are immutable once New or Decode has returned them.
type Head struct {
	Key     Key
	Hash    Hash  // hash of the stored bytes, which do not contain the key; or see Derived
	Created int64 // creation of the object, in Unix seconds; 0: unknown
}

// Meta implements Record. It returns h itself.
func (h *Head) Meta() *Head { return h }

// Older compares records by precedence: creation time, then name, then namespace. This order is Istio's rule for
// conflicts (pilot/pkg/model/config.go, sortByCreationComparator). Kind and origin decide last. The result is negative
// if h takes precedence over o, positive in the opposite case, and 0 for equal keys and times.
func (h *Head) Older(o *Head) int {
	return cmp.Or(CompareCreated(h.Created, o.Created), cmp.Compare(h.Key.Name, o.Key.Name),
		cmp.Compare(h.Key.Namespace, o.Key.Namespace), h.Key.Compare(o.Key))
}

// CompareCreated compares two creation times (Head.Created), the older first. An unknown time is the youngest, because
// an object without a creation time is one that has not been created yet.
func CompareCreated(a, b int64) int {
	if a == 0 || b == 0 {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// Record is a *Policy, or a pointer to any of the other typed records below.
type Record interface {
	Meta() *Head         // key, hash and creation time; immutable
	Body() proto.Message // the content; immutable
}

// Of is a record with a body of one type. While the content of a record stays equal, the mirror (a replica's copy of
// all records) keeps its pointer. So callers may compare pointers instead of contents, and a struct of pointers can be
// a cache key.
type Of[Spec proto.Message] struct {
	Head
	Spec Spec // immutable: shared by all goroutines
}

// Body implements Record. It returns Spec.
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

// Patch identifies one entry of the configPatches of an EnvoyFilter. It is comparable, so that cache keys can contain
// it.
type Patch struct {
	Filter *EnvoyFilter
	Index  int // index in Filter.Spec.ConfigPatches
}

// Config returns the entry, which must not be modified. It panics if Filter is nil or Index is out of range.
func (p Patch) Config() *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch {
	return p.Filter.Spec.ConfigPatches[p.Index]
}

// Member is one endpoint of a cluster at one of its ports. It is comparable, so lists of members can be interned.
type Member struct {
	Endpoint *Endpoint // immutable
	Port     uint32    // 0 for a Unix socket
}

// SameEndpoint reports whether two endpoints, which must not be nil, are equal in all fields that this build knows. It
// needs a tenth of the time of proto.Equal.
func SameEndpoint(a, b *Endpoint) bool {
	return a.GetAddress() == b.GetAddress() && a.GetHealth() == b.GetHealth() && a.GetNamespace() == b.GetNamespace() &&
		a.GetServiceAccount() == b.GetServiceAccount() &&
		a.GetWorkload() == b.GetWorkload() && a.GetNetwork() == b.GetNetwork() && a.GetCluster() == b.GetCluster() &&
		a.GetLocality() == b.GetLocality() &&
		a.GetWeight() == b.GetWeight() && a.GetHostname() == b.GetHostname() && a.GetNode() == b.GetNode() && a.GetMtls() == b.GetMtls() &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetPorts(), b.GetPorts())
}

// ServiceEntryPrefix is the prefix of the names of Endpoints records that are made from a ServiceEntry alone. The name
// of the ServiceEntry follows. If the ServiceEntry has several such records, a colon and a further part follow. No
// Kubernetes name has a colon, so no EndpointSlice has such a name.
const ServiceEntryPrefix = "serviceentry:"

// ConfigMapPrefix is the prefix of the names of Secret records that are ConfigMaps with certificates of authorities.
// The name of the ConfigMap follows.
const ConfigMapPrefix = "configmap:"

// WorkloadEntryPrefix is the prefix of the names of Workload records that are WorkloadEntries. The name of the
// WorkloadEntry follows. No Kubernetes name has a colon, so no Pod has such a name.
const WorkloadEntryPrefix = "workloadentry:"

// FromEntry reports whether the workload is a WorkloadEntry, not a Pod.
func (x *WorkloadSpec) FromEntry() bool {
	return x.GetSource() == WorkloadSource_WORKLOAD_SOURCE_WORKLOAD_ENTRY
}

var canonical = proto.MarshalOptions{Deterministic: true}

// New makes a record from a normalised body: *ServiceSpec, *EndpointsSpec, *PolicySpec, *SecretSpec, *SecretReaderSpec,
// *WorkloadSpec, *ServiceAccountSpec, *NetworkGatewaysSpec, or the Istio message of the kind (NewBody). The parameter
// created is in Unix seconds; 0: unknown. The record refers to body, which must not be modified afterwards. Errors: the
// key is invalid (Key.Check), the body does not belong to the kind, or a string is not UTF-8.
func New(key Key, created int64, body proto.Message) (Record, error) {
	_, record, err := encode(key, created, body)
	return record, err
}

// Derived returns a record that is computed from other records and not stored. The hash must differ for different
// bodies, but need not be that of the canonical bytes. Errors: the key is invalid, or the body does not belong to its
// kind.
func Derived(key Key, created int64, hash Hash, body proto.Message) (Record, error) {
	if err := key.Check(); err != nil {
		return nil, fmt.Errorf("record %v: %w", key, err)
	}
	return typed(Head{Key: key, Hash: hash, Created: created}, body)
}

// Encode returns the canonical bytes of a record, as etcd stores them. They do not contain the key. If New made the
// record, Head.Hash is the hash of these bytes. The bytes that another build wrote for a record may differ. Errors: the
// key is invalid, the body does not belong to its kind, or a string is not UTF-8. These errors do not occur for a
// record that New has made, or that Decode has made with a valid key.
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

// ErrNewer is matched (errors.Is) by the errors of Decode and CheckSchema for a schema above those that this build
// reads.
var ErrNewer = errors.New("was written by a newer build")

// CheckSchema returns an error for a schema that this build does not read. The error matches ErrNewer if the schema is
// above Schema+1. A schema of 0 is always an error.
func CheckSchema(schema uint32) error {
	switch {
	case schema > Schema+1:
		return fmt.Errorf("%w: schema %d, this build reads %d to %d", ErrNewer, schema, max(1, Schema-1), Schema+1)
	case schema == 0 || schema+1 < Schema:
		return fmt.Errorf("schema %d, this build reads %d to %d", schema, max(1, Schema-1), Schema+1)
	}
	return nil
}

// Decode decodes the stored bytes of the record with a key. Head.Hash of the result is the hash of b. The key itself is
// not checked, and b is not retained. Errors: the bytes are invalid, the body is missing or does not belong to the kind
// of the key, or the schema is too old or too new (ErrNewer). Decode is safe for concurrent use.
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
