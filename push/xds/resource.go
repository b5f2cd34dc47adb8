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

// Fragment is encoded bytes that several resources share, with their hash: an encoded virtual host, as the
// `virtual_hosts` field of a RouteConfiguration. Same content, same pointer (push/pool sees to it).
type Fragment struct {
	Name  string
	Bytes []byte // frozen; tag and length of the field included
	Hash  Hash
	// Parts are the fragments that this one was made of. While it is alive, their pool has them; nil: none.
	Parts []*Fragment

	named atomic.Pointer[[]string] // see names
}

// Ref names another resource.
type Ref struct {
	Type Type
	Name string
}

// Resource is one resource, encoded once and shared by every stream that sends it. Immutable. The body is a rope:
// protobuf fields may be concatenated, so a body may be a head and fragments after it.
type Resource struct {
	Type Type
	Name string
	// Version is the hash of the body in hexadecimal, equal on every replica. A rope's version is the hash of its
	// pieces' hashes.
	Version string
	// Needs are the resources that Envoy asks for once it has this one: a cluster's endpoints, a listener's routes.
	Needs []Ref
	// Secrets are what a cluster warms for beside its endpoints: names of secrets, from here or from the proxy's agent.
	Secrets []string
	// WarmsUnseen: a cluster that Envoy warms for something else, for instance until its hosts are health-checked. Only
	// its acknowledgement says that it is warm.
	WarmsUnseen bool
	// Confidential: it holds a private key or a credential, which goes to nobody but the clients that have a right to it.
	Confidential bool
	// StandIn replaces this version for a client that has refused it, or from which it is withheld, and
	// the client has no other that is good; nil: nothing is. Of configurations that something else waits for without end
	// (push/build/extension).
	StandIn *Resource

	standsIn bool // it is a StandIn

	head []byte
	tail []*Fragment // shared: not to be changed
	size int         // of the body, bytes
	url  string      // of the body; empty: the type's

	flatten sync.Once
	wire    [][]byte
	box     sync.Once
	boxed   mem.BufferSlice
	runs    atomic.Pointer[[]*run] // what it was the first of, when it was last sent with others

	mentioned atomic.Pointer[mention]
}

// With is the resource with a stand-in of the same name, which belongs to it alone. For builders: before anybody else
// has either.
func (r *Resource) With(standIn *Resource) *Resource {
	r.StandIn, standIn.standsIn = standIn, true
	return r
}

// StandsIn says whether it is a StandIn.
func (r *Resource) StandsIn() bool { return r != nil && r.standsIn }

// flattenAbove is the number of segments beyond which a resource is joined into one slice when it is first sent: a
// writev of hundreds of pieces per stream costs more than one copy for all of them.
const flattenAbove = 32

var deterministic = proto.MarshalOptions{Deterministic: true}

// Encode makes a resource of a message. An error is a fault of the builder (a message that does not marshal).
func Encode(t Type, name string, m proto.Message, needs ...Ref) (*Resource, error) {
	return encode(t, name, "", m, needs)
}

// EncodeAs is Encode for what is confidential, with a version of the caller's, since of a private key nobody is to
// see a hash. It has to differ wherever the message does, and be equal on every replica. Errors are those of Encode.
func EncodeAs(t Type, name, version string, m proto.Message, needs ...Ref) (*Resource, error) {
	return encode(t, name, version, m, needs)
}

// VersionOf is a version for EncodeAs of some parts: of each what is public, or a MAC.
func VersionOf(parts ...[]byte) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:", len(part))
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// EncodeAny makes a resource of no type of Envoy's: its body is an encoded message of any type, which is copied. An
// error is a name or type URL that is not UTF-8, or no type URL.
func EncodeAny(name string, body *anypb.Any) (*Resource, error) {
	if !utf8.ValidString(name) || body.TypeUrl == "" || !utf8.ValidString(body.TypeUrl) {
		return nil, fmt.Errorf("encode %q: a name and a type URL in UTF-8 are needed, not %q", name, body.TypeUrl)
	}
	h := hash(body.Value)
	r := &Resource{Type: Unknown, Name: name, Version: hex.EncodeToString(h[:]), head: body.Value, size: len(body.Value), url: body.TypeUrl}
	r.shareBody()
	return r, nil
}

// shareBody makes the body a part of what Delta sends, so that it is there once.
func (r *Resource) shareBody() {
	wire := r.Delta()[0]
	at := len(wire) - r.tailSize() - r.size
	r.head = wire[at : at+r.size : at+r.size]
}

// bodyURL is the type URL of the body.
func (r *Resource) bodyURL() string {
	if r.url != "" {
		return r.url
	}
	return r.Type.URL()
}

// scratch are the buffers (*[]byte) that messages are encoded in before their length is known.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// maxScratch is the length of the longest buffer that is kept, bytes.
const maxScratch = 1 << 20

