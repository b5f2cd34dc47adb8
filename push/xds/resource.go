package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Hash is the first 128 bits of a SHA-256 sum.
type Hash [16]byte

// Fragment is a part of an encoded message that several resources share, for example a virtual host as the field
// `virtual_hosts` of a RouteConfiguration. It is immutable. push/pool ensures that fragments with equal content are the
// same pointer.
type Fragment struct {
	Name  string // Resource.Replaced pairs fragments by Name; if it is empty, by the names of Parts
	Bytes []byte // encoded fields, with their tags
	Hash  Hash   // hash of Bytes; if Bytes is empty, the hash has no meaning
	// Parts are the fragments from which this fragment was joined; nil: the fragment was not joined. The references
	// keep the parts in push/pool, which caches fragments.
	Parts []*Fragment
	// Needs are the resources that Envoy requests after it has received a resource with this fragment.
	Needs []Ref

	found atomic.Pointer[mentioned] // see mentions
}

// Ref is the type and name of another resource.
type Ref struct {
	Type Type
	Name string
}

// Resource is one encoded xDS resource. All streams that send the resource share it. It is immutable, and its methods
// except With are safe for concurrent use. The body is the encoded message. It is stored as a rope: a head followed by
// fragments. Each fragment has whole protobuf fields, so their concatenation is a valid message.
type Resource struct {
	Type Type
	Name string
	// Version is a hexadecimal hash, and equal on every replica. Encode and EncodeAny hash the body. EncodeRope and
	// JoinRope hash the hashes of the pieces. EncodeAs and Restored set the caller's version.
	Version string
	// Needs are the resources that Envoy requests after it has received this resource, such as a cluster's endpoints or
	// a listener's routes.
	Needs []Ref
	// Secrets are the names of the secrets for which Envoy waits while it warms a cluster. The control plane or the
	// proxy's agent serves these secrets.
	Secrets []string
	// WarmsUnseen states that Envoy warms a cluster for reasons that the control plane cannot observe, for instance
	// until its hosts are health-checked. Only the acknowledgement shows that the cluster is warm.
	WarmsUnseen bool
	// Confidential states that the body has a private key or a credential. The resource is sent only to authorised
	// clients.
	Confidential bool
	// StandIn is sent instead of this resource to a client that has refused this version, or from which this version is
	// withheld. A client with an earlier good version keeps that version instead. If StandIn is nil, nothing is sent.
	// Filter configurations for which listeners wait without limit have a StandIn (push/build/extension).
	StandIn *Resource

	standsIn bool // the resource is the StandIn of another resource

	head []byte
	tail []*Fragment // shared and read-only
	size int         // length of the body in bytes
	url  string      // type URL of the body; empty: the URL of Type

	flatten sync.Once
	wire    [][]byte
	box     sync.Once
	boxed   mem.BufferSlice
	runs    atomic.Pointer[[]*run] // runs that begin with this resource, the latest first

	mentioned atomic.Pointer[mention]
}

// With sets StandIn of r, and returns r. standIn must not be nil, must have the same name, and must not belong to
// another resource. With must be called before r is shared.
func (r *Resource) With(standIn *Resource) *Resource {
	r.StandIn, standIn.standsIn = standIn, true
	return r
}

// StandsIn reports whether the resource is the StandIn of another resource. It returns false for a nil Resource.
func (r *Resource) StandsIn() bool { return r != nil && r.standsIn }

// flattenAbove is a number of fragments. A resource with at least this number is copied into one slice when it is first
// sent. Writing hundreds of pieces for each stream costs more than one copy for all streams.
const flattenAbove = 32

// deterministic are the options for every encoding. With these options, equal messages give equal bytes.
var deterministic = proto.MarshalOptions{Deterministic: true}

// Encode encodes a message as a resource. needs becomes Resource.Needs. Encode fails only if a string of the message is
// not valid UTF-8. The error names the type and the resource.
func Encode(t Type, name string, m proto.Message, needs ...Ref) (*Resource, error) {
	return encode(t, name, "", m, needs)
}

