package report

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/cut"
)

// Sets collects the sets of resources that proxies have. Each resource, and each list of resources, is stored once.
// The zero Sets is empty and ready for use, by one goroutine at a time.
type Sets struct {
	resources []*xds.Resource
	ids       map[*xds.Resource]uint64
	lists     [][]byte // encoded
	listIDs   map[string]uint64
	rows      [][xds.NumTypes]uint64
}

// Add adds the resources of one proxy, and returns the number of its set. The numbers count the calls from 0. Sets
// retains the resources, but not the slices. The resources must not change. Resources are compared by pointer.
func (s *Sets) Add(held inspect.Resources) int {
	if s.ids == nil {
		s.ids, s.listIDs = map[*xds.Resource]uint64{}, map[string]uint64{}
	}
	var row [xds.NumTypes]uint64
	for t, of := range held {
		var list []byte
		last := int64(-1)
		for _, r := range of {
			id, known := s.ids[r]
			if !known {
				id = uint64(len(s.resources))
				s.ids[r], s.resources = id, append(s.resources, r)
			}
			list = binary.AppendVarint(list, int64(id)-last) // mostly 1
			last = int64(id)
		}
		at, known := s.listIDs[string(list)]
		if !known {
			at = uint64(len(s.lists))
			s.listIDs[string(list)], s.lists = at, append(s.lists, list)
		}
		row[t] = at
	}
	s.rows = append(s.rows, row)
	return len(s.rows) - 1
}

// Len returns the number of sets, which is the number of calls of Add.
func (s *Sets) Len() int { return len(s.rows) }

// encode returns the content of the archive's entry held.bin. Credentials in it are replaced (store/cut). The error
// reports a resource that cannot be decoded or encoded.
func (s *Sets) encode() ([]byte, error) {
	out := binary.AppendUvarint(nil, uint64(len(s.resources)))
	for _, r := range s.resources {
		body, err := publicBody(r)
		if err != nil {
			return nil, err
		}
		out = append(out, byte(r.Type))
		for _, part := range [][]byte{[]byte(r.Name), []byte(r.Version), body} {
			out = append(binary.AppendUvarint(out, uint64(len(part))), part...)
		}
	}
	out = binary.AppendUvarint(out, uint64(len(s.lists)))
	for _, list := range s.lists {
		out = append(binary.AppendUvarint(out, uint64(len(list))), list...)
	}
	out = binary.AppendUvarint(out, uint64(len(s.rows)))
	for _, row := range s.rows {
		for _, id := range row {
			out = binary.AppendUvarint(out, id)
		}
	}
	return out, nil
}

// publicBody returns the body of a resource without keys and credentials.
func publicBody(r *xds.Resource) ([]byte, error) {
	body := r.Body()
	if r.Type != xds.Secret && !r.Confidential && !cut.Suspects(body) {
		return body, nil
	}
	m, err := inspect.Message(r)
	if err != nil {
		return nil, err
	}
	if !cut.Message(m) && r.Type != xds.Secret && !r.Confidential {
		return body, nil
	}
	return encoding.Marshal(m)
}

// Held is a decoded archive entry held.bin. The zero Held has no sets. A set stays encoded until the method Set decodes
// it.
type Held struct {
	resources []*xds.Resource
	lists     [][]byte
	rows      [][xds.NumTypes]uint64
}

// maxPart is the maximum size in bytes of a resource's name, of its version, of its body, and of a list.
const maxPart = 64 << 20

// cursor decodes numbers and byte strings from a stream. After its first error it decodes nothing more: numbers are 0
// and byte strings are nil.
type cursor struct {
	r    *bufio.Reader
	left int64 // bytes
	err  error
}

// ReadByte implements io.ByteReader.
func (c *cursor) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.left--
	}
	return b, err
}

func (c *cursor) number(most uint64, what string) uint64 {
	if c.err != nil {
		return 0
	}
	n, err := binary.ReadUvarint(c)
	switch {
	case err != nil:
		c.err = fmt.Errorf("%s: the content ends early", what)
		return 0
	case n > most:
		c.err = fmt.Errorf("%s: %d, at most %d", what, n, most)
		return 0
	}
	return n
}

