package model

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
)

// ErrUnknownKind is matched (errors.Is) by the error of ParsePath for a kind that this build does not know. Usually a
// newer build has written such a record.
var ErrUnknownKind = errors.New("unknown kind")

// Mark states how builds that do not know a kind must treat its records.
type Mark uint8

// The marks. "The build" is one that does not know the kind.
const (
	Unmarked  Mark = iota // invalid: no kind has this mark
	Skippable             // the build ignores the record, so the feature of the record does not work
	Closing               // the build refuses further streams of the covered proxies, because the record may forbid traffic
)

// Marks contains the mark of each kind. It must not be modified. A record covers the proxies of its namespace. A record
// of the mesh's root namespace, or without a namespace, covers all proxies.
var Marks = [NumKinds]Mark{
	KindMesh:                  Skippable,
	KindService:               Skippable,
	KindServiceEntry:          Skippable,
	KindEndpoints:             Skippable,
	KindVirtualService:        Skippable,
	KindDestinationRule:       Skippable,
	KindSidecar:               Skippable,
	KindEnvoyFilter:           Skippable,
	KindPeerAuthentication:    Closing,
	KindAuthorizationPolicy:   Closing,
	KindRequestAuthentication: Closing,
	KindSecret:                Skippable,
	KindGateway:               Skippable,
	KindSecretReader:          Skippable,
	KindWorkload:              Skippable,
	KindServiceAccount:        Skippable,
	KindWorkloadGroup:         Skippable,
	KindNamespace:             Skippable,
	KindNetworkGateways:       Skippable,
	KindTelemetry:             Skippable,
	KindWasmPlugin:            Skippable,
	KindTrafficExtension:      Skippable,
	KindProxyConfig:           Skippable,
}

// writesMark reports whether records of a kind contain their mark (RecordValue.closing). It is true for closing kinds
// that are younger than the field. Every build that reads the field knows the two older closing kinds.
func writesMark(kind Kind) bool {
	return Marks[kind] == Closing && kind != KindPeerAuthentication && kind != KindAuthorizationPolicy
}

// Unknown is a stored record of a kind that this build does not know.
type Unknown struct {
	Path      string // key in etcd, below records/
	Namespace string // empty: the record is of the whole mesh
	Closing   bool   // the mark of the kind is Closing, or cannot be read; false: Skippable
}

// ReadUnknown reads the namespace and the mark of a record for whose path ParsePath returned ErrUnknownKind. The
// parameter raw is the record's value in etcd. A record that does not decode, or has a schema that this build does not
// read, counts as closing.
func ReadUnknown(path string, raw []byte) Unknown {
	u := Unknown{Path: path, Closing: true}
	if parts := strings.Split(path, "/"); len(parts) == pathParts {
		u.Namespace = parts[3]
	}
	wire := &RecordValue{}
	if proto.Unmarshal(raw, wire) == nil && wire.Schema > 0 && wire.Schema <= Schema+1 {
		u.Closing = wire.Closing
	}
	return u
}

// Covers reports whether u forbids further streams of the proxies of a namespace. The parameter root is the root
// namespace of the mesh. For a record that is not closing it returns false. A closing record without a namespace, or in
// root, covers every namespace.
func (u Unknown) Covers(namespace, root string) bool {
	return u.Closing && (u.Namespace == namespace || u.Namespace == root || u.Namespace == "")
}

// String returns the path of the record and its effect, for messages.
func (u Unknown) String() string {
	follows := "the record is skipped"
	switch {
	case u.Closing && u.Namespace == "":
		follows = "all proxies are refused"
	case u.Closing:
		follows = "the proxies of its namespace are refused, or all proxies if that is the mesh's root namespace"
	}
	return fmt.Sprintf("records/%s: this build does not know the kind; %s", u.Path, follows)
}
