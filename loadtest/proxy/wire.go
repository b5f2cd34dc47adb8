package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of envoy.service.discovery.v3.DeltaDiscoveryRequest, DeltaDiscoveryResponse and Resource
// (discovery.proto).
const (
	requestNode, requestType, requestSubscribe, requestUnsubscribe, requestInitial, requestNonce, requestError = 1, 2, 3, 4, 5, 6, 7

	responseSystem, responseResource, responseType, responseNonce, responseRemoved = 1, 2, 4, 5, 6

	resourceVersion, resourceBody, resourceName = 1, 2, 3
)

// request is a DeltaDiscoveryRequest to encode.
type request struct {
	node        []byte
	url         string
	subscribe   []string
	unsubscribe []string
	nonce       string
	refusal     string   // error_detail.message; empty: no error
	more        [][]byte // further encoded fields, which are shared
}

// encode returns the request as a gRPC message with its prefix, without `more`, which follows it.
func (r request) encode() []byte {
	b := make([]byte, 5, 5+len(r.node)+len(r.url)+len(r.nonce)+16+64*(len(r.subscribe)+len(r.unsubscribe)))
	if r.node != nil {
		b = appendNode(b, r.node, requestNode)
	}
	b = appendText(b, requestType, r.url)
	for _, name := range r.subscribe {
		b = appendText(b, requestSubscribe, name)
	}
	for _, name := range r.unsubscribe {
		b = appendText(b, requestUnsubscribe, name)
	}
	if r.nonce != "" {
		b = appendText(b, requestNonce, r.nonce)
	}
	if r.refusal != "" {
		b = appendStatus(b, requestError, r.refusal)
	}
	return prefix(b, r.more...)
}

// prefix sets the five bytes of a gRPC message's prefix, for the length of b and more.
func prefix(b []byte, more ...[]byte) []byte {
	size := len(b) - 5
	for _, piece := range more {
		size += len(piece)
	}
	b[0] = 0
	binary.BigEndian.PutUint32(b[1:5], uint32(size))
	return b
}

func appendText(b []byte, number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
}

func sizeText(number protowire.Number, s string) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(len(s))
}

// resource is one entry of a response. Its parts are slices of a buffer that is reused.
type resource struct {
	url, name, version string
	body               []byte
}

// events receives the parts of a response as they arrive, then its end. Strings are valid during the call only.
type events interface {
	onResource(resource) error
	onRemoved(name string) error
	// onEnd receives the type URL, nonce and system version, and the length of the message with its prefix.
	onEnd(url, nonce, system string, size int) error
}

// maxMessage is the largest accepted message in bytes.
const maxMessage = 1 << 30

var errCompressed = errors.New("a compressed message: no compression was offered")

// parser parses a stream of gRPC messages in pieces of any size. It keeps only the incomplete field of a message. The
// zero parser is ready for use.
type parser struct {
	head  [5]byte
	heads int // bytes of head that have arrived
	left  int // bytes of the message that are still to be parsed
	size  int

	part  []byte // the beginning of a field; nil: none
	large bool   // part occupies a room
	rooms *rooms // nil: no limit
	sotw  bool   // messages are DiscoveryResponses, not DeltaDiscoveryResponses

	url, nonce, system []byte
}

// parse parses the next bytes of the stream.
func (p *parser) parse(b []byte, to events) error {
	for len(b) > 0 || p.heads == 5 && p.left == 0 {
		if p.heads < 5 {
			n := copy(p.head[p.heads:], b)
			p.heads += n
			b = b[n:]
			if p.heads < 5 {
				return nil
			}
			if p.head[0] != 0 {
				return errCompressed
			}
			p.left = int(binary.BigEndian.Uint32(p.head[1:]))
			if p.size = p.left + 5; p.left > maxMessage {
				return fmt.Errorf("a message of %d bytes", p.left)
			}
			p.url, p.nonce, p.system = p.url[:0], p.nonce[:0], p.system[:0]
			continue
		}
		n := min(len(b), p.left)
		if err := p.fields(b[:n], to); err != nil {
			return err
		}
		p.left -= n
		b = b[n:]
		if p.left > 0 {
			return nil
		}
		if p.part != nil {
			return errors.New("a message that ends inside of a field")
		}
		p.heads = 0
		if err := to.onEnd(borrow(p.url), borrow(p.nonce), borrow(p.system), p.size); err != nil {
			return err
		}
	}
	return nil
}

