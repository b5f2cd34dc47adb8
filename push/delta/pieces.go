package delta

import (
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// A message comes in the pieces that the transport read. It is not put together: only a field that lies across pieces is
// copied.

// next takes one field off b. value is set, and not nil, for length-delimited ones; n is the length of the field, or
// negative: protowire's code.
func next(b []byte) (number protowire.Number, value []byte, n int) {
	if len(b) > 2 && b[0] > 7 && b[0] < 0x80 && b[0]&7 == byte(protowire.BytesType) { // as almost all are: a short tag, less than 16 KB
		size, from := int(b[1]), 2
		if size >= 0x80 {
			size, from = size&0x7f|int(b[2])<<7, 3
		}
		if size < 1<<14 && from+size <= len(b) {
			return protowire.Number(b[0] >> 3), b[from : from+size : from+size], from + size
		}
	}
	number, kind, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return 0, nil, tag
	}
	if kind == protowire.BytesType {
		value, n := protowire.ConsumeBytes(b[tag:])
		if n < 0 {
			return 0, nil, n
		}
		return number, value[:len(value):len(value)], tag + n
	}
	if n = protowire.ConsumeFieldValue(number, kind, b[tag:]); n < 0 {
		return 0, nil, n
	}
	return number, nil, tag + n
}

func notProtobuf(what string, code int) error {
	return fmt.Errorf("%s is not protobuf: %w", what, protowire.ParseError(code))
}

// visit calls do with every length-delimited field of a message, in the order of the wire.
func visit(b []byte, what string, do func(protowire.Number, []byte) error) error {
	_, err := walk([][]byte{b}, what, do)
	return err
}

// walk is visit for a message in pieces; the list is used up. whole is the message once more, in pieces that begin and end
// with a field.
func walk(pieces [][]byte, what string, do func(protowire.Number, []byte) error) (whole [][]byte, err error) {
	whole = make([][]byte, 0, 2*len(pieces))
	for len(pieces) > 0 {
		b, rest := pieces[0], pieces[0]
		for len(rest) > 0 {
			number, value, n := next(rest)
			if n < 0 && len(pieces) > 1 {
				break // maybe what is missing is in the next piece
			}
			if n < 0 {
				return whole, notProtobuf(what, n)
			}
			if value != nil {
				if err := do(number, value); err != nil {
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

var errCut = errors.New("it ends inside of a field")

// bridge makes a piece of its own of the field that the first piece is the beginning of. Where its length does not stand at
// its beginning (groups, which no message of this protocol has), that is all that there is.
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

// fieldSize is the length of the length-delimited field that the pieces begin with, tag included; 0: it is none.
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

// fields iterates over one length-delimited field of a message that was walked without error.
func fields(whole [][]byte, number protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, b := range whole {
			for len(b) > 0 {
				num, value, n := next(b)
				if n < 0 {
					return
				}
				if num == number && value != nil && !yield(value) {
					return
				}
				b = b[n:]
			}
		}
	}
}
