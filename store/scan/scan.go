// Package scan counts the values of untrusted JSON or YAML before it is decoded. A decoded text may need a hundred
// times its size in memory, and the number of values is a measure of the memory that it needs. The package accepts the
// same JSON as encoding/json, but at most MaxDepth levels of nesting.
//
// Owns: nothing. Reads: the given text. Never: allocates memory for each value; recurses deeper than MaxDepth.
package scan

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"navarch.io/navarch/store/loop"
)

// MaxDepth bounds the nesting of objects and lists.
const MaxDepth = 256

var errDepth = fmt.Errorf("objects and lists are nested more than %d levels deep", MaxDepth)

// Values returns the number of values in a JSON text: objects, lists, strings, numbers, true, false and null, including
// the values of repeated keys. Keys do not count. Errors: the text is not JSON (an empty text, for example), or is
// nested too deeply. With an error the number has no meaning.
func Values(text []byte) (int, error) {
	s := Scanner{text: text}
	if err := s.Skip(); err != nil {
		return 0, err
	}
	return s.values, s.End()
}

// Elements returns the number of elements of a JSON list. The result for null is 0. Errors: the text is not a list, is
// not JSON, or is nested too deeply. With an error the number has no meaning.
func Elements(text []byte) (n int, err error) {
	s := Scanner{text: text}
	if s.peek() != '[' {
		if s.Skip() == nil && string(text[s.start:s.at]) == "null" {
			return 0, s.End()
		}
		return 0, errors.New("want a list")
	}
	if err := s.list(func() error { n++; return s.Skip() }); err != nil {
		return 0, err
	}
	return n, s.End()
}

// Distinct reports whether a text is JSON in which no object has a key twice. It returns false for a text that is not
// JSON or is nested too deeply.
func Distinct(text []byte) bool {
	s := Scanner{text: text}
	return s.distinct() == nil && s.End() == nil
}

var errTwice = errors.New("a key occurs twice")

func (s *Scanner) distinct() error {
	switch s.peek() {
	case '{':
		seen := map[string]bool{}
		return s.Object(func(key string) error {
			if seen[key] {
				return errTwice
			}
			seen[key] = true
			return s.distinct()
		})
	case '[':
		return s.list(s.distinct)
	}
	return s.Skip()
}

// Scanner reads one JSON text in order, without decoding it. After an error it must not be used. It is not safe for
// concurrent use.
type Scanner struct {
	text          []byte
	at, start     int // index of the next byte; index of the last skipped value
	values, depth int
	read          int // number of members so far, for yielder
	yielder       loop.Yielder
}

// New returns a Scanner at the beginning of a text. The text must not change while the Scanner is in use. While the
// Scanner reads a large text, it yields to other goroutines.
func New(text []byte) *Scanner { return &Scanner{text: text, yielder: loop.NewPatientYielder()} }

// yieldEvery is the number of members of objects and lists between two calls of the yielder, since each call reads the
// clock. The number is a power of two.
const yieldEvery = 1 << 10

// Counted returns the number of values that were read so far, counted as in Values.
func (s *Scanner) Counted() int { return s.values }

// Skipped returns the text of the value that the last call of Skip moved past. It is a part of the Scanner's text, not
// a copy. The result is only valid if Skip was the last call that moved the Scanner.
func (s *Scanner) Skipped() []byte { return s.text[s.start:s.at] }

// Next returns the next byte that is not blank, such as '{' before an object, without moving past it. At the end of the
// text it returns 0.
func (s *Scanner) Next() byte { return s.peek() }

// End returns nil if only blanks are left in the text, and an error if anything else is left.
func (s *Scanner) End() error {
	if s.peek(); s.at < len(s.text) {
		return s.wrong("the end")
	}
	return nil
}

// Object reads the members of the next value, an object. It calls the function visit with each key in order, including
// repeated keys. The function must move past the value of the key, by Skip or Object. Errors: those of the function;
// the next value is not an object, is not JSON, or is nested too deeply.
func (s *Scanner) Object(visit func(key string) error) error {
	return s.object(func(raw []byte) error {
		if plain(raw) {
			return visit(string(raw[1 : len(raw)-1]))
		}
		var key string
		if err := json.Unmarshal(raw, &key); err != nil {
			return err
		}
		return visit(key)
	})
}

