package delta

import (
	"encoding/binary"
	"fmt"
	"iter"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/protowalk"
)

// Message is a parsed request. Its strings, bytes and sequences refer to the raw message, and are valid as long as the
// raw message is unchanged.
type Message struct {
	Request
	TypeURL string // for a URL that is not Envoy's, Request.Type is xds.Unknown, and the caller may set a dynamic type
	Node    []byte // an encoded core.v3.Node, not validated; nil: the request has no node
}

// These are field numbers of envoy.service.discovery.v3 (discovery.proto).
const (
	deltaNode, deltaType, deltaSubscribe, deltaUnsubscribe, deltaInitial, deltaNonce, deltaError = 1, 2, 3, 4, 5, 6, 7

	sotwVersion, sotwNode, sotwNames, sotwType, sotwNonce, sotwError = 1, 2, 3, 4, 5, 6
)

// ParseDelta parses a DeltaDiscoveryRequest. The parameter raw contains the message in pieces. ParseDelta may change
// the slice raw, but not the bytes. A list that the message does not have is nil in the result. Unknown fields are
// skipped. ParseDelta returns an error if the message is malformed, or if the type URL, the nonce, a name or a version
// is not UTF-8. With an error, the Message is incomplete.
func ParseDelta(raw ...[]byte) (Message, error) {
	m := Message{Request: Request{digested: true}}
	var lists [deltaError + 1]bool // by field: the list exists
	whole, err := walk(raw, "request", func(field protowire.Number, value []byte) error {
		if field < protowire.Number(len(lists)) {
			lists[field] = true
		}
		switch field {
		case deltaNode:
			m.Node = value
		case deltaType:
			return text(&m.TypeURL, value, "type_url")
		case deltaNonce:
			return text(&m.Nonce, value, "response_nonce")
		case deltaError:
			return m.failure(value)
		case deltaSubscribe:
			return m.asks(value, "resource_names_subscribe")
		case deltaUnsubscribe:
			return name(value, "resource_names_unsubscribe")
		case deltaInitial:
			key, version, err := entry(value)
			if err == nil {
				m.initialSum.Add(key, version)
			}
			return err
		}
		return nil
	})
	m.Type = xds.ParseURL(m.TypeURL)
	if lists[deltaSubscribe] {
		m.Subscribe = list(whole, deltaSubscribe)
	}
	if lists[deltaUnsubscribe] {
		m.Unsubscribe = list(whole, deltaUnsubscribe)
	}
	if lists[deltaInitial] {
		m.Initial = initial(whole)
	}
	return m, err
}

// initial returns a sequence of the names and versions in initial_resource_versions. The function walk must have
// accepted the message.
func initial(whole [][]byte) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for value := range fields(whole, deltaInitial) {
			if key, version, err := entry(value); err != nil || !yield(key, version) {
				return
			}
		}
	}
}

// ParseSotW parses a state-of-the-world DiscoveryRequest. Its argument and its errors are those of ParseDelta. In the
// result, Subscribe is never nil, and Unsubscribe and Initial are always nil.
func ParseSotW(raw ...[]byte) (Message, error) {
	m := Message{Request: Request{digested: true}}
	whole, err := walk(raw, "request", func(field protowire.Number, value []byte) error {
		switch field {
		case sotwVersion:
			return text(&m.Version, value, "version_info")
		case sotwNode:
			m.Node = value
		case sotwType:
			return text(&m.TypeURL, value, "type_url")
		case sotwNonce:
			return text(&m.Nonce, value, "response_nonce")
		case sotwError:
			return m.failure(value)
		case sotwNames:
			return m.asks(value, "resource_names")
		}
		return nil
	})
	m.Type = xds.ParseURL(m.TypeURL)
	m.Subscribe = list(whole, sotwNames)
	return m, err
}

// asks validates one subscribed name and adds it to the digest of names.
func (r *Request) asks(value []byte, field string) error {
	err := name(value, field)
	if err == nil {
		r.ask(borrow(value))
	}
	return err
}

// failure parses the google.rpc.Status of a NACK.
func (m *Message) failure(status []byte) error {
	m.Failed = true
	return visit(status, "error_detail", func(field protowire.Number, value []byte) error {
		if field == 2 {
			m.Error = borrow(value) // Envoy's message may be cut in the middle of a rune
		}
		return nil
	})
}

// name validates one listed name.
func name(value []byte, field string) error {
	var s string
	return text(&s, value, field)
}

// entry parses one entry of initial_resource_versions.
func entry(value []byte) (key, version string, err error) {
	const what = "initial_resource_versions"
	if key, version, ok := usual(value); ok {
		return key, version, nil
	}
	for len(value) > 0 {
		f, n := protowalk.Next(value)
		number, part := f.Number, f.Bytes
		switch {
		case n < 0:
			return "", "", notProtobuf(what, n)
		case number != 1 && number != 2 || part == nil:
		case !utf8.Valid(part):
			return "", "", notText(what, part)
		case number == 1:
			key = borrow(part)
		default:
			version = borrow(part)
		}
		value = value[n:]
	}
	return key, version, nil
}

// usual parses an entry of the common form: a key, then a version, both in ASCII and shorter than 128 bytes. It returns
// false for other forms.
func usual(value []byte) (key, version string, ok bool) {
	const keyTag, versionTag = 1<<3 | byte(protowire.BytesType), 2<<3 | byte(protowire.BytesType)
	if len(value) < 4 || value[0] != keyTag || !ascii(value) { // ASCII also means that lengths have one byte
		return "", "", false
	}
	end := 2 + int(value[1])
	if end+2 > len(value) || value[end] != versionTag || end+2+int(value[end+1]) != len(value) {
		return "", "", false
	}
	return borrow(value[2:end]), borrow(value[end+2:]), true
}

// ascii reports whether all bytes are below 0x80. It compares eight bytes at a time, because a reconnecting proxy sends
// thousands of names and versions.
func ascii(b []byte) bool {
	const high = 0x8080808080808080
	for ; len(b) >= 16; b = b[16:] {
		if (binary.LittleEndian.Uint64(b)|binary.LittleEndian.Uint64(b[8:16]))&high != 0 {
			return false
		}
	}
	if len(b) >= 8 {
		return (binary.LittleEndian.Uint64(b)|binary.LittleEndian.Uint64(b[len(b)-8:]))&high == 0
	}
	var all byte
	for _, c := range b {
		all |= c
	}
	return all < 0x80
}

// text sets *to to a string that refers to value. It fails if value is not UTF-8.
func text(to *string, value []byte, field string) error {
	if !ascii(value) && !utf8.Valid(value) {
		return notText(field, value)
	}
	*to = borrow(value)
	return nil
}

// notText returns the error for a string field that is not UTF-8.
func notText(field string, value []byte) error {
	return fmt.Errorf("%s is not UTF-8: %.40q", field, value)
}

// borrow returns a string that refers to b.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// list returns a sequence of the elements of a repeated string. The function walk must have accepted the message.
func list(whole [][]byte, number protowire.Number) iter.Seq[string] {
	return func(yield func(string) bool) {
		for value := range fields(whole, number) {
			if !yield(borrow(value)) {
				return
			}
		}
	}
}
