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
	"text/tabwriter"

	"navarch.io/navarch/store/printable"
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

// Printable returns text on one line, without characters that a terminal executes (printable.Line).
func Printable(text string) string { return printable.Line(text) }
