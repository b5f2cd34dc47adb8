package serve

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec for other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/delta"
)

// codec passes encoded responses to gRPC unchanged, and returns requests in encoded form. It encodes and decodes
// messages of other services on the same server as protobuf.
type codec struct{ encoding.CodecV2 }

// newCodec returns a codec that passes other messages to gRPC's protobuf codec.
func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// request is an encoded request in the pieces that gRPC read. It must be freed.
type request struct {
	bufs mem.BufferSlice
	all  [][]byte // result of pieces, reused
}

// pieces returns the bytes of the request, in pieces. They are valid until the request is freed.
func (r *request) pieces() [][]byte {
	r.all = r.all[:0]
	for _, b := range r.bufs {
		r.all = append(r.all, b.ReadOnlyData())
	}
	return r.all
}

// free returns the pieces to gRPC.
func (r *request) free() {
	r.bufs.Free()
	clear(r.all)
	if r.bufs = nil; cap(r.all) > fewPieces {
		r.all = nil
	}
}

// fewPieces is the largest capacity of a list of pieces that a stream keeps for its next request.
const fewPieces = 4

// response is an encoded response. Its segments, which all streams share, lie between a head and a tail, which belong
// to the stream. Most responses have one segment, so that bufs needs no allocation of its own.
type response struct {
	bufs       mem.BufferSlice
	few        [3]mem.Buffer // memory of bufs for one segment
	head, tail mem.SliceBuffer
}

// Marshal returns the bytes of an encoded response or an answer. It encodes other messages as protobuf. It fails if an
// answer or another message does not marshal.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *response:
		return v.bufs, nil
	case *answer:
		return v.encode()
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal stores the bytes in a request without decoding them. It decodes other messages as protobuf, and fails if
// one of these is malformed.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*request); ok {
		data.Ref() // gRPC releases its reference when Unmarshal returns
		r.bufs = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// encodeDelta encodes a DeltaDiscoveryResponse around the shared segments of a reply. The parameter place is the result
// of Config.Place, or "".
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

// frame returns the bytes before and after the resources (field 2) of a DeltaDiscoveryResponse. The result head
// contains the field system_version_info=1 (agentapi.AppendVersion), which an agent repeats on its next stream. The
// result tail contains the fields type_url=4, nonce=5 and removed_resources=6. The fields are in the order of their
// numbers, so the bytes of the response equal those of deterministic protobuf.
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

// encodeSotW encodes a DiscoveryResponse{version_info=1, resources=2, type_url=4, nonce=5} around shared resources.
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

// appendText appends a string field.
func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}
