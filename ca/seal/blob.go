package seal

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Every sealed blob begins with magic and format. The associated data contains the format too. So a blob whose format
// byte was changed cannot be decrypted.
const (
	magic  = "NVSL"
	format = 1
	// maxPart is the maximum length of each part (length-prefixed field) of a blob, in bytes. Sealed secrets are far
	// smaller, and an allocation of this size is harmless.
	maxPart = 16 << 20
)

// blob is a decoded sealed blob. Its encoding consists of magic, format, provider, key id, annotations, wrapped data
// key, and ciphertext, in this order. The provider, the key id, the wrapped data key and the ciphertext are parts. A
// part begins with its length in four bytes (big endian). The annotations begin with their number in four bytes. Two
// parts follow for each annotation, its name and its value. Annotations are sorted by name. A blob has exactly one
// encoding, and no bytes follow it.
type blob struct {
	provider   string
	wrapped    Wrapped
	ciphertext []byte
}

func appendPart[T string | []byte](b []byte, part T) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
	return append(b, part...)
}

// header returns the encoded blob without its ciphertext.
func (b *blob) header() []byte {
	out := append([]byte(magic), format)
	out = appendPart(out, b.provider)
	out = appendPart(out, b.wrapped.KeyID)
	out = binary.BigEndian.AppendUint32(out, uint32(len(b.wrapped.Annotations)))
	for _, name := range slices.Sorted(maps.Keys(b.wrapped.Annotations)) {
		out = appendPart(out, name)
		out = appendPart(out, b.wrapped.Annotations[name])
	}
	return appendPart(out, b.wrapped.Data)
}

func (b *blob) encode() []byte { return appendPart(b.header(), b.ciphertext) }

// parts reads length-prefixed parts. The field err is set at the first part that is truncated or too long. From then on
// all parts are empty.
type parts struct {
	rest []byte
	err  error
}

// number reads the length of a part, or the number of annotations.
func (p *parts) number() int {
	if p.err == nil && len(p.rest) < 4 {
		p.err = fmt.Errorf("%w: cut short", ErrTampered)
	}
	if p.err != nil {
		return 0
	}
	n := binary.BigEndian.Uint32(p.rest)
	p.rest = p.rest[4:]
	if n > maxPart {
		p.err = fmt.Errorf("%w: a part of %d bytes", ErrTampered, n)
		return 0
	}
	return int(n)
}

// next reads a part. The result shares memory with the input; it is nil after an error.
func (p *parts) next() []byte {
	n := p.number()
	if p.err == nil && len(p.rest) < n {
		p.err = fmt.Errorf("%w: cut short", ErrTampered)
	}
	if p.err != nil {
		return nil
	}
	part := p.rest[:n:n]
	p.rest = p.rest[n:]
	return part
}

// decode parses a blob. The result shares memory with raw. The error matches ErrNewer if the format is newer than this
// build reads. Any other error matches ErrTampered.
func decode(raw []byte) (*blob, error) {
	if len(raw) < len(magic)+1 || string(raw[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not begin like a sealed blob", ErrTampered)
	}
	if stated := raw[len(magic)]; stated > format {
		return nil, fmt.Errorf("the sealed blob %w: format %d, this build reads %d", ErrNewer, stated, format)
	} else if stated < format {
		return nil, fmt.Errorf("%w: format %d, this build reads %d", ErrTampered, stated, format)
	}
	p := parts{rest: raw[len(magic)+1:]}
	b := &blob{provider: string(p.next())}
	b.wrapped.KeyID = string(p.next())
	last := ""
	for i := range p.number() {
		name, value := string(p.next()), p.next()
		if p.err != nil {
			break
		}
		if i > 0 && name <= last {
			return nil, fmt.Errorf("%w: annotations out of order", ErrTampered)
		}
		if b.wrapped.Annotations == nil {
			b.wrapped.Annotations = map[string][]byte{}
		}
		b.wrapped.Annotations[name], last = value, name
	}
	b.wrapped.Data = p.next()
	b.ciphertext = p.next()
	if p.err != nil {
		return nil, p.err
	}
	if len(p.rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the end", ErrTampered, len(p.rest))
	}
	return b, nil
}

// associated returns the associated data of the ciphertext: a fixed text, the format, the blob's header, and the
// Context.
func associated(header []byte, about Context) []byte {
	out := append([]byte("navarch.io/seal"), format)
	out = appendPart(out, header)
	out = appendPart(out, about.Mesh)
	out = appendPart(out, about.TrustDomain)
	out = binary.BigEndian.AppendUint64(out, about.Epoch)
	out = appendPart(out, about.KeyID)
	return appendPart(out, about.Purpose)
}
