package files

import (
	"bytes"
	"slices"
)

// plainJSON converts a YAML document that uses only a common subset of YAML. For such a document the result equals that
// of the YAML library, which takes more than ten times as long. It returns false for any other document, valid or not:
// the library converts it, or reports what is wrong.
//
// The subset is ASCII. It has block mappings and lists, mappings and lists in brackets on one line, strings in quotes
// without escapes, whole numbers, true, false, null, plain text on one line, and comments.
func plainJSON(data []byte) (tree []byte, is bool) {
	for _, c := range data {
		if (c < ' ' && c != '\n') || c >= 0x7f {
			return nil, false
		}
	}
	p := plain{text: data, out: make([]byte, 0, len(data)+len(data)/4), stack: make([]member, 0, 16)}
	p.line()
	if !p.block(p.column) || p.column >= 0 || p.out[0] != '{' {
		return nil, false
	}
	return p.out, true
}

// maxPlainDepth bounds the nesting of the documents that plainJSON converts. maxPlainKey bounds the length of their
// keys; the YAML library refuses longer ones.
const (
	maxPlainDepth = 100
	maxPlainKey   = 512
)

// plain is the state of plainJSON. Its methods that return a bool return false if the document is outside of the
// subset. Methods for a value append the JSON of the value to out.
type plain struct {
	text   []byte
	at     int // index of the next byte
	column int // column of the first character of the present line; -1 at the end of the text
	depth  int
	out    []byte
	spare  []byte   // for the members of a mapping in the order of their keys
	stack  []member // members of the mappings that are open
}

// member is a member of a mapping.
type member struct {
	key      []byte
	from, to int // indexes in plain.out of its JSON, from the key to the end of the value
}

// line moves to the first character of the next line that is neither blank nor a comment. The present line must be at
// its end, or at its start.
func (p *plain) line() {
	for p.at < len(p.text) {
		start := p.at
		p.spaces()
		if p.at == len(p.text) {
			break
		}
		switch p.text[p.at] {
		case '#':
			p.skipLine()
		case '\n':
			p.at++
		default:
			p.column = p.at - start
			return
		}
	}
	p.column = -1
}

// skipLine moves behind the next line feed.
func (p *plain) skipLine() {
	if i := bytes.IndexByte(p.text[p.at:], '\n'); i >= 0 {
		p.at += i + 1
	} else {
		p.at = len(p.text)
	}
}

func (p *plain) spaces() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

// next returns the next byte, or a line feed at the end of the text.
func (p *plain) next() byte { return p.byteAt(p.at) }

func (p *plain) byteAt(at int) byte {
	if at < len(p.text) {
		return p.text[at]
	}
	return '\n'
}

// blankAt reports whether a space, a line feed or the end of the text is at an index.
func (p *plain) blankAt(at int) bool {
	c := p.byteAt(at)
	return c == ' ' || c == '\n'
}

// ended moves to the next line if the present line has only a comment left.
func (p *plain) ended() bool {
	start := p.at
	p.spaces()
	switch c := p.next(); {
	case c == '\n':
	case c != '#' || p.at == start:
		return false
	}
	p.skipLine()
	p.line()
	return true
}

// block converts a value that begins in a column of the present line, and is a list, a mapping, or a value of one line.
func (p *plain) block(column int) bool {
	if p.depth++; p.depth > maxPlainDepth {
		return false
	}
	defer func() { p.depth-- }()
	if p.isItem() {
		return p.blockList(column)
	}
	start := p.at
	if _, is := p.key(); is {
		p.at = start
		return p.blockMapping(column)
	}
	p.at = start
	return p.inline(false) && p.ended() && p.column < column
}

// isItem reports whether a list's item begins at the next byte.
func (p *plain) isItem() bool { return p.next() == '-' && p.blankAt(p.at+1) }

func (p *plain) blockList(column int) bool {
	p.out = append(p.out, '[')
	for first := true; first || p.column == column && p.isItem(); first = false {
		if !first {
			p.out = append(p.out, ',')
		}
		item := p.at
		p.at++
		p.spaces()
		if c := p.next(); c != '\n' && c != '#' {
			if !p.block(column + p.at - item) {
				return false
			}
			continue
		}
		if !p.ended() {
			return false
		}
		if p.column <= column {
			p.out = append(p.out, "null"...)
		} else if !p.block(p.column) {
			return false
		}
	}
	p.out = append(p.out, ']')
	return p.column <= column
}

