package files

import (
	"bytes"
	"strings"
)

// scalar reads a string in quotes or a plain scalar. Within brackets and in keys, for which short is set, a plain
// scalar ends before a bracket, a comma, or a colon with a blank behind it.
func (p *plain) scalar(short bool) (text []byte, quoted, is bool) {
	if c := p.next(); c == '"' || c == '\'' {
		text, is = p.quoted(c)
		return text, true, is
	}
	start := p.at
	if c := p.next(); !isWord(c) && c != '/' && c != '$' && c != '(' && (c != '-' || !isWord(p.byteAt(p.at+1))) {
		return nil, false, false
	}
	for end := p.at; ; p.at++ {
		c := p.next()
		colon := c == ':' && p.blankAt(p.at+1)
		switch {
		case colon && !short:
			return nil, false, false
		case c == '\n', colon, c == '#' && p.text[p.at-1] == ' ', short && strings.IndexByte(",?[]{}", c) >= 0:
			p.at = end
			return p.text[start:end], false, true
		case c != ' ':
			end = p.at + 1
		}
	}
}

// quoted reads a string between two quotes, without escapes.
func (p *plain) quoted(quote byte) (text []byte, is bool) {
	p.at++
	n := bytes.IndexByte(p.text[p.at:], quote)
	if n < 0 {
		return nil, false
	}
	text = p.text[p.at : p.at+n]
	p.at += n + 1
	return text, p.next() != quote && bytes.IndexByte(text, '\n') < 0 && (quote == '\'' || bytes.IndexByte(text, '\\') < 0)
}

func isWord(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// plainKind is the type of a plain scalar.
type plainKind uint8

const (
	plainText    plainKind = iota
	plainLiteral           // a whole number, true, false or null, written as in JSON
	plainUnknown           // the YAML library decides
)

// kindOf returns the type of a plain scalar, which is not empty. The rules are those of YAML 1.1, where on, yes and
// 0x10 are not text.
func kindOf(text []byte) plainKind {
	switch c := text[0]; {
	case c == '-':
		if len(text) == 1 || text[1] == '0' || !isWhole(text[1:]) {
			return plainUnknown
		}
		return plainLiteral
	case isDigit(c):
		return kindOfDigits(text)
	case len(text) > len("false"):
		return plainText
	}
	switch string(text) {
	case "true", "false", "null":
		return plainLiteral
	}
	switch strings.ToLower(string(text)) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return plainUnknown
	}
	return plainText
}

// kindOfDigits is kindOf for a scalar that begins with a digit.
func kindOfDigits(text []byte) plainKind {
	switch {
	case isWhole(text):
		return plainLiteral
	case len(text) > 4 && text[4] == '-': // may be a time
		return plainUnknown
	case bytes.Count(text, []byte(".")) > 1: // an address
		return plainText
	}
	for _, c := range text {
		if !isDigit(c) && strings.IndexByte("abcdefoxpABCDEFOXP_.+-", c) < 0 {
			return plainText
		}
	}
	return plainUnknown
}

// isWhole reports whether a text is a whole number as in JSON, without a sign and with at most 18 digits.
func isWhole(text []byte) bool {
	for _, c := range text {
		if !isDigit(c) {
			return false
		}
	}
	return len(text) == 1 || text[0] != '0' && len(text) <= 18
}

// appendText appends a text of printable ASCII as a JSON string, with the escapes of json.Marshal.
func appendText(to, text []byte) []byte {
	const hex = "0123456789abcdef"
	to = append(to, '"')
	for _, c := range text {
		switch c {
		case '"', '\\':
			to = append(to, '\\', c)
		case '<', '>', '&':
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			to = append(to, c)
		}
	}
	return append(to, '"')
}
