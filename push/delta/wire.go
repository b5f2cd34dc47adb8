package delta

import (
	"fmt"
	"iter"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/xds"
)

// Message is a request as it came from the wire. Its strings and bytes are slices of the raw message: they live as long
// as that.
type Message struct {
	Request
	TypeURL string
	Node    []byte // an encoded core.v3.Node; nil: none
}

// Field numbers of envoy.service.discovery.v3 (discovery.proto).
const (
	deltaNode, deltaType, deltaSubscribe, deltaUnsubscribe, deltaInitial, deltaNonce, deltaError = 1, 2, 3, 4, 5, 6, 7

	worldVersion, worldNode, worldNames, worldType, worldNonce, worldError = 1, 2, 3, 4, 5, 6
)

// ParseDelta reads a DeltaDiscoveryRequest without making objects of what it lists. Unknown fields are skipped.
func ParseDelta(raw []byte) (Message, error) {
	var m Message
	err := walk(raw, "request", func(field protowire.Number, value []byte) error {
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
			return name(value, "resource_names_subscribe")
		case deltaUnsubscribe:
			return name(value, "resource_names_unsubscribe")
		case deltaInitial:
			_, _, err := entry(value)
			return err
		}
		return nil
	})
	m.Type = xds.ParseURL(m.TypeURL)
	m.Subscribe, m.Unsubscribe = list(raw, deltaSubscribe), list(raw, deltaUnsubscribe)
	m.Initial = func(yield func(string, string) bool) {
		for value := range fields(raw, deltaInitial) {
			if key, version, err := entry(value); err != nil || !yield(key, version) {
				return
			}
		}
	}
	return m, err
}

// ParseWorld reads a state-of-the-world DiscoveryRequest.
func ParseWorld(raw []byte) (Message, error) {
	var m Message
	err := walk(raw, "request", func(field protowire.Number, value []byte) error {
		switch field {
		case worldVersion:
			return text(&m.Version, value, "version_info")
		case worldNode:
			m.Node = value
		case worldType:
			return text(&m.TypeURL, value, "type_url")
		case worldNonce:
			return text(&m.Nonce, value, "response_nonce")
		case worldError:
			return m.failure(value)
		case worldNames:
			return name(value, "resource_names")
		}
		return nil
	})
	m.Type = xds.ParseURL(m.TypeURL)
	m.Subscribe = list(raw, worldNames)
	return m, err
}

// failure reads a google.rpc.Status.
func (m *Message) failure(status []byte) error {
	m.Failed = true
	return walk(status, "error_detail", func(field protowire.Number, value []byte) error {
		if field == 2 {
			m.Error = borrow(value) // Envoy's words may be cut in the middle of a rune
		}
		return nil
	})
}

// name checks one listed name.
func name(value []byte, field string) error {
	var s string
	return text(&s, value, field)
}

// entry reads one entry of initial_resource_versions.
func entry(value []byte) (key, version string, err error) {
	err = walk(value, "initial_resource_versions", func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			return text(&key, value, "initial_resource_versions")
		case 2:
			return text(&version, value, "initial_resource_versions")
		}
		return nil
	})
	return key, version, err
}

// text sets a string field. Protobuf strings are UTF-8.
func text(to *string, value []byte, field string) error {
	if !utf8.Valid(value) {
		return fmt.Errorf("%s is not UTF-8: %.40q", field, value)
	}
	*to = borrow(value)
	return nil
}

func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// list iterates over a repeated string of a message that was walked without error.
func list(raw []byte, number protowire.Number) iter.Seq[string] {
	return func(yield func(string) bool) {
		for value := range fields(raw, number) {
			if !yield(borrow(value)) {
				return
			}
		}
	}
}

// fields iterates over one length-delimited field of a message that was walked without error.
func fields(raw []byte, number protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(raw) > 0 {
			num, kind, n := protowire.ConsumeTag(raw)
			if n < 0 {
				return
			}
			size := protowire.ConsumeFieldValue(num, kind, raw[n:])
			if size < 0 {
				return
			}
			if num == number && kind == protowire.BytesType {
				if value, _ := protowire.ConsumeBytes(raw[n:]); !yield(value) {
					return
				}
			}
			raw = raw[n+size:]
		}
	}
}

// walk calls visit with every length-delimited field, in the order of the wire.
func walk(raw []byte, what string, visit func(protowire.Number, []byte) error) error {
	for len(raw) > 0 {
		num, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return fmt.Errorf("%s is not protobuf: %w", what, protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(num, kind, raw[n:])
		if size < 0 {
			return fmt.Errorf("%s is not protobuf: field %d: %w", what, num, protowire.ParseError(size))
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(raw[n:])
			if err := visit(num, value); err != nil {
				return err
			}
		}
		raw = raw[n+size:]
	}
	return nil
}
