package xds

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestAny(t *testing.T) {
	fields := map[string]*structpb.Value{}
	for _, k := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		fields[k] = structpb.NewStringValue(k)
	}
	first := Any(&structpb.Struct{Fields: fields})
	for range 50 {
		if again := Any(&structpb.Struct{Fields: fields}); !bytes.Equal(first.Value, again.Value) {
			t.Fatal("equal messages, different bytes")
		}
	}
	want, err := anypb.New(&structpb.Struct{Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	got, err := first.UnmarshalNew()
	if err != nil || first.TypeUrl != want.TypeUrl || !proto.Equal(got, &structpb.Struct{Fields: fields}) {
		t.Errorf("%s, %v, %v", first.TypeUrl, got, err)
	}
}

// A message that does not marshal is an error of Encode, not an invalid resource.
func TestAnyOfNoMessage(t *testing.T) {
	bad := Any(structpb.NewStringValue("\xff"))
	if r, err := Encode(Cluster, "a", bad); err == nil {
		t.Errorf("encoded to %q", r.Body())
	}
}
