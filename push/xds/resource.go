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

// Hash is the first 128 bits of a SHA-256.
type Hash [16]byte

// Fragment is encoded bytes that several resources share, with their hash. An example is a virtual host, as the field
// `virtual_hosts` of a RouteConfiguration. Fragments with equal content are one pointer; push/pool ensures it.
type Fragment struct {
	Name  string // of the virtual host, for instance; empty: several are joined, and Parts has them
	Bytes []byte // immutable; with tag and length of the field
	Hash  Hash   // of Bytes
	// Parts are the fragments from which this one was joined; nil: it was not joined. The reference keeps them in their
	// pool.
	Parts []*Fragment
	// Needs are the resources that Envoy asks for once it has one with this fragment; see Resource.
	Needs []Ref

	found atomic.Pointer[mentioned] // see mentions
}

// Ref is the type and name of another resource.
type Ref struct {
	Type Type
	Name string
}

// Resource is one resource, encoded once and shared by every stream that sends it. It is immutable. The body is a rope,
// a head and fragments after it, because the concatenation of protobuf fields is a message.
type Resource struct {
	Type Type
	Name string
	// Version is a hash of the body in hexadecimal, equal on every replica. For a rope it is the hash of the hashes of its
	// pieces. EncodeAs sets another version.
	Version string
	// Needs are the resources that Envoy requests after this one: a cluster's endpoints, a listener's routes.
	Needs []Ref
	// Secrets are the names of the secrets that Envoy waits for while it warms a cluster, from here or from the proxy's
	// agent.
	Secrets []string
	// WarmsUnseen states that Envoy warms a cluster for reasons that the control plane cannot observe, for instance until
	// its hosts are health-checked. Only the acknowledgement shows that the cluster is warm.
	WarmsUnseen bool
	// Confidential states that the body has a private key or a credential, which is sent only to authorised clients.
	Confidential bool
	// StandIn replaces this version for some clients; nil: it has no replacement. They are clients that have refused this
	// version, or from which it is withheld, and that have no earlier good version. Configurations that listeners wait for
	// without limit have a StandIn (push/build/extension).
	StandIn *Resource

	standsIn bool // it is the StandIn of another resource

	head []byte
	tail []*Fragment // shared: immutable
	size int         // length of the body in bytes
	url  string      // type URL of the body; empty: that of Type

	flatten sync.Once
	wire    [][]byte
	box     sync.Once
	boxed   mem.BufferSlice
	runs    atomic.Pointer[[]*run] // runs that begin with this resource, the latest first

	mentioned atomic.Pointer[mention]
}

// With sets the stand-in of a resource and returns the resource. The stand-in has the same name and belongs to this
// resource alone. Builders call it before they publish either.
func (r *Resource) With(standIn *Resource) *Resource {
	r.StandIn, standIn.standsIn = standIn, true
	return r
}

// StandsIn reports whether the resource is a StandIn; false for nil.
func (r *Resource) StandsIn() bool { return r != nil && r.standsIn }

// flattenAbove is the number of segments beyond which a resource is joined into one slice when it is first sent. A
// writev of hundreds of pieces per stream costs more than one copy for all streams.
const flattenAbove = 32

// deterministic are the options of every encoding: equal messages make equal bytes.
var deterministic = proto.MarshalOptions{Deterministic: true}

// Encode encodes a message as a resource. needs are the resources that Envoy requests after it. The error names a
// message that does not marshal (a string that is not UTF-8), which is a fault of the builder.
func Encode(t Type, name string, m proto.Message, needs ...Ref) (*Resource, error) {
	return encode(t, name, "", m, needs)
}

// EncodeAs is Encode for confidential messages, with a version of the caller. A hash of a private key must not be
// published. The version must differ if the messages differ, and be equal on every replica. Errors are those of Encode.
func EncodeAs(t Type, name, version string, m proto.Message, needs ...Ref) (*Resource, error) {
	return encode(t, name, version, m, needs)
}

// VersionOf returns a version for EncodeAs: a hash of parts, each of which is public or a MAC.
func VersionOf(parts ...[]byte) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:", len(part))
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// EncodeAny makes a resource whose type is not Envoy's. Its body is a copy of an encoded message of any type. The error
// is a name or type URL that is not UTF-8, or an empty type URL.
func EncodeAny(name string, body *anypb.Any) (*Resource, error) {
	if !utf8.ValidString(name) || body.TypeUrl == "" || !utf8.ValidString(body.TypeUrl) {
		return nil, fmt.Errorf("encode %q: a name and a type URL in UTF-8 are needed, not %q", name, body.TypeUrl)
	}
	h := hash(body.Value)
	r := &Resource{Type: Unknown, Name: name, Version: hex.EncodeToString(h[:]), head: body.Value, size: len(body.Value), url: body.TypeUrl}
	r.shareBody()
	return r, nil
}

