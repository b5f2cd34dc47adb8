package show

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"navarch.io/navarch/push/meaning"
)

// Change has the content of a printed plan. A plan describes the effects that a change of objects would have on
// proxies. The methods do not modify a Change.
type Change struct {
	Revision int64 // revision of the configuration before the change
	// Created, Changed and Deleted count the objects of the change, without refused and unchanged objects.
	Created, Changed, Deleted int
	Refused                   []Refusal // one for each problem of a refused object
	// Summary contains the risks and facts, and counts the views and proxies whose configuration changes. A view is a
	// group of proxies with equal configuration.
	Summary meaning.Summary
	// AllViews and AllProxies count all views and proxies, affected or not.
	AllViews, AllProxies int
	Affected             []Affected // one for each namespace and kind of affected proxies
	Raw                  []string   // lines about resources that differ; may be empty
	// NewProblems are the problems of objects that the change causes, and GoneProblems the problems that it ends. Each
	// problem is one line.
	NewProblems, GoneProblems []string
	// Bytes is the sum of the bytes that the change sends to all proxies. If it is 0, it is not printed.
	Bytes int64
	// Seconds is the time that the plan took; 0: unknown.
	Seconds float64
	// Names lists all affected proxies, as "NAME.NAMESPACE"; nil: they are not listed.
	Names []string
	// Missing has a text for each replica that did not answer: its name and the reason. If it is not empty, all counts
	// are lower bounds.
	Missing []string
}

// Refusal is a problem for which validation refuses an object.
type Refusal struct {
	Object string `json:"object"`          // "Kind namespace/name"
	Field  string `json:"field,omitempty"` // path; empty: the whole object
	Reason string `json:"reason"`          // text for people
}

// Affected counts the proxies of one kind in a namespace whose configuration changes.
type Affected struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"` // sidecar, gateway ...
	Proxies   int    `json:"proxies"`
}

// Text prints the change for a terminal. The first line has the counts. The next lines have the refused objects, risks,
// affected proxies, facts, differences of resources, problems, and the bytes. Untrusted text is escaped (Printable).
// Errors are those of w.
func (c Change) Text(w io.Writer) error {
	fmt.Fprintln(w, c.headline())
	var rows [][]string
	for _, r := range c.Refused {
		rows = append(rows, []string{" REFUSED", r.Object, strings.TrimPrefix(r.Field+": "+r.Reason, ": ")})
	}
	for _, r := range c.Summary.Risks {
		text := fmt.Sprintf("%s %s: %s%s", r.Code, subjects(r.Subjects), r.Text, reach(c.Summary, r.Count))
		rows = append(rows, []string{" " + levelText(r.Level), text, strings.Join(r.Objects, ", ")})
	}
	if c.Summary.MoreRisks > 0 {
		rows = append(rows, []string{fmt.Sprintf(" and %s more risks", Thousands(c.Summary.MoreRisks))})
	}
	if err := Table(w, rows); err != nil {
		return err
	}
	if text := c.affected(); text != "" {
		fmt.Fprintf(w, " affected   %s\n", text)
	}
	for _, name := range c.Names {
		fmt.Fprintf(w, "   %s\n", Printable(name))
	}
	rows = nil
	for _, f := range c.Summary.Facts {
		rows = append(rows, []string{" " + subjects(f.Subjects), f.Aspect, f.Text + reach(c.Summary, f.Count)})
	}
	if c.Summary.MoreFacts > 0 {
		rows = append(rows, []string{fmt.Sprintf(" and %s more differences", Thousands(c.Summary.MoreFacts))})
	}
	if err := Table(w, rows); err != nil {
		return err
	}
	for _, line := range c.Raw {
		fmt.Fprintln(w, " "+Printable(line))
	}
	if len(c.Refused) == 0 || c.Summary.Views > 0 { // otherwise nothing was planned
		fmt.Fprintln(w, " "+c.unchanged()+c.problems())
	}
	for _, p := range c.NewProblems {
		fmt.Fprintln(w, " + "+Printable(p))
	}
	for _, p := range c.GoneProblems {
		fmt.Fprintln(w, " - "+Printable(p))
	}
	_, err := fmt.Fprint(w, c.cost())
	return err
}

// refusedObjects counts the refused objects, each of which may have several problems.
func (c Change) refusedObjects() int {
	objects := map[string]bool{}
	for _, r := range c.Refused {
		objects[r.Object] = true
	}
	return len(objects)
}

