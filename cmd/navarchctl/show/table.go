// Package show prints the results of navarchctl for people. The configuration of a proxy, from a dump of its resources,
// is printed as tables with the columns that istioctl's users know. Plans, descriptions, comparisons and suggestions
// are printed as text.
//
// Owns: nothing.
// Reads: dumps, reports and descriptions.
// Never: uses a socket or a file; writes unprintable characters to a terminal.
package show

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// Table prints rows in aligned columns; usually the first row is a heading. Rows may have different lengths, and no
// rows print nothing. Cells may be untrusted text: Printable escapes them. Errors are those of w.
func Table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, Printable(cell))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// Printable returns text on one line. Characters that unicode.IsPrint rejects, and bytes that are not UTF-8, are
// escaped as in Go: a terminal of 8 bits reads the byte 0x9b as the start of a command. If it escapes any, it doubles
// backslashes, too. A text without such characters and bytes is returned unchanged.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
