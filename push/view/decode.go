package view

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/protowalk"
)

// A node is decoded in place, without generated protobuf messages. Messages would need about 150 objects and 8 KB of
// memory for each proxy, and further memory for the extensions of a stock Envoy.

// Field numbers of core.v3.Node and core.v3.Extension, and of google.protobuf's Struct (a map, so its entries have
// field numbers too), Value and ListValue.
const (
	nodeID, nodeCluster, nodeMetadata, nodeLocality, nodeExtensions = 1, 2, 3, 4, 9

	localityRegion, localityZone, localitySubZone = 1, 2, 3 // of core.v3.Locality

	extensionName = 1

	structFields, entryKey, entryValue = 1, 1, 2

	valueNull, valueNumber, valueString, valueBool, valueStruct, valueList = 1, 2, 3, 4, 5, 6

	listValues = 1
)

// wire contains those fields of a node that this package uses, in encoded form. Its slices share the memory of the
// encoded node.
type wire struct {
	id, cluster []byte
	locality    [][]byte // encoded Localities, to be merged
	metadata    [][]byte // encoded Structs: one, or several to be merged
	listed      bool     // the node lists extensions
	caps        xds.Caps // the capabilities of the listed extensions
	build       []byte   // encoded BuildVersion of the node's Envoy
}

// deepest is the maximum depth of nested objects and lists.
const deepest = 10_000

// field decodes the first field of b. The result rest has the bytes after the field. The result body is nil if the
// field is not length-delimited. The error wraps the error of protowire. The parameter what is the name of the
// enclosing message, for the error.
func field(b []byte, what string) (number protowire.Number, kind protowire.Type, body, rest []byte, err error) {
	f, n := protowalk.Next(b)
	switch {
	case n < 0 && f.Number == 0:
		return 0, 0, nil, nil, fmt.Errorf("%s: not protobuf: %w", what, protowire.ParseError(n))
	case n < 0:
		return 0, 0, nil, nil, fmt.Errorf("%s: field %d: not protobuf: %w", what, f.Number, protowire.ParseError(n))
	}
	return f.Number, f.Type, f.Bytes, b[n:], nil
}

// notText returns the error for a string that is not UTF-8.
func notText(what string, b []byte) error { return fmt.Errorf("%s: not UTF-8: %.40q", what, b) }

// read locates the used fields of an encoded node and skips all others.
func read(raw []byte) (w wire, err error) {
	for len(raw) > 0 {
		var number protowire.Number
		var body []byte
		if number, _, body, raw, err = field(raw, "node"); err != nil {
			return w, err
		}
		if body == nil {
			continue
		}
		switch number {
		case nodeID:
			if w.id = body; !utf8.Valid(body) {
				return w, notText("node.id", body)
			}
		case nodeCluster:
			if w.cluster = body; !utf8.Valid(body) {
				return w, notText("node.cluster", body)
			}
		case nodeLocality:
			w.locality = append(w.locality, body)
		case nodeMetadata:
			w.metadata = append(w.metadata, body)
		case nodeAgentBuild:
			w.build = body
		case nodeExtensions:
			w.listed = true
			w.caps |= capOf(body)
		}
	}
	return w, nil
}

// locality decodes and merges core.v3.Localities. It returns region/zone/sub-zone without empty parts at the end. It
// fails for malformed protobuf. It also fails for a part that is not UTF-8, contains a slash or is too long, and the
// error then quotes this part.
func locality(encoded [][]byte) (string, error) {
	var parts [3][]byte
	for _, b := range encoded {
		for len(b) > 0 {
			number, _, body, rest, err := field(b, "node.locality")
			if err != nil {
				return "", err
			}
			if body != nil && number >= localityRegion && number <= localitySubZone {
				if !utf8.Valid(body) || bytes.ContainsRune(body, '/') || len(body) > longest {
					return "", fmt.Errorf("node.locality: %.40q: want a name without a slash, of %d bytes at most", body, longest)
				}
				parts[number-1] = body
			}
			b = rest
		}
	}
	return words.of([]byte(joinLocality(string(parts[0]), string(parts[1]), string(parts[2])))), nil
}

// joinLocality joins region, zone and sub-zone with slashes, without empty parts at the end.
func joinLocality(parts ...string) string { return strings.TrimRight(strings.Join(parts, "/"), "/") }

// ID returns the id of an encoded core.v3.Node, or "" if the node has no id. It fails if the node is malformed
// protobuf, or if its id or cluster is not UTF-8. Other fields are not validated. If ID fails, the returned text must
// not be used.
func ID(raw []byte) (string, error) {
	w, err := read(raw)
	return string(w.id), err
}

