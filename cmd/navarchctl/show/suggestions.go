package show

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"navarch.io/navarch/cmd/navarchctl/suggest"
)

// Suggestions prints a line for each namespace. The line has the savings of the suggested Sidecar, or the reason why no
// Sidecar is suggested. Below these lines, it prints the notes, and the unused hosts to which a VirtualService routes.
// It does not print the Sidecars. Names may be untrusted text. The report stays unchanged. Errors are those of w.
func Suggestions(w io.Writer, r *suggest.Report) error {
	var b bytes.Buffer
	made := 0
	for _, e := range r.Suggestions {
		if e.Sidecar != nil {
			made++
		}
	}
	fmt.Fprintf(&b, "%s for %s; hosts that were not used in the time of the counters are lost.\n\n", Plural(made, "Sidecar"),
		Plural(len(r.Suggestions), "namespace"))
	rows := [][]string{{"NAMESPACE", "PROXIES", "COUNTERS COVER", "CLUSTERS", "USED", "CLUSTERS THEN", "MEMORY SAVED", "PUSH NOW",
		"PUSH THEN"}}
	for _, e := range r.Suggestions {
		clusters := Thousands(e.ClustersNow)
		if e.ClustersNow == 0 { // without a suggested Sidecar, planned clusters were not counted
			clusters = Thousands(e.Clusters) + " outbound"
		}
		row := []string{e.Namespace, fmt.Sprint(e.Proxies), e.Observed.Round(time.Second).String(), clusters, Thousands(e.Used)}
		if e.Sidecar == nil {
			row = append(row, "no Sidecar: "+e.Skipped)
		} else {
			saved := fmt.Sprintf("about %.1f MiB", float64(e.MemorySaved)/(1<<20))
			row = append(row, Thousands(e.ClustersThen), saved, size(e.BytesNow), size(e.BytesThen))
		}
		rows = append(rows, row)
	}
	if err := Table(&b, rows); err != nil {
		return err
	}
	for _, e := range r.Suggestions {
		for _, note := range e.Notes {
			fmt.Fprintf(&b, "%s: %s\n", Printable(e.Namespace), Printable(note))
		}
		for _, host := range e.Unused {
			fmt.Fprintf(&b, "%s: unused, but routed to: %s\n", Printable(e.Namespace), Printable(host))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}