// encode makes a resource whose body is there once: within what Delta sends. version empty: the hash of the body.
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
	if cap(b) <= maxScratch && !confidential { // of private keys nothing is left behind
		*buf = b
		scratch.Put(buf)
	}
	return r, nil
}

// tailSize is the length of what follows the body in Delta.
func (r *Resource) tailSize() int { return protowire.SizeTag(3) + protowire.SizeBytes(len(r.Name)) }

// EncodeRope makes a resource of a head message and fragments that follow it on the wire, in this order. The slice is
// kept and must not be changed: an edit of one virtual host among thousands makes a rope, and copies no list.
// An error: a string of head is not UTF-8.
func EncodeRope(t Type, name string, head proto.Message, tail []*Fragment, needs ...Ref) (*Resource, error) {
	b, err := deterministic.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("encode %v %s: %w", t, name, err)
	}
	r := &Resource{Type: t, Name: name, Needs: needs, head: b, tail: tail, size: len(b)}
	sum, h := sha256.New(), hash(b)
	var block [64 * len(h)]byte // hashing is dearer by the call than by the byte
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

// JoinRope makes a resource of no type of Envoy's: its body, a message of the type URL, is the fragments in this
// order. The slice is kept and must not be changed.
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

// EncodeFragment encodes a message as field `number` of a message to come. An error: a string of it is not UTF-8.
func EncodeFragment(name string, number protowire.Number, m proto.Message) (*Fragment, error) {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode fragment %s: %w", name, err)
	}
	field := protowire.AppendTag(make([]byte, 0, len(b)+8), number, protowire.BytesType)
	field = protowire.AppendBytes(field, b)
	return &Fragment{Name: name, Bytes: field, Hash: hash(field)}, nil
}

// EncodePart encodes some fields of a message to come, for JoinFragment. An error: a string is not UTF-8.
func EncodePart(name string, m proto.Message) (*Fragment, error) {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode fragment %s: %w", name, err)
	}
	return &Fragment{Name: name, Bytes: b, Hash: hash(b)}, nil
}

// JoinFragment is EncodeFragment for a message of which one repeated field is encoded already: the parts are its
// elements, in order, tags included. m has the other fields. The bytes are those of the whole message. An error: a
// string of m is not UTF-8.
func JoinFragment(name string, number protowire.Number, m proto.Message, field protowire.Number, parts []*Fragment) (*Fragment, error) {
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

// HashOf is the hash of a message, equal for equal messages. An error: a string is not UTF-8.
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

func hash(b []byte) Hash {
	sum := sha256.Sum256(b)
	return Hash(sum[:16])
}

// Size is the length of the body in bytes.
func (r *Resource) Size() int { return r.size }

// Body is a copy of the encoded message, for debugging and tests; the push path never calls it.
func (r *Resource) Body() []byte {
	b := make([]byte, 0, r.size)
	return r.appendBody(b)
}

// Any is a copy of the body in an Any, for debugging and tests.
func (r *Resource) Any() *anypb.Any { return &anypb.Any{TypeUrl: r.bodyURL(), Value: r.Body()} }

func (r *Resource) appendBody(b []byte) []byte {
	b = append(b, r.head...)
	for _, f := range r.tail {
		b = append(b, f.Bytes...)
	}
	return b
}

// segments is the body as slices after those that are given.
func (r *Resource) segments(wire [][]byte) [][]byte {
	wire = append(wire, r.head)
	for _, f := range r.tail {
		wire = append(wire, f.Bytes)
	}
	return wire
}

// Delta is the resource as one `resources` field (number 2) of a DeltaDiscoveryResponse: slices to be sent in order,
// shared by all streams, never changed. No bytes are copied after the first call.
func (r *Resource) Delta() [][]byte {
	r.flatten.Do(func() { r.wire = r.encodeDelta() })
	return r.wire
}

// encodeDelta frames the body: Resource{version=1, resource=2 Any{type_url=1, value=2}, name=3}.
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

// State is the resource as one `resources` field (number 2, an Any) of a state-of-the-world DiscoveryResponse.
func (r *Resource) State() [][]byte {
	url := r.bodyURL()
	head := protowire.AppendTag(nil, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(anyHeaderSize(url, r.size)+r.size))
	head = appendAnyHeader(head, url, r.size)
	return r.segments(append(make([][]byte, 0, len(r.tail)+2), head))
}

func anyHeaderSize(url string, value int) int {
	return protowire.SizeTag(1) + protowire.SizeBytes(len(url)) + protowire.SizeTag(2) + protowire.SizeVarint(uint64(value))
}

func appendAnyHeader(b []byte, url string, value int) []byte {
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendString(b, url)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(value))
}