// EncodeAs encodes a message as a confidential resource with the caller's version. It is for messages with private
// keys, whose hashes must not be published. The version must not be empty. It must be different for different messages,
// and equal on every replica. EncodeAs fails only if a string of the message is not valid UTF-8. The error names the
// type and the resource.
func EncodeAs(t Type, name, version string, m proto.Message, needs ...Ref) (*Resource, error) {
	return encode(t, name, version, m, needs)
}

// Restored returns a resource with the given values, for tools that show the resources in a report. It does not verify
// the values, so the resource must never be sent. The resource refers to body, which must not change afterwards.
func Restored(t Type, name, version string, body []byte) *Resource {
	return &Resource{Type: t, Name: name, Version: version, head: body, size: len(body)}
}

// VersionOf returns a version for EncodeAs: a hash of the parts, as 32 hexadecimal digits. Each part must be public or
// a message authentication code.
func VersionOf(parts ...[]byte) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:", len(part))
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// EncodeAny makes a resource of type Unknown, for messages whose types are not among the Type constants. The resource
// has the type URL of the argument body and a copy of its encoded message. The argument must not be nil. EncodeAny
// fails if the name or the type URL is not valid UTF-8, or if the type URL is empty.
func EncodeAny(name string, body *anypb.Any) (*Resource, error) {
	if !utf8.ValidString(name) || body.TypeUrl == "" || !utf8.ValidString(body.TypeUrl) {
		return nil, fmt.Errorf("encode %q: a name and a type URL in UTF-8 are needed, not %q", name, body.TypeUrl)
	}
	h := hash(body.Value)
	r := &Resource{Type: Unknown, Name: name, Version: hex.EncodeToString(h[:]), head: body.Value, size: len(body.Value), url: body.TypeUrl}
	r.shareBody()
	return r, nil
}

// shareBody calls Delta, and makes the body a part of the bytes that Delta returns. The body is then in memory only
// once.
func (r *Resource) shareBody() {
	wire := r.Delta()[0]
	at := len(wire) - r.tailSize() - r.size
	r.head = wire[at : at+r.size : at+r.size]
}

// bodyURL returns the type URL of the body.
func (r *Resource) bodyURL() string {
	if r.url != "" {
		return r.url
	}
	return r.Type.URL()
}

// scratch is a pool of buffers (*[]byte), into which messages are encoded before their length is known.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// maxScratch is the maximum length in bytes of a buffer that is returned to scratch.
const maxScratch = 1 << 20

// encode implements Encode and EncodeAs. If version is empty, the resource's version is a hash of the body. Otherwise
// the resource is confidential.
func encode(t Type, name, version string, m proto.Message, needs []Ref) (*Resource, error) {
	buf := scratch.Get().(*[]byte)
	b, err := deterministic.MarshalAppend((*buf)[:0], m)
	if err != nil {
		return nil, fmt.Errorf("encode %v %s: %w", t, name, err)
	}
	confidential := version != ""
	if !confidential {
		h := hash(b)
		version = hex.EncodeToString(h[:])
	}
	r := &Resource{Type: t, Name: name, Version: version, Needs: needs, Confidential: confidential, head: b, size: len(b)}
	r.shareBody()
	if cap(b) <= maxScratch && !confidential { // a buffer with a private key is not reused
		*buf = b
		scratch.Put(buf)
	}
	return r, nil
}

// tailSize returns the length in bytes of the last field of Delta, which holds the name.
func (r *Resource) tailSize() int { return protowire.SizeTag(3) + protowire.SizeBytes(len(r.Name)) }

