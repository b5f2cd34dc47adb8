package serve

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers what the codec falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/delta"
)

// codec hands encoded responses to gRPC as they are and gives encoded requests back as they came; any other message
// (health, other services on the same server) is plain protobuf.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// request is an encoded request, in the pieces that gRPC read; to be freed.
type request struct {
	bufs mem.BufferSlice
	all  [][]byte // reused
}

// pieces are the request's bytes, until it is freed or the next one comes.
func (r *request) pieces() [][]byte {
	r.all = r.all[:0]
	for _, b := range r.bufs {
		r.all = append(r.all, b.ReadOnlyData())
	}
	return r.all
}

// free gives the pieces back.
func (r *request) free() {
	r.bufs.Free()
	clear(r.all)
	if r.bufs = nil; cap(r.all) > fewPieces {
		r.all = nil
	}
}

// fewPieces is how long a list of pieces may be that a stream keeps.
const fewPieces = 4

// response is an encoded response: segments that all streams share, and a head and tail of its own. Most have one segment:
// all of the response but its bytes is one object then.
type response struct {
	bufs       mem.BufferSlice
	few        [3]mem.Buffer
	head, tail mem.SliceBuffer
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *response:
		return v.bufs, nil
	case *answer:
		return v.encode()
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*request); ok {
		data.Ref() // gRPC gives its reference back when this returns
		r.bufs = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// encodeDelta makes a DeltaDiscoveryResponse of shared segments and a head and tail of its own.
func encodeDelta(r *delta.Reply, place string) *response {
	out := &response{}
	out.bufs = out.few[:0]
	if n := len(r.Encoded) + 2; n > len(out.few) {
		out.bufs = make(mem.BufferSlice, 0, n)
	}
	out.head, out.tail = frame(r.Revision, place, r.URL, r.Nonce, r.Removed)
	out.bufs = append(append(append(out.bufs, &out.head), r.Encoded...), &out.tail)
	return out
}

// frame is what stands before and after the resources: system_version_info=1 (agentapi.AppendVersion: what an agent names on its next
// stream), and type_url=4, nonce=5, removed_resources=6. With resources=2 between them it is,
// byte by byte, what deterministic protobuf makes of it.
func frame(revision int64, place, url, nonce string, removed []string) (head, tail mem.SliceBuffer) {
	b := make([]byte, 0, 40+len(place)+len(url)+len(nonce))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	var version [96]byte
	b = protowire.AppendBytes(b, agentapi.AppendVersion(version[:0], revision, place))
	n := len(b)
	b = appendText(b, 4, url)
	b = appendText(b, 5, nonce)
	for _, name := range removed {
		b = appendText(b, 6, name)
	}
	return b[:n:n], b[n:]
}

// encodeSotW makes a DiscoveryResponse{version_info=1, resources=2, type_url=4, nonce=5}.
func encodeSotW(r *delta.Reply) *response {
	var bufs mem.BufferSlice
	if r.Version != "" {
		bufs = append(bufs, mem.SliceBuffer(appendText(nil, 1, r.Version)))
	}
	for _, res := range r.Set {
		for _, b := range res.State() {
			bufs = append(bufs, mem.SliceBuffer(b))
		}
	}
	tail := appendText(nil, 4, r.URL)
	return &response{bufs: append(bufs, mem.SliceBuffer(appendText(tail, 5, r.Nonce)))}
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}
