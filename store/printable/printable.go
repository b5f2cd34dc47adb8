// Package printable makes text safe for terminals. Names in archives, in folders and in answers of servers may
// contain control characters, which a terminal executes. All functions are safe for concurrent use.
//
// Owns: nothing; all functions are pure.
// Reads: its arguments only.
// Never: changes a text without such characters.
package printable

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns text on one line. Characters that unicode.IsPrint rejects, and bytes that are not UTF-8, are escaped as
// in Go. The byte 0x9b is an example: terminals of 8 bits read it as the start of a command. If Line escapes anything,
// it doubles backslashes, too. A text without such characters and bytes is returned unchanged.
func Line(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Lines returns text with its line ends and tabs. The parts between them are as by Line. A text that Line would not
// have to escape, except for line ends and tabs, is returned unchanged.
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

// Writer returns a writer that writes Lines of each text to w. Each text must be one call of Write, because a character
// that is split between two calls is not UTF-8. Errors are those of w.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ to io.Writer }

// Write writes the printable form of p. n is the length of p if the write succeeds, and otherwise 0.
func (w writer) Write(p []byte) (n int, err error) {
	if _, err := io.WriteString(w.to, Lines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
