package analyze

import (
	"fmt"
	"io"
	"strings"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/problem"
)

// words maps severities to istioctl's words.
var words = map[problem.Severity]string{problem.Error: "Error", problem.Warning: "Warning", problem.Info: "Info"}

// String returns the finding on one line, in istioctl's form: "Error [IST0101] (VirtualService shop/web shop.yaml:12)
// spec.http[0]: message". Unprintable characters are escaped.
func (f Finding) String() string {
	at := f.Object
	if f.File != "" {
		at = strings.TrimSpace(at + " " + f.File)
		if f.Line > 0 {
			at += fmt.Sprintf(":%d", f.Line)
		}
	}
	message := f.Message
	if f.Field != "" {
		message = f.Field + ": " + message
	}
	return show.Printable(fmt.Sprintf("%s [%s] (%s) %s", words[f.Severity], f.Code, at, message))
}

// WriteText writes one line for each finding, an empty line, and a line with the counts of findings by severity.
// Severities without findings are left out. Without any findings it writes "No findings." Errors are those of w.
func WriteText(w io.Writer, all []Finding) error {
	count := map[problem.Severity]int{}
	for _, f := range all {
		count[f.Severity]++
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "No findings.")
		return err
	}
	var sums []string
	for _, s := range []problem.Severity{problem.Error, problem.Warning, problem.Info} {
		switch n := count[s]; {
		case n == 1:
			sums = append(sums, "1 "+string(s))
		case n > 1:
			sums = append(sums, fmt.Sprintf("%d %ss", n, s))
		}
	}
	_, err := fmt.Fprintf(w, "\n%s.\n", strings.Join(sums, ", "))
	return err
}
