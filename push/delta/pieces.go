package delta

import (
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/store/protowalk"
)

// A message arrives in the pieces that the transport has read. The pieces are not joined. Only a field that crosses
// pieces is copied.

// notProtobuf returns the error for code, a negative length that protowire returned. The argument what names the part
// of the message.
func notProtobuf(what string, code int) error {
	return fmt.Errorf("%s is not protobuf: %w", what, protowire.ParseError(code))
}

// visit calls the function do with every length-delimited field of a message, in the order of the wire.
func visit(b []byte, what string, do func(protowire.Number, []byte) error) error {
	_, err := walk([][]byte{b}, what, do)
	return err
}

// walk does the same as visit for a message in pieces. It may change the slice pieces. The result whole is the message
// in new pieces, so that no field crosses a boundary. If walk fails, whole ends before the faulty field.
func walk(pieces [][]byte, what string, do func(protowire.Number, []byte) error) (whole [][]byte, err error) {
	whole = make([][]byte, 0, 2*len(pieces))
	for len(pieces) > 0 {
		b, rest := pieces[0], pieces[0]
		for len(rest) > 0 {
			if number, from, end := protowalk.Short(rest); end > 0 { // a reconnecting proxy sends thousands of these
				if err := do(number, rest[from:end:end]); err != nil {
					return whole, err
				}
				rest = rest[end:]
				continue
			}
			f, n := protowalk.Next(rest)
			if n < 0 && len(pieces) > 1 {
				break // the missing part may be in the next piece
			}
			if n < 0 {
				return whole, notProtobuf(what, n)
			}
			if f.Bytes != nil {
				if err := do(f.Number, f.Bytes); err != nil {
					return whole, err
				}
			}
			rest = rest[n:]
		}
		if n := len(b) - len(rest); n > 0 {
			whole = append(whole, b[:n:n])
		}
		if len(rest) == 0 {
			pieces = pieces[1:]
			continue
		}
		pieces[0] = rest
		if pieces, err = bridge(pieces); err != nil {
			return whole, fmt.Errorf("%s is not protobuf: %w", what, err)
		}
	}
	return whole, nil
}

// errCut is the error for a message whose last field is incomplete.
var errCut = errors.New("the message ends inside a field")

// bridge joins the parts of the first field into one piece, and returns the pieces. If the field is not
// length-delimited or is malformed, bridge joins all pieces. It returns errCut if the message ends inside of the field.
func bridge(pieces [][]byte) ([][]byte, error) {
	size, there := fieldSize(pieces), 0
	for _, p := range pieces {
		there += len(p)
	}
	if size > there {
		return nil, errCut
	}
	if size <= len(pieces[0]) {
		size = there
	}
	field := make([]byte, 0, size)
	for i, p := range pieces {
		n := min(size-len(field), len(p))
		if field = append(field, p[:n]...); n < len(p) {
			pieces[i-1], pieces[i] = field, p[n:]
			return pieces[i-1:], nil
		}
	}
	return [][]byte{field}, nil
}

// fieldSize returns the size in bytes of the length-delimited field at the beginning of the pieces, including its tag.
// It returns 0 for other fields and for a malformed field.
func fieldSize(pieces [][]byte) int {
	head := make([]byte, 0, 2*10) // two varints
	for _, p := range pieces {
		head = append(head, p[:min(len(p), cap(head)-len(head))]...)
	}
	_, kind, tag := protowire.ConsumeTag(head)
	if tag < 0 || kind != protowire.BytesType {
		return 0
	}
	size, n := protowire.ConsumeVarint(head[tag:])
	if n < 0 {
		return 0
	}
	return tag + n + int(min(size, 1<<40))
}

// fields returns a sequence of the values of one length-delimited field. The function walk must have accepted the
// message.
func fields(whole [][]byte, number protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, b := range whole {
			for len(b) > 0 {
				f, n := protowalk.Next(b)
				if n < 0 {
					return
				}
				if f.Number == number && f.Bytes != nil && !yield(f.Bytes) {
					return
				}
				b = b[n:]
			}
		}
	}
}