func (p *plain) blockMapping(column int) bool {
	first := p.openMapping()
	for begin := true; begin || p.column == column; begin = false {
		if !p.member(first, func() bool { return p.blockValue(column) }) {
			return false
		}
	}
	return p.column < column && p.closeMapping(first)
}

// blockValue converts the value of a key in a block mapping. The next byte is the one behind the colon.
func (p *plain) blockValue(column int) bool {
	p.spaces()
	if c := p.next(); c != '\n' && c != '#' {
		return p.inline(false) && p.ended() && p.column <= column
	}
	if !p.ended() {
		return false
	}
	if p.column > column {
		return p.block(p.column)
	}
	if p.column == column && p.isItem() {
		if p.depth++; p.depth > maxPlainDepth {
			return false
		}
		defer func() { p.depth-- }()
		return p.blockList(column)
	}
	p.out = append(p.out, "null"...)
	return true
}

// openMapping begins a mapping, and returns the index of its first member.
func (p *plain) openMapping() (first int) {
	p.out = append(p.out, '{')
	return len(p.stack)
}

// member converts a key and its value, the latter by the given function. first is the index of the mapping's first
// member.
func (p *plain) member(first int, value func() bool) bool {
	key, is := p.key()
	if !is {
		return false
	}
	if len(p.stack) > first {
		p.out = append(p.out, ',')
	}
	from := len(p.out)
	p.out = append(appendText(p.out, key), ':')
	if !value() {
		return false
	}
	p.stack = append(p.stack, member{key, from, len(p.out)})
	return true
}

// closeMapping ends a mapping: the members are put in the order of their keys, as by the YAML library. It returns false
// if a key occurs twice.
func (p *plain) closeMapping(first int) bool {
	all := p.stack[first:]
	p.stack = p.stack[:first]
	start := all[0].from
	byKey := func(a, b member) int { return bytes.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(all, byKey) {
		slices.SortFunc(all, byKey)
		p.spare = p.spare[:0]
		for i, m := range all {
			if i > 0 {
				p.spare = append(p.spare, ',')
			}
			p.spare = append(p.spare, p.out[m.from:m.to]...)
		}
		p.out = append(p.out[:start], p.spare...)
	}
	p.out = append(p.out, '}')
	for i := 1; i < len(all); i++ {
		if bytes.Equal(all[i-1].key, all[i].key) {
			return false
		}
	}
	return true
}

// key reads a key and the colon behind it. The key must be a string.
func (p *plain) key() (key []byte, is bool) {
	text, quoted, is := p.scalar(true)
	if !is || len(text) > maxPlainKey || !quoted && kindOf(text) != plainText {
		return nil, false
	}
	p.spaces()
	if p.next() != ':' || !p.blankAt(p.at+1) {
		return nil, false
	}
	p.at++
	return text, true
}

// inline converts a value of one line: a mapping or list in brackets, or a scalar. flow is set within brackets.
func (p *plain) inline(flow bool) bool {
	switch p.next() {
	case '{':
		return p.flow('}', p.flowMapping)
	case '[':
		return p.flow(']', p.flowList)
	}
	text, quoted, is := p.scalar(flow)
	kind := plainText
	if is && !quoted {
		kind = kindOf(text)
	}
	switch {
	case !is || kind == plainUnknown:
		return false
	case kind == plainLiteral:
		p.out = append(p.out, text...)
	default:
		p.out = appendText(p.out, text)
	}
	return true
}

// flow converts a mapping or list in brackets that ends with the byte end. members converts its members, of which there
// is at least one.
func (p *plain) flow(end byte, members func() bool) bool {
	if p.depth++; p.depth > maxPlainDepth {
		return false
	}
	defer func() { p.depth-- }()
	open := p.next()
	p.at++
	p.spaces()
	if p.next() == end {
		p.out = append(p.out, open, end)
	} else if !members() || p.next() != end {
		return false
	}
	p.at++
	return true
}

func (p *plain) flowList() bool {
	p.out = append(p.out, '[')
	for {
		if !p.inline(true) {
			return false
		}
		if p.spaces(); p.next() != ',' {
			p.out = append(p.out, ']')
			return true
		}
		p.out = append(p.out, ',')
		p.at++
		p.spaces()
	}
}

func (p *plain) flowMapping() bool {
	first := p.openMapping()
	for {
		if !p.member(first, p.flowValue) {
			return false
		}
		if p.spaces(); p.next() != ',' {
			return p.closeMapping(first)
		}
		p.at++
		p.spaces()
	}
}

// flowValue converts the value of a key in brackets. The next byte is the one behind the colon.
func (p *plain) flowValue() bool {
	p.spaces()
	return p.inline(true)
}
