package serve

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers what the codec falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/delta"
)

// codec hands encoded responses to gRPC as they are and gives encoded requests back as they came; any other message
// (health, other services on the same server) is plain protobuf.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// request is an encoded request; to be freed.
type request struct{ raw mem.Buffer }

// response is an encoded response: segments that all streams share, and a small tail.
type response struct{ bufs mem.BufferSlice }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*response); ok {
		return r.bufs, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*request); ok {
		r.raw = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// encodeDelta makes a DeltaDiscoveryResponse{resources=2, type_url=4, nonce=5, removed_resources=6}, byte by byte what
// deterministic protobuf makes of it.
func encodeDelta(r *delta.Reply) *response {
	n := 1
	for _, res := range r.Set {
		n += len(res.Buffers())
	}
	bufs := make(mem.BufferSlice, 0, n)
	for _, res := range r.Set {
		bufs = append(bufs, res.Buffers()...)
	}
	tail := make([]byte, 0, len(r.Type.URL())+len(r.Nonce)+8)
	tail = appendText(tail, 4, r.Type.URL())
	tail = appendText(tail, 5, r.Nonce)
	for _, name := range r.Removed {
		tail = appendText(tail, 6, name)
	}
	return &response{append(bufs, mem.SliceBuffer(tail))}
}

// encodeWorld makes a DiscoveryResponse{version_info=1, resources=2, type_url=4, nonce=5}.
func encodeWorld(r *delta.Reply) *response {
	bufs := mem.BufferSlice{mem.SliceBuffer(appendText(nil, 1, r.Version))}
	for _, res := range r.Set {
		for _, b := range res.State() {
			bufs = append(bufs, mem.SliceBuffer(b))
		}
	}
	tail := appendText(nil, 4, r.Type.URL())
	return &response{append(bufs, mem.SliceBuffer(appendText(tail, 5, r.Nonce)))}
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}
