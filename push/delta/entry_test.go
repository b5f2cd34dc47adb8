package delta

import (
	"bytes"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// An entry of initial_resource_versions is read with protobuf's result, and by the fast parser whenever possible.
func TestEntries(t *testing.T) {
	field := func(number protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), s)
	}
	long := strings.Repeat("k", 127)
	for name, c := range map[string]struct {
		raw   []byte
		short bool
	}{
		"as Envoy sends it":     {append(field(1, "outbound|80||web.shop.svc.cluster.local"), field(2, strings.Repeat("0a", 16))...), true},
		"longest of one byte":   {append(field(1, long), field(2, long)...), true},
		"key of 128 bytes":      {append(field(1, long+"k"), field(2, "v")...), false},
		"version of 128 bytes":  {append(field(1, "k"), field(2, long+"k")...), false},
		"empty":                 {nil, false},
		"both empty":            {append(field(1, ""), field(2, "")...), true},
		"version first":         {append(field(2, "v"), field(1, "k")...), false},
		"key alone":             {field(1, "key"), false},
		"key alone, with a tag": {field(1, "k\x12\x01v"), false},
		"key twice":             {append(append(field(1, "k"), field(1, "l")...), field(2, "v")...), false},
		"version twice":         {append(append(field(1, "k"), field(2, "v")...), field(2, "w")...), false},
		"another field":         {append(append(field(1, "k"), field(2, "v")...), field(3, "w")...), false},
		"not ASCII":             {append(field(1, "schlüssel"), field(2, "v")...), false},
		"not UTF-8":             {append(field(1, "k"), field(2, "\xff")...), false},
		"cut":                   {field(1, "key")[:3], false},
		"cut in the version":    {append(field(1, "k"), field(2, "version")[:4]...), false},
		"cut before the length": {append(field(1, "key"), 0x12), false},
	} {
		var want discoveryv3.DeltaDiscoveryRequest
		whole := protowire.AppendBytes(protowire.AppendTag(nil, deltaInitial, protowire.BytesType), c.raw)
		wantErr := proto.Unmarshal(whole, &want)
		key, version, err := entry(c.raw)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: error %v, protobuf's is %v", name, err, wantErr)
		}
		if err == nil && (len(want.InitialResourceVersions) != 1 || want.InitialResourceVersions[key] != version) {
			t.Errorf("%s: %q %q, want %q", name, key, version, want.InitialResourceVersions)
		}
		if _, _, short := usual(c.raw); short != c.short {
			t.Errorf("%s: the short way %v", name, short)
		}
	}
}

func TestASCII(t *testing.T) {
	for n := range 70 {
		b := bytes.Repeat([]byte{0x7f}, n)
		if !ascii(b) {
			t.Errorf("%d bytes of ASCII", n)
		}
		for i := range b {
			b[i] = 0x80
			if ascii(b) {
				t.Errorf("byte %d of %d", i, n)
			}
			b[i] = 0x7f
		}
	}
}