// EncodeRope makes a resource from the message head and the fragments in tail. On the wire the fragments follow the
// head, in the order of the slice. The resource keeps the slice tail, which must not change afterwards. EncodeRope
// fails only if a string of head is not valid UTF-8.
func EncodeRope(t Type, name string, head proto.Message, tail []*Fragment, needs ...Ref) (*Resource, error) {
	b, err := deterministic.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("encode %v %s: %w", t, name, err)
	}
	r := &Resource{Type: t, Name: name, Needs: needs, head: b, tail: tail, size: len(b)}
	sum, h := sha256.New(), hash(b)
	var block [64 * len(h)]byte // few long writes to the hash cost less than many short ones
	pending := append(block[:0], h[:]...)
	for _, f := range tail {
		r.size += len(f.Bytes)
		if len(pending) == cap(pending) {
			sum.Write(pending)
			pending = pending[:0]
		}
		pending = append(pending, f.Hash[:]...)
	}
	sum.Write(pending)
	r.Version = hex.EncodeToString(sum.Sum(nil)[:16])
	return r, nil
}

// JoinRope makes a resource of type Unknown, for messages whose types are not among the Type constants. The body is the
// concatenation of the fragments, and url is the body's type URL. The resource keeps the slice fragments, which must
// not change afterwards.
func JoinRope(name, url string, fragments []*Fragment) *Resource {
	r := &Resource{Type: Unknown, Name: name, tail: fragments, url: url}
	sum := sha256.New()
	for _, f := range fragments {
		r.size += len(f.Bytes)
		sum.Write(f.Hash[:])
	}
	r.Version = hex.EncodeToString(sum.Sum(nil)[:16])
	return r
}

// EncodeFragment encodes a message as one field of an outer message. number is the number of the field. EncodeFragment
// fails only if a string of m is not valid UTF-8.
func EncodeFragment(name string, number protowire.Number, m proto.Message) (*Fragment, error) {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode fragment %s: %w", name, err)
	}
	field := protowire.AppendTag(make([]byte, 0, len(b)+8), number, protowire.BytesType)
	field = protowire.AppendBytes(field, b)
	return &Fragment{Name: name, Bytes: field, Hash: hash(field)}, nil
}

// EncodePart encodes m as a part for JoinFragment. m must contain only elements of one repeated field. EncodePart fails
// only if a string of m is not valid UTF-8.
func EncodePart(name string, m proto.Message) (*Fragment, error) {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode fragment %s: %w", name, err)
	}
	return &Fragment{Name: name, Bytes: b, Hash: hash(b)}, nil
}

// JoinFragment encodes a message as one field of an outer message, as EncodeFragment does. The message is given in
// pieces: parts has the encoded elements of one repeated field in order (EncodePart), and m has all other fields. The
// parameter field is the number of the repeated field. The result has the same bytes as EncodeFragment for the whole
// message. It keeps the slice parts, which must not change afterwards. JoinFragment fails only if a string of m is not
// valid UTF-8.
func JoinFragment(
	name string, number protowire.Number, m proto.Message, field protowire.Number, parts []*Fragment,
) (*Fragment, error) {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode fragment %s: %w", name, err)
	}
	before, size := offsetAfter(b, field), len(b)
	for _, p := range parts {
		size += len(p.Bytes)
	}
	out := protowire.AppendTag(make([]byte, 0, size+8), number, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(size))
	out = append(out, b[:before]...)
	for _, p := range parts {
		out = append(out, p.Bytes...)
	}
	out = append(out, b[before:]...)
	return &Fragment{Name: name, Bytes: out, Hash: hash(out), Parts: parts}, nil
}

// offsetAfter returns the offset in an encoded message at which elements of a field may follow. Fields are encoded in
// the order of their numbers.
func offsetAfter(b []byte, field protowire.Number) (offset int) {
	for offset < len(b) {
		n, _, length := protowire.ConsumeField(b[offset:])
		if length < 0 || n > field {
			break
		}
		offset += length
	}
	return offset
}

// HashOf returns a hash of a message. Equal messages have equal hashes. HashOf fails only if a string of the message is
// not valid UTF-8.
func HashOf(m proto.Message) (Hash, error) {
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	b, err := deterministic.MarshalAppend((*buf)[:0], m)
	if err != nil {
		return Hash{}, fmt.Errorf("hash: %w", err)
	}
	if cap(b) <= maxScratch {
		*buf = b
	}
	return hash(b), nil
}

