// Package show prints a proxy's configuration as tables, in the columns that istioctl's users know.
//
// Owns: nothing.
// Reads: dumps.
// Never: uses a socket or a file; writes unprintable text to a terminal.
package show

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Table prints rows in columns; the first row is the heading. Cells may be untrusted text. Errors are those of w.
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

// Printable returns text on one line, with unprintable characters escaped as in Go.
func Printable(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
