package protowalk

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Each finds the same fields as protowire, for all lengths around its fast path, and none where a field is cut off.
func TestEach(t *testing.T) {
	var message []byte
	var want []Field
	for i, size := range []int{0, 1, 127, 128, 1<<14 - 1, 1 << 14} {
		for _, number := range []protowire.Number{1, 15, 16, 2048} {
			value := bytes.Repeat([]byte{byte(i)}, size)
			message = protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), value)
			message = protowire.AppendVarint(protowire.AppendTag(message, number, protowire.VarintType), uint64(size))
			message = protowire.AppendFixed64(protowire.AppendTag(message, number, protowire.Fixed64Type), 7)
			want = append(want, Field{number, protowire.BytesType, value, 0}, Field{number, protowire.VarintType, nil, uint64(size)}, Field{Number: number, Type: protowire.Fixed64Type})
		}
	}
	if err := Each(message, func(f Field) error {
		w := want[0]
		if want = want[1:]; f.Number != w.Number || f.Type != w.Type || f.Varint != w.Varint || !bytes.Equal(f.Bytes, w.Bytes) || (f.Bytes == nil) != (w.Bytes == nil) || cap(f.Bytes) != len(f.Bytes) {
			t.Fatalf("field %d of type %d, %d bytes, %d; want field %d of type %d, %d bytes, %d", f.Number, f.Type, len(f.Bytes), f.Varint, w.Number, w.Type, len(w.Bytes), w.Varint)
		}
		return nil
	}); err != nil || len(want) != 0 {
		t.Fatalf("%v, %d fields are missing", err, len(want))
	}
	for name, b := range map[string][]byte{
		"a tag alone": {1<<3 | 2}, "cut off": {1<<3 | 2, 3, 'a', 'b'}, "field 0": {2, 1, 'a'}, "a group that does not end": {1<<3 | 3},
		"length cut off": {1<<3 | 2, 0x80}, "varint cut off": {1 << 3, 0x80},
	} {
		if err := Each(b, func(Field) error { return nil }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	stop := errors.New("stop")
	if err := Each([]byte{1<<3 | 2, 0, 1<<3 | 2, 0}, func(Field) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}

func FuzzEach(f *testing.F) {
	f.Add([]byte{1<<3 | 2, 1, 'a', 2 << 3, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		for rest := b; len(rest) > 0; {
			got, n := Next(rest)
			if _, _, want := protowire.ConsumeField(rest); (n < 0) != (want < 0) || n >= 0 && n != want {
				t.Fatalf("%x: length %d, want %d", rest, n, want)
			}
			if n < 0 {
				return
			}
			if got.Type == protowire.BytesType && got.Bytes == nil {
				t.Fatalf("%x: no bytes", rest)
			}
			rest = rest[n:]
		}
	})
}