// capOf returns the capability of one encoded core.v3.Extension. It returns 0 for an unknown or malformed extension.
func capOf(extension []byte) (caps xds.Caps) {
	for len(extension) > 0 {
		number, _, body, rest, err := field(extension, "node.extensions")
		if err != nil {
			return 0
		}
		if number == extensionName && body != nil {
			caps = xds.CapOf(borrow(body))
		}
		extension = rest
	}
	return caps
}

// value is a decoded google.protobuf.Value, reduced to the parts that are used.
type value struct {
	kind   protowire.Number // the field that is set; 0 if no field is set
	text   []byte           // the bytes of a string
	fields [][]byte         // the encoded Structs of an object, to be merged
}

// merge decodes one encoded part of a Value into v. Parts of the same Value are merged as in protobuf. The whole part
// is validated.
func (v *value) merge(raw []byte, what string, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s: too deep", what)
	}
	for len(raw) > 0 {
		number, kind, body, rest, err := field(raw, what)
		if err != nil {
			return err
		}
		raw = rest
		switch {
		case number == valueNull && kind == protowire.VarintType, number == valueBool && kind == protowire.VarintType,
			number == valueNumber && kind == protowire.Fixed64Type:
			*v = value{kind: number}
		case body == nil: // not a field of a Value
		case number == valueString:
			if !utf8.Valid(body) {
				return notText(what, body)
			}
			*v = value{kind: number, text: body}
		case number == valueStruct:
			if v.kind != number {
				*v = value{kind: number}
			}
			v.fields = append(v.fields, body)
			err = entries(body, what, depth, nil)
		case number == valueList:
			*v = value{kind: number}
			err = checkList(body, what, depth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entries passes every entry of an encoded Struct to the function visit, in the order of the encoding. If a key occurs
// more than once, the caller must use the last entry. If visit is nil, the Struct is only validated.
func entries(raw []byte, what string, depth int, visit func(key []byte, v value)) error {
	for len(raw) > 0 {
		number, _, entry, rest, err := field(raw, what)
		if err != nil {
			return err
		}
		if raw = rest; number != structFields || entry == nil {
			continue
		}
		var key []byte
		var v value
		for len(entry) > 0 {
			number, _, body, rest, err := field(entry, what)
			if err != nil {
				return err
			}
			switch entry = rest; {
			case body == nil:
			case number == entryKey:
				if key = body; !utf8.Valid(key) {
					return notText(what, key)
				}
			case number == entryValue:
				if err := v.merge(body, what, depth+1); err != nil {
					return err
				}
			}
		}
		if visit != nil {
			visit(key, v)
		}
	}
	return nil
}

// checkList validates an encoded ListValue.
func checkList(raw []byte, what string, depth int) error {
	for len(raw) > 0 {
		number, _, body, rest, err := field(raw, what)
		if err != nil {
			return err
		}
		if raw = rest; number == listValues && body != nil {
			var v value
			if err := v.merge(body, what, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// null reports whether the value is unset or null.
func (v value) null() bool { return v.kind == 0 || v.kind == valueNull }

// describe names the type of the value, for errors.
func (v value) describe() string {
	switch v.kind {
	case valueNumber:
		return "a number"
	case valueBool:
		return "a boolean"
	case valueStruct:
		return "an object"
	case valueList:
		return "a list"
	case valueString:
		return "a string"
	}
	return "nothing"
}

// borrow returns a string that shares the memory of b. The string is valid while b is unchanged.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// words interns strings that many nodes share: keys, labels, namespaces.
var words = vocabulary{most: 8192}

// vocabulary interns strings: it returns one shared string for equal bytes. When it is full, it drops all entries. It
// is safe for concurrent use.
type vocabulary struct {
	most int

	mu    sync.Mutex // guards known; no other lock is acquired while mu is held
	known map[string]string
}

// longestWord is the maximum length in bytes of an interned string.
const longestWord = 128

// of returns the interned string with the bytes of b. A string that is longer than longestWord is copied, but not
// interned.
func (v *vocabulary) of(b []byte) string {
	if len(b) > longestWord {
		return string(b)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.known[string(b)]; ok {
		return s
	}
	if len(v.known) >= v.most {
		clear(v.known)
	}
	if v.known == nil {
		v.known = map[string]string{}
	}
	s := strings.Clone(borrow(b))
	v.known[s] = s
	return s
}
