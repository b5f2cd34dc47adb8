// Package printable makes text safe for terminals. Names in archives, in folders and in answers of servers may
// contain control characters, which a terminal executes. All functions are safe for concurrent use.
//
// Owns: nothing; all functions are pure.
// Reads: its arguments only.
// Never: changes a text that has only printable characters.
package printable

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns text on one line. Characters that unicode.IsPrint rejects, and bytes that are not UTF-8, are escaped as
// in Go. An example is the byte 0x9b, which 8-bit terminals read as the start of a command. If Line escapes anything,
// it also doubles all backslashes. If nothing has to be escaped, the text is returned unchanged.
func Line(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Lines applies Line to each part of text between line ends and tabs. The line ends and the tabs stay.
func Lines(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, ended := strings.CutSuffix(line, "\n")
		for i, cell := range strings.Split(line, "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(Line(cell))
		}
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Writer returns a writer that applies Lines to the bytes of each Write, and passes the result to w. A caller must not
// split a character between two calls of Write, because each half would be invalid UTF-8. Errors are those of w.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ to io.Writer }

// Write writes the printable form of p. The result n is the length of p if the write succeeds, and 0 if it fails.
func (w writer) Write(p []byte) (n int, err error) {
	if _, err := io.WriteString(w.to, Lines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
