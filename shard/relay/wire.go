package relay

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// This file makes and changes messages. A changed field is appended, because the last occurrence of a field counts
// (https://protobuf.dev/programming-guides/encoding/#last-one-wins). Other fields pass unchanged.

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func message(b []byte) mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(b)} }

// amend appends a text field to a message, without a copy of the message.
func amend(data mem.BufferSlice, field protowire.Number, s string) mem.BufferSlice {
	return append(data[:len(data):len(data)], mem.SliceBuffer(appendText(nil, field, s)))
}

// withoutNonce removes the nonce and the error from a request. The result answers no response, but has the request's
// subscriptions. withoutNonce frees data.
func withoutNonce(data mem.BufferSlice) mem.BufferSlice {
	raw := data.Materialize()
	data.Free()
	kept := make([]byte, 0, len(raw))
	for rest := raw; len(rest) > 0; {
		field, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return message(raw) // impossible: the message was scanned before
		}
		if field != requestNonce && field != requestError {
			kept = append(kept, rest[:n]...)
		}
		rest = rest[n:]
	}
	return message(kept)
}

// encodeFirst encodes the first request for a type on an upstream connection. The parameter node is the encoded node
// field, or nil for a request without a node. The parameter initial has the names and versions of the resources that
// Envoy has.
func encodeFirst(node []byte, typeURL string, names []string, initial []named) mem.BufferSlice {
	b := append([]byte(nil), node...)
	b = appendText(b, requestType, typeURL)
	for _, name := range names {
		b = appendText(b, requestSubscribe, name)
	}
	var entry []byte
	for _, r := range initial {
		entry = appendText(appendText(entry[:0], 1, r.name), 2, r.version)
		b = protowire.AppendBytes(protowire.AppendTag(b, requestInitial, protowire.BytesType), entry)
	}
	return message(b)
}

// encodeAnswer encodes an ACK if err is nil. If err is not nil, it encodes a NACK with the error's text.
func encodeAnswer(typeURL, nonce string, err error) mem.BufferSlice {
	b := appendText(appendText(nil, requestType, typeURL), requestNonce, nonce)
	if err != nil {
		detail := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(codes.InvalidArgument))
		detail = appendText(detail, 2, err.Error())
		b = protowire.AppendBytes(protowire.AppendTag(b, requestError, protowire.BytesType), detail)
	}
	return message(b)
}