// hash returns the Hash of bytes.
func hash(b []byte) Hash {
	sum := sha256.Sum256(b)
	return Hash(sum[:16])
}

// Size returns the length of the body in bytes.
func (r *Resource) Size() int { return r.size }

// Body returns a copy of the encoded message, for debugging and tests.
func (r *Resource) Body() []byte {
	b := make([]byte, 0, r.size)
	return r.appendBody(b)
}

// Any returns a copy of the body in an Any, for debugging and tests.
func (r *Resource) Any() *anypb.Any { return &anypb.Any{TypeUrl: r.bodyURL(), Value: r.Body()} }

// appendBody appends the body to b.
func (r *Resource) appendBody(b []byte) []byte {
	b = append(b, r.head...)
	for _, f := range r.tail {
		b = append(b, f.Bytes...)
	}
	return b
}

// segments appends the pieces of the body to wire.
func (r *Resource) segments(wire [][]byte) [][]byte {
	wire = append(wire, r.head)
	for _, f := range r.tail {
		wire = append(wire, f.Bytes)
	}
	return wire
}

// Delta returns the resource, encoded as one field `resources` (number 2) of a DeltaDiscoveryResponse. The slices of
// the result must be sent in order. The result is made at the first call, shared and read-only.
func (r *Resource) Delta() [][]byte {
	r.flatten.Do(func() { r.wire = r.encodeDelta() })
	return r.wire
}

// encodeDelta makes the result of Delta. The field contains this message, shown with its field numbers:
// Resource{version=1, resource=2 Any{type_url=1, value=2}, name=3}.
func (r *Resource) encodeDelta() [][]byte {
	url := r.bodyURL()
	anySize := anyHeaderSize(url, r.size) + r.size
	inner := protowire.SizeTag(1) + protowire.SizeBytes(len(r.Version)) +
		protowire.SizeTag(2) + protowire.SizeBytes(anySize) +
		protowire.SizeTag(3) + protowire.SizeBytes(len(r.Name))
	head := protowire.AppendTag(nil, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(inner))
	head = protowire.AppendTag(head, 1, protowire.BytesType)
	head = protowire.AppendString(head, r.Version)
	head = protowire.AppendTag(head, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(anySize))
	head = appendAnyHeader(head, url, r.size)
	tail := protowire.AppendTag(nil, 3, protowire.BytesType)
	tail = protowire.AppendString(tail, r.Name)

	if n := len(r.tail); n == 0 || n >= flattenAbove {
		flat := make([]byte, 0, len(head)+r.size+len(tail))
		return [][]byte{append(r.appendBody(append(flat, head...)), tail...)}
	}
	return append(r.segments(append(make([][]byte, 0, len(r.tail)+3), head)), tail)
}

// State returns the resource, encoded as one field `resources` (number 2, an Any) of a state-of-the-world
// DiscoveryResponse. The slices of the result must be sent in order. Their bytes are shared and read-only. The caller
// owns the outer slice.
func (r *Resource) State() [][]byte {
	url := r.bodyURL()
	head := protowire.AppendTag(nil, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(anyHeaderSize(url, r.size)+r.size))
	head = appendAnyHeader(head, url, r.size)
	return r.segments(append(make([][]byte, 0, len(r.tail)+2), head))
}

// anyHeaderSize returns the length in bytes of an encoded Any without the bytes of its value. The parameter value is
// the length of these bytes.
func anyHeaderSize(url string, value int) int {
	return protowire.SizeTag(1) + protowire.SizeBytes(len(url)) + protowire.SizeTag(2) + protowire.SizeVarint(uint64(value))
}

// appendAnyHeader appends an encoded Any to b, without the bytes of its value. The parameter value is the length of
// these bytes.
func appendAnyHeader(b []byte, url string, value int) []byte {
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendString(b, url)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(value))
}
