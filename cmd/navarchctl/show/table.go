// Package show prints the results of navarchctl for people. It prints the configuration of a proxy as tables with the
// columns of istioctl. It prints plans, descriptions, comparisons and suggestions as text, and plans also as Markdown.
//
// Owns: nothing.
// Reads: dumps, reports and descriptions.
// Never: uses a socket or a file; writes unprintable characters of untrusted text.
package show

import (
	"fmt"
	"io"
	"text/tabwriter"

	"navarch.io/navarch/store/printable"
)

// Table prints rows in aligned columns, one row on each line. Usually the first row is a heading. Rows may have
// different lengths. Without rows it prints nothing. Cells may be untrusted text, which Printable escapes. Errors are
// those of w.
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

// Printable returns text on one line (printable.Line). Line ends, other unprintable characters and invalid UTF-8 are
// escaped as in Go.
func Printable(text string) string { return printable.Line(text) }