// shareBody makes the body a part of the bytes of Delta, so that it is in memory once.
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

// scratch has the buffers (*[]byte) into which messages are encoded before their length is known.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// maxScratch is the length of the longest buffer that is kept, in bytes.
const maxScratch = 1 << 20

// encode makes a resource whose body is in memory once, inside the bytes of Delta. An empty version means the hash of
// the body; a resource with a stated version is confidential.
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

// tailSize returns the length in bytes of the field after the body in Delta.
func (r *Resource) tailSize() int { return protowire.SizeTag(3) + protowire.SizeBytes(len(r.Name)) }

// EncodeRope makes a resource of a head message and the fragments that follow it on the wire, in this order. It keeps
// the slice tail, which callers must not change: so an edit of one virtual host among thousands copies no list. The
// error is a string of head that is not UTF-8.
func EncodeRope(t Type, name string, head proto.Message, tail []*Fragment, needs ...Ref) (*Resource, error) {
	b, err := deterministic.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("encode %v %s: %w", t, name, err)
	}
	r := &Resource{Type: t, Name: name, Needs: needs, head: b, tail: tail, size: len(b)}
	sum, h := sha256.New(), hash(b)
	var block [64 * len(h)]byte // few calls with many bytes cost less than many calls
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

// JoinRope makes a resource whose type is not Envoy's. Its body, a message of the type URL, is the fragments in this
// order. It keeps the slice, which callers must not change.
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

// EncodeFragment encodes a message as the field number of an outer message. The error is a string that is not UTF-8.
func EncodeFragment(name string, number protowire.Number, m proto.Message) (*Fragment, error) {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode fragment %s: %w", name, err)
	}
	field := protowire.AppendTag(make([]byte, 0, len(b)+8), number, protowire.BytesType)
	field = protowire.AppendBytes(field, b)
	return &Fragment{Name: name, Bytes: field, Hash: hash(field)}, nil
}

// EncodePart encodes some fields of an outer message, for JoinFragment. The error is a string that is not UTF-8.
func EncodePart(name string, m proto.Message) (*Fragment, error) {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode fragment %s: %w", name, err)
	}
	return &Fragment{Name: name, Bytes: b, Hash: hash(b)}, nil
}

// JoinFragment is EncodeFragment for a message with a repeated field that is encoded already. The parts are the
// elements of that field, in order, with their tags, and m has the other fields. The bytes equal those of encoding the
// whole message. The error is a string of m that is not UTF-8.
func JoinFragment(
	name string, number protowire.Number, m proto.Message, field protowire.Number, parts []*Fragment,
) (*Fragment, error) {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode fragment %s: %w", name, err)
	}
	before, size := 0, len(b) // fields are encoded in the order of their numbers
	for before < len(b) {
		n, _, length := protowire.ConsumeField(b[before:])
		if length < 0 || n > field {
			break
		}
		before += length
	}
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

// HashOf returns the hash of a message, equal for equal messages. The error is a string that is not UTF-8.
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

// Body returns a copy of the encoded message, for debugging and tests; the push path never calls it.
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

// Delta returns the resource as one field `resources` (number 2) of a DeltaDiscoveryResponse: slices to send in order.
// All streams share them, and callers must not change them. No bytes are copied after the first call.
func (r *Resource) Delta() [][]byte {
	r.flatten.Do(func() { r.wire = r.encodeDelta() })
	return r.wire
}

// encodeDelta encodes the body as Resource{version=1, resource=2 Any{type_url=1, value=2}, name=3}.
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

// State returns the resource as one field `resources` (number 2, an Any) of a state-of-the-world DiscoveryResponse. The
// result is slices to send in order, which callers must not change.
func (r *Resource) State() [][]byte {
	url := r.bodyURL()
	head := protowire.AppendTag(nil, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(anyHeaderSize(url, r.size)+r.size))
	head = appendAnyHeader(head, url, r.size)
	return r.segments(append(make([][]byte, 0, len(r.tail)+2), head))
}

// anyHeaderSize returns the length in bytes of an Any without its value, for a value of this length.
func anyHeaderSize(url string, value int) int {
	return protowire.SizeTag(1) + protowire.SizeBytes(len(url)) + protowire.SizeTag(2) + protowire.SizeVarint(uint64(value))
}

// appendAnyHeader appends an Any up to its value, of this length.
func appendAnyHeader(b []byte, url string, value int) []byte {
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendString(b, url)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(value))
}
