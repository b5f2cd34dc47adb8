package relay

import (
	"errors"
	"unique"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of envoy.service.discovery.v3 (discovery.proto).
const (
	requestNode, requestType, requestSubscribe, requestUnsubscribe, requestInitial, requestNonce, requestError = 1, 2, 3, 4, 5, 6, 7

	responseRevision, responseResources, responseType, responseNonce, responseRemoved = 1, 2, 4, 5, 6

	resourceVersion, resourceName, resourceTTL = 1, 3, 6
)

// named is the name and version of a resource.
type named struct{ name, version string }

// request has the parts of a DeltaDiscoveryRequest that the relay reads.
type request struct {
	typeURL, nonce         string
	node                   []byte // the encoded field with its tag; nil: the request has no node
	subscribe, unsubscribe []string
	initial                []named
	failed                 bool   // the request has an error_detail
	failure                string // the message of the error_detail
	strange                bool   // the request has resource locators, which the mirror (copy of Envoy's state) does not follow
}

// response has the parts of a DeltaDiscoveryResponse that the relay reads: all but the bodies of the resources.
type response struct {
	typeURL, nonce, revision string
	set                      []named
	removed                  []string
	strange                  bool // the response has a resource with a TTL, which the mirror does not follow
}

// scanRequest parses a request without joining its buffers. The result does not refer to the buffers. The error is
// errWire.
func scanRequest(data mem.BufferSlice) (request, error) {
	var h request
	c := cursor{bufs: data}
	err := c.fields(data.Len(), func(field protowire.Number, n int) error {
		switch field {
		case requestNode:
			h.node = protowire.AppendTag(h.node, requestNode, protowire.BytesType)
			h.node = protowire.AppendVarint(h.node, uint64(n))
			h.node = c.appendTo(h.node, n)
		case requestType:
			h.typeURL = c.text(n)
		case requestSubscribe:
			h.subscribe = append(h.subscribe, c.text(n))
		case requestUnsubscribe:
			h.unsubscribe = append(h.unsubscribe, c.text(n))
		case requestInitial:
			e, err := c.entry(n)
			h.initial = append(h.initial, e)
			return err
		case requestNonce:
			h.nonce = c.text(n)
		case requestError:
			h.failed, h.failure = true, c.failureOf(n)
		default:
			h.strange = h.strange || field == 8 || field == 9 // resource_locators_(un)subscribe: names with parameters
		}
		return nil
	})
	return h, err
}

// scanResponse parses a response without joining its buffers, and skips the bodies of its resources. The error is
// errWire.
func scanResponse(data mem.BufferSlice) (response, error) {
	var h response
	c := cursor{bufs: data}
	err := c.fields(data.Len(), func(field protowire.Number, n int) error {
		switch field {
		case responseRevision:
			h.revision = c.text(n)
		case responseResources:
			var r named
			err := c.fields(c.at+n, func(field protowire.Number, n int) error {
				switch field {
				case resourceName:
					r.name = c.text(n)
				case resourceVersion:
					r.version = c.text(n)
				case resourceTTL:
					h.strange = true // Envoy removes such a resource by itself
				}
				return nil
			})
			h.set = append(h.set, r)
			return err
		case responseType:
			h.typeURL = c.text(n)
		case responseNonce:
			h.nonce = c.text(n)
		case responseRemoved:
			h.removed = append(h.removed, c.text(n))
		}
		return nil
	})
	return h, err
}

var errWire = errors.New("not protobuf")

// cursor reads an encoded message across several buffers without joining them. Its method fields validates lengths, so
// no method reads past the end.
type cursor struct {
	bufs mem.BufferSlice // remaining buffers; the first contains the next byte
	off  int             // offset of the next byte in bufs[0]
	at   int             // offset of the next byte in the message
}

// fields calls the function visit for every length-delimited field before the offset end, with the length n of the
// field's value. During the call, the cursor is at the value, and the function may read any part of the value. Other
// fields are skipped. The error is errWire or the function's error.
func (c *cursor) fields(end int, visit func(field protowire.Number, n int) error) error {
	for c.at < end {
		field, kind, err := c.tag(end)
		if err != nil {
			return err
		}
		if kind != protowire.BytesType {
			if err := c.skipScalar(field, kind, end, 0); err != nil {
				return err
			}
			continue
		}
		n, err := c.varint(end)
		if err != nil || n > uint64(end-c.at) {
			return errWire
		}
		next := c.at + int(n)
		if err := visit(field, int(n)); err != nil {
			return err
		}
		c.skip(next - c.at)
	}
	return nil
}

// entry reads one entry of a map of strings.
func (c *cursor) entry(n int) (named, error) {
	var e named
	err := c.fields(c.at+n, func(field protowire.Number, n int) error {
		switch field {
		case 1:
			e.name = c.text(n)
		case 2:
			e.version = c.text(n)
		}
		return nil
	})
	return e, err
}

func (c *cursor) tag(end int) (protowire.Number, protowire.Type, error) {
	v, err := c.varint(end)
	if err != nil {
		return 0, 0, err
	}
	field, kind := protowire.DecodeTag(v)
	if field < protowire.MinValidNumber {
		return 0, 0, errWire
	}
	return field, kind, nil
}

// maxGroups bounds the nesting of groups, as in package protowire. xDS messages contain no groups.
const maxGroups = 10000

func (c *cursor) skipScalar(field protowire.Number, kind protowire.Type, end, depth int) error {
	switch kind {
	case protowire.VarintType:
		_, err := c.varint(end)
		return err
	case protowire.Fixed32Type:
		return c.skipWithin(4, end)
	case protowire.Fixed64Type:
		return c.skipWithin(8, end)
	case protowire.BytesType:
		n, err := c.varint(end)
		if err != nil || n > uint64(end-c.at) {
			return errWire
		}
		c.skip(int(n))
		return nil
	case protowire.StartGroupType:
		for depth < maxGroups {
			inner, kind, err := c.tag(end)
			if err != nil {
				return err
			}
			if kind == protowire.EndGroupType {
				if inner != field {
					return errWire
				}
				return nil
			}
			if err := c.skipScalar(inner, kind, end, depth+1); err != nil {
				return err
			}
		}
	}
	return errWire
}

func (c *cursor) varint(end int) (v uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		if c.at >= end {
			return 0, errWire
		}
		b := c.next()[0]
		c.skip(1)
		if shift == 63 && b > 1 {
			return 0, errWire
		}
		if v |= uint64(b&0x7f) << shift; b < 0x80 {
			return v, nil
		}
	}
	return 0, errWire
}

// next returns the unread part of the buffer that contains the next byte.
func (c *cursor) next() []byte {
	for {
		if b := c.bufs[0].ReadOnlyData(); c.off < len(b) {
			return b[c.off:]
		}
		c.bufs, c.off = c.bufs[1:], 0
	}
}

func (c *cursor) skipWithin(n, end int) error {
	if n > end-c.at {
		return errWire
	}
	c.skip(n)
	return nil
}

func (c *cursor) skip(n int) {
	c.at += n
	for n > 0 {
		step := min(n, len(c.next()))
		c.off += step
		n -= step
	}
}

func (c *cursor) appendTo(b []byte, n int) []byte {
	for n > 0 {
		part := c.next()
		part = part[:min(n, len(part))]
		b = append(b, part...)
		c.skip(len(part))
		n -= len(part)
	}
	return b
}

// text returns the next n bytes as a string. Names and versions repeat, so equal texts share one string.
func (c *cursor) text(n int) string {
	if n == 0 {
		return ""
	}
	if b := c.next(); len(b) >= n {
		c.skip(n)
		return unique.Make(string(b[:n])).Value()
	}
	return unique.Make(string(c.appendTo(nil, n))).Value()
}
