package model

import (
	"testing"

	"google.golang.org/protobuf/proto"
)

// SameEndpoint knows every field.
func TestSameEndpoint(t *testing.T) {
	whole := &Endpoint{Address: "10.0.0.1", Labels: map[string]string{"a": "b"}, Health: Health_HEALTH_DRAINING, Namespace: "n", ServiceAccount: "s", Workload: "w", Network: "x", Cluster: "c",
		Locality: "r/z", Weight: 2, Hostname: "h", Node: "o", Mtls: true, Ports: map[string]uint32{"http": 81}}
	fields := whole.ProtoReflect().Descriptor().Fields()
	if !SameEndpoint(whole, proto.CloneOf(whole)) {
		t.Error("equal endpoints differ")
	}
	for i := range fields.Len() {
		other := proto.CloneOf(whole)
		if !other.ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("%s is not set", fields.Get(i).Name())
		}
		if other.ProtoReflect().Clear(fields.Get(i)); SameEndpoint(whole, other) || SameEndpoint(other, whole) {
			t.Errorf("%s makes no difference", fields.Get(i).Name())
		}
	}
}