// plain reports whether a JSON string is ASCII without escapes, like nearly all keys. Such a string stands for the
// bytes between its quotes, so it does not need json.Unmarshal, which takes some thirty times as long.
func plain(raw []byte) bool {
	for _, c := range raw[1 : len(raw)-1] {
		if c < ' ' || c >= utf8.RuneSelf || c == '\\' {
			return false
		}
	}
	return true
}

// Skip moves past the next value. Errors: the value is not JSON, or is nested too deeply.
func (s *Scanner) Skip() error {
	c := s.peek()
	start := s.at
	if err := s.skip(c); err != nil {
		return err
	}
	s.start = start
	return nil
}

func (s *Scanner) skip(c byte) error {
	switch c {
	case '{':
		return s.object(func([]byte) error { return s.Skip() })
	case '[':
		return s.list(s.Skip)
	}
	s.values++
	switch {
	case c == '"':
		return s.str()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.wrong("a value")
}

func (s *Scanner) object(each func(key []byte) error) error {
	return s.members('{', '}', func() error {
		if s.peek() != '"' {
			return s.wrong("a key")
		}
		from := s.at
		if err := s.str(); err != nil {
			return err
		}
		key := s.text[from:s.at]
		if s.peek() != ':' {
			return s.wrong("':'")
		}
		s.at++
		return each(key)
	})
}

func (s *Scanner) list(each func() error) error { return s.members('[', ']', each) }

// members reads an object or a list: two brackets, with members between them that are separated by commas.
func (s *Scanner) members(open, end byte, each func() error) error {
	if s.peek() != open {
		return s.wrong(fmt.Sprintf("%q", open))
	}
	s.values++
	s.at++
	if s.depth++; s.depth > MaxDepth {
		return errDepth
	}
	defer func() { s.depth-- }()
	if s.peek() == end {
		s.at++
		return nil
	}
	for {
		if s.read++; s.read%yieldEvery == 0 {
			s.yielder.Yield()
		}
		if err := each(); err != nil {
			return err
		}
		switch c := s.peek(); c {
		case ',':
			s.at++
		case end:
			s.at++
			return nil
		default:
			return s.wrong(fmt.Sprintf("',' or %q", end))
		}
	}
}

// peek skips blanks and returns the next byte, or 0 at the end of the text.
func (s *Scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// str moves past a string. Its bytes need not be UTF-8, as in encoding/json.
func (s *Scanner) str() error {
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return nil
		case c < ' ':
			return s.wrong("no control character in a string")
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		}
	}
	return s.wrong("the end of a string")
}

// escape moves from the backslash to the last byte of an escape sequence.
func (s *Scanner) escape() error {
	s.at++
	if s.at == len(s.text) {
		return s.wrong("an escape")
	}
	switch s.text[s.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			if s.at++; s.at == len(s.text) || !hex(s.text[s.at]) {
				return s.wrong("four hexadecimal digits")
			}
		}
		return nil
	}
	return s.wrong("an escape")
}

func hex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func (s *Scanner) number() error {
	if s.text[s.at] == '-' {
		s.at++
	}
	if s.is('0') {
		s.at++
	} else if !s.digits() {
		return s.wrong("a digit")
	}
	if s.is('.') {
		if s.at++; !s.digits() {
			return s.wrong("a digit")
		}
	}
	if s.is('e') || s.is('E') {
		if s.at++; s.is('+') || s.is('-') {
			s.at++
		}
		if !s.digits() {
			return s.wrong("a digit")
		}
	}
	return nil
}

func (s *Scanner) is(c byte) bool { return s.at < len(s.text) && s.text[s.at] == c }

// digits moves past digits, and reports whether there was one.
func (s *Scanner) digits() bool {
	from := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}

func (s *Scanner) literal(word string) error {
	if len(s.text)-s.at < len(word) || string(s.text[s.at:s.at+len(word)]) != word {
		return s.wrong(word)
	}
	s.at += len(word)
	return nil
}

func (s *Scanner) wrong(want string) error {
	return fmt.Errorf("not JSON: want %s at byte %d of %d", want, s.at, len(s.text))
}