// count decodes a number of elements. It subtracts the number from *left, which limits the elements in the rest of the
// archive. Each element has at least as many bytes as the argument size states.
func (c *cursor) count(left *int, size int64, what string) int {
	n := int(c.number(uint64(max(*left, 0)), what)) // #nosec G115 -- at most *left
	if int64(n) > c.left/size {
		c.err = fmt.Errorf("%s: the content ends early", what)
		return 0
	}
	*left -= n
	return n
}

// part decodes a length, and then that many bytes. It allocates memory only as bytes are read.
func (c *cursor) part(what string) []byte {
	n := c.number(maxPart, what)
	if c.err != nil || n == 0 {
		return nil
	}
	if int64(n) > c.left { // #nosec G115 -- at most maxPart
		c.err = fmt.Errorf("%s: the content ends early", what)
		return nil
	}
	c.left -= int64(n) // #nosec G115 -- as above
	part := make([]byte, min(n, 1<<20))
	_, c.err = io.ReadFull(c.r, part)
	for c.err == nil && uint64(len(part)) < n {
		at := len(part)
		part = append(part, make([]byte, min(n-uint64(at), uint64(at)))...)
		_, c.err = io.ReadFull(c.r, part[at:])
	}
	return part
}

// decodeHeld decodes the entry held.bin, which has the given size in bytes. It subtracts the numbers of resources,
// lists and sets from the limits. The error reports an exceeded bound, damage or a failed read.
func decodeHeld(r io.Reader, size int64, limits *Limits) (h Held, err error) {
	c := &cursor{r: bufio.NewReader(r), left: size}
	for range c.count(&limits.Resources, 4, "resources") {
		kind, err := c.ReadByte()
		if err != nil {
			return h, errors.Join(c.err, errors.New("resources: the content ends early"))
		}
		name, version, body := c.part("name"), c.part("version"), c.part("body")
		if c.err != nil {
			return h, c.err
		}
		if xds.Type(kind) >= xds.NumTypes {
			return h, fmt.Errorf("resource %.80q: unknown type %d", name, kind)
		}
		h.resources = append(h.resources, xds.Restored(xds.Type(kind), string(name), string(version), body))
	}
	for range c.count(&limits.Lists, 1, "lists") {
		if h.lists = append(h.lists, c.part("list")); c.err != nil {
			return h, c.err
		}
	}
	for range c.count(&limits.Sets, int64(xds.NumTypes), "sets") {
		var row [xds.NumTypes]uint64
		for t := range row {
			row[t] = c.number(uint64(max(len(h.lists), 1))-1, "set")
		}
		if h.rows = append(h.rows, row); c.err != nil {
			return h, c.err
		}
	}
	if c.err == nil && c.left > 0 {
		c.err = fmt.Errorf("%d bytes too many", c.left)
	}
	return h, c.err
}

// Len returns the number of sets.
func (h *Held) Len() int { return len(h.rows) }

// Set returns the resources of a set, in the order in which they were added. The argument is the result of Sets.Add. ok
// is false if the set does not exist or is damaged. The result held of a damaged set may be incomplete. The resources
// are shared between sets and must not be changed, but the slices belong to the caller.
func (h *Held) Set(number int) (held inspect.Resources, ok bool) {
	if number < 0 || number >= len(h.rows) {
		return held, false
	}
	for t, at := range h.rows[number] {
		if at >= uint64(len(h.lists)) {
			return held, false
		}
		last := int64(-1)
		for list := h.lists[at]; len(list) > 0; {
			step, n := binary.Varint(list)
			if n <= 0 {
				return held, false
			}
			list = list[n:]
			if last += step; last < 0 || last >= int64(len(h.resources)) || h.resources[last].Type != xds.Type(t) {
				return held, false
			}
			if len(held[t]) == len(h.resources) { // a resource occurs twice
				return held, false
			}
			held[t] = append(held[t], h.resources[last])
		}
	}
	return held, true
}