// headline returns the first line: objects, proxies and views.
func (c Change) headline() string {
	var objects []string
	for _, o := range []struct {
		n    int
		word string
	}{{c.Changed, "changed"}, {c.Created, "new"}, {c.Deleted, "deleted"}, {c.refusedObjects(), "refused"}} {
		if o.n > 0 {
			objects = append(objects, fmt.Sprintf("%s %s", Plural(o.n, "object"), o.word))
		}
	}
	first, least := "", ""
	if len(c.Missing) > 0 {
		first, least = "At least ", "at least "
	}
	text := fmt.Sprintf("Plan at revision %d: %s.", c.Revision, cmp.Or(strings.Join(objects, ", "), "no object differs"))
	switch {
	case len(c.Refused) > 0 && c.Summary.Views == 0:
		return text + " Nothing was planned, because objects are refused."
	case c.Summary.Views == 0:
		return text + " Every proxy keeps its configuration."
	}
	return fmt.Sprintf("%s %s%s of %s get a different configuration (%s), in %s%s of %s.", text, first, Thousands(c.Summary.Proxies),
		Plural(c.AllProxies, "proxy"), share(c.Summary.Proxies, c.AllProxies), least, Thousands(c.Summary.Views),
		Plural(c.AllViews, "view"))
}

// levelText returns the word for a level at the start of a line.
func levelText(l meaning.Level) string {
	if l == meaning.High {
		return "HIGH"
	}
	return "MED"
}

// reach returns a text with the numbers of views and proxies that a line is about. The text is empty if the line is
// about all affected views.
func reach(s meaning.Summary, n meaning.Count) string {
	if n.Views == s.Views {
		return ""
	}
	text := fmt.Sprintf("  (%d of %s, %s", n.Views, Plural(s.Views, "view"), Plural(n.Proxies, "proxy"))
	switch {
	case strings.Contains(n.Example, ", such as "): // Example is the label of a view, which names a proxy
		text += ": " + n.Example
	case n.Example != "":
		text += ", such as " + n.Example
	}
	return text + ")"
}

// subjects returns the first subject of a line, and the number of the other subjects.
func subjects(s meaning.Subjects) string {
	if len(s.Named) == 0 {
		return ""
	}
	if more := len(s.Named) - 1 + s.Others; more > 0 {
		return fmt.Sprintf("%s and %s more", s.Named[0], Thousands(more))
	}
	return s.Named[0]
}

// affected lists the namespaces with the numbers of their affected proxies.
func (c Change) affected() string {
	var parts []string
	for _, a := range c.Affected {
		parts = append(parts, fmt.Sprintf("%s %s %s", Printable(a.Kind), Printable(a.Namespace), Thousands(a.Proxies)))
	}
	return strings.Join(parts, ", ")
}

// unchanged names the areas of configuration without differences.
func (c Change) unchanged() string {
	var words []string
	for _, area := range c.Summary.Unchanged() {
		word := area.String()
		if area == meaning.Inbound { // lines about policies begin with the word inbound too
			word = "inbound ports"
		}
		words = append(words, word)
	}
	if len(words) == 0 {
		return ""
	}
	return "no change in " + strings.Join(words, ", ") + ".  "
}

// problems counts the problems of objects.
func (c Change) problems() string {
	return fmt.Sprintf("Problems: %d new, %d gone.", len(c.NewProblems), len(c.GoneProblems))
}

// cost returns the lines about bytes, the time of the plan, and replicas that did not answer.
func (c Change) cost() string {
	var b strings.Builder
	took := ""
	if c.Seconds > 0 {
		took = fmt.Sprintf("Planned in %.1f s.", max(c.Seconds, 0.1))
	}
	switch {
	case c.Bytes > 0:
		fmt.Fprintln(&b, strings.TrimRight(" "+size(c.Bytes)+" in all. "+took, " "))
	case took != "":
		fmt.Fprintln(&b, " "+took)
	}
	for _, replica := range c.Missing {
		fmt.Fprintf(&b, " replica %s did not answer: its proxies are not counted.\n", Printable(replica))
	}
	return b.String()
}

// size formats a number of bytes as MB (10^6), kB (10^3) or bytes.
func size(n int64) string {
	switch {
	case n >= 1_000_000:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB"
	case n >= 1000:
		return strconv.FormatFloat(float64(n)/1e3, 'f', 1, 64) + " kB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// share returns the ratio of part to total as a percentage. If total is 0, the result is "0 %".
func share(part, total int) string {
	if total == 0 {
		return "0 %"
	}
	return strconv.FormatFloat(float64(part)*100/float64(total), 'f', 1, 64) + " %"
}

// Thousands formats a number with commas between groups of three digits, such as 1,234,567.
func Thousands(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// Plural returns a number (Thousands) and a noun, such as "2 proxies". The argument noun is the singular. If n is not
// 1, Plural appends s, or replaces a final y by ies.
func Plural(n int, noun string) string {
	switch before, is := strings.CutSuffix(noun, "y"); {
	case n == 1:
		return "1 " + noun
	case is:
		return Thousands(n) + " " + before + "ies"
	}
	return Thousands(n) + " " + noun + "s"
}