// fields parses the complete fields of b, and keeps the rest.
func (p *parser) fields(b []byte, to events) error {
	if p.part != nil {
		p.part = append(p.part, b...)
		b = p.part
	}
	rest, need := b, 0
	for len(rest) > 0 {
		number, kind, value, n, err := field(rest)
		if err != nil {
			return err
		}
		if n == 0 || n > len(rest) {
			need = n
			break
		}
		if err := p.field(number, kind, value, to); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if len(rest) == 0 {
		p.drop()
		return nil
	}
	if p.part == nil || cap(p.part) < need {
		old, large := p.part, p.large
		p.part, p.large = p.rooms.take(need)
		p.part = append(p.part, rest...)
		p.rooms.give(old, large)
		return nil
	}
	p.part = append(p.part[:0], rest...)
	return nil
}

// drop returns the buffer.
func (p *parser) drop() {
	p.rooms.give(p.part, p.large)
	p.part, p.large = nil, false
}

// field parses one field at the start of b. n is its length, which exceeds len(b) for an incomplete field; 0 if the
// length is not known yet. value is set for length-delimited fields.
func field(b []byte) (number protowire.Number, kind protowire.Type, value []byte, n int, err error) {
	number, kind, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		if len(b) < 10 {
			return 0, 0, nil, 0, nil
		}
		return 0, 0, nil, 0, fmt.Errorf("a field's tag: %w", protowire.ParseError(tag))
	}
	if kind == protowire.BytesType {
		size, m := protowire.ConsumeVarint(b[tag:])
		switch {
		case m < 0 && len(b)-tag < 10:
			return number, kind, nil, 0, nil
		case m < 0 || size > maxMessage:
			return 0, 0, nil, 0, fmt.Errorf("field %d: its length is not valid", number)
		case uint64(len(b)-tag-m) < size:
			return number, kind, nil, tag + m + int(size), nil
		}
		return number, kind, b[tag+m : tag+m+int(size)], tag + m + int(size), nil
	}
	m := protowire.ConsumeFieldValue(number, kind, b[tag:])
	switch {
	case m >= 0:
		return number, kind, nil, tag + m, nil
	case len(b)-tag < 10:
		return number, kind, nil, 0, nil
	}
	return 0, 0, nil, 0, fmt.Errorf("field %d: %w", number, protowire.ParseError(m))
}

func (p *parser) field(number protowire.Number, kind protowire.Type, value []byte, to events) error {
	if kind != protowire.BytesType {
		return nil
	}
	switch number {
	case responseSystem:
		p.system = append(p.system[:0], value...)
	case responseType:
		p.url = append(p.url[:0], value...)
	case responseNonce:
		p.nonce = append(p.nonce[:0], value...)
	case responseRemoved:
		if p.sotw {
			return nil // this field number is control_plane there
		}
		return to.onRemoved(borrow(value))
	case responseResource:
		parse := parseResource
		if p.sotw {
			parse = parseAny
		}
		r, err := parse(value)
		if err != nil {
			return err
		}
		return to.onResource(r)
	}
	return nil
}

// parseResource parses a Resource and its Any.
func parseResource(b []byte) (resource, error) {
	var r resource
	err := each(b, func(number protowire.Number, value []byte) error {
		switch number {
		case resourceVersion:
			r.version = borrow(value)
		case resourceName:
			r.name = borrow(value)
		case resourceBody:
			return each(value, r.any)
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("resource %q: %w", r.name, err)
	}
	return r, nil
}

// any parses a field of the resource's Any.
func (r *resource) any(number protowire.Number, value []byte) error {
	switch number {
	case 1:
		r.url = borrow(value)
	case 2:
		r.body = value
	}
	return nil
}

// each visits the length-delimited fields of a complete message.
func each(b []byte, visit func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		number, kind, value, n, err := field(b)
		if err != nil {
			return err
		}
		if n == 0 || n > len(b) {
			return errors.New("the message ends inside a field")
		}
		if kind == protowire.BytesType {
			if err := visit(number, value); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

// borrow returns a string that shares the memory of b, and is valid as long as b.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// sum returns a hash of the body, for servers that send no version.
func sum(body []byte) uint64 { return xxhash.Sum64(body) }
