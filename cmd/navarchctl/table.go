package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"navarch.io/navarch/push/inspect"
)

// table prints rows in columns; the first row is the heading.
func table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, cell)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func explainTable(w io.Writer, found []inspect.Explanation) error {
	for _, e := range found {
		if e.Secret != nil {
			secretTable(w, e)
			continue
		}
		fmt.Fprintf(w, "%s %s (version %s)\n", e.Type, e.Name, e.Version)
		for _, made := range e.Specs {
			fmt.Fprintf(w, "  drawn by %s from\n", made.By)
			var rows [][]string
			for _, input := range made.Inputs {
				for i, v := range input.Values {
					field := ""
					if i == 0 {
						field = "    " + input.Field
					}
					rows = append(rows, []string{field, v})
				}
			}
			if err := table(w, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// secretTable says where a Secret stands.
func secretTable(w io.Writer, e inspect.Explanation) {
	fmt.Fprintf(w, "%s %s: %s\n", e.Type, e.Name, e.Secret.State)
	for _, line := range []struct{ what, text string }{{"because", e.Secret.Why}, {"made of", e.Secret.Object}} {
		if line.text != "" {
			fmt.Fprintf(w, "  %s %s\n", line.what, line.text)
		}
	}
	for _, proxy := range e.Secret.Wanted {
		fmt.Fprintf(w, "  wanted by %s\n", proxy)
	}
}
