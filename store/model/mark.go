package model

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
)

// ErrUnknownKind is in the error of a path whose kind this build does not know: one of a newer build.
var ErrUnknownKind = errors.New("unknown kind")

// Mark says what a build does that does not know a kind.
type Mark uint8

// The marks.
const (
	Unmarked  Mark = iota // no kind is; a test holds that
	Skippable             // it goes on without the record: something does not work that it could not do before either
	Closing               // it takes no new streams of what the record covers: it would let in what the record refuses
)

// Marks are the marks of all kinds. A record covers the proxies of its namespace; one of the mesh's root namespace, or without
// a namespace, covers all.
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

// writesMark says whether the records of a kind carry their mark (RecordValue.closing): those of the closing kinds that are younger
// than the field. Every build that reads the field knows the two older ones.
func writesMark(kind Kind) bool {
	return Marks[kind] == Closing && kind != KindPeerAuthentication && kind != KindAuthorizationPolicy
}

// Unknown is a stored record of a kind that this build does not know.
type Unknown struct {
	Path      string // below records/
	Namespace string // empty: of the mesh
	Closing   bool
}

// ReadUnknown reads what a build can tell of a record whose path gave ErrUnknownKind. One that cannot be read may be anything, and
// is closing.
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

// Covers says whether proxies of a namespace are not to be taken because of it.
func (u Unknown) Covers(namespace, root string) bool {
	return u.Closing && (u.Namespace == namespace || u.Namespace == root || u.Namespace == "")
}

// String says what it is and what follows from it.
func (u Unknown) String() string {
	follows := "it is skipped"
	switch {
	case u.Closing && u.Namespace == "":
		follows = "no proxy is let in"
	case u.Closing:
		follows = "no proxy that it covers is let in: of its namespace, or of all where that is the mesh's root namespace"
	}
	return fmt.Sprintf("records/%s: this build does not know the kind; %s", u.Path, follows)
}
