package show

import (
	"fmt"
	"io"
	"strings"
)

// maxMarkdown is the maximum number of rows of a table in Markdown. A comment of a pull request then remains readable.
const maxMarkdown = 50

// Markdown prints the change as Markdown, for a comment of a pull request. Each table has at most 50 rows. Markdown
// lists the problems that the change causes, and counts the problems that the change ends. If objects are refused and
// no view is affected, it prints only the first line and the refused objects. Untrusted text is in code spans, where
// links and mentions have no effect. Errors are those of w.
func (c Change) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n", c.headline())
	table := func(title, heading string, rows [][]string, more int) {
		if len(rows) == 0 {
			return
		}
		columns := strings.Count(heading, "|") + 1
		fmt.Fprintf(&b, "\n### %s\n\n| %s |\n|%s\n", title, heading, strings.Repeat(" --- |", columns))
		for _, row := range rows[:min(len(rows), maxMarkdown)] {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
		if more += max(0, len(rows)-maxMarkdown); more > 0 {
			fmt.Fprintf(&b, "\nand %s more\n", Thousands(more))
		}
	}
	var refused, risks, facts [][]string
	for _, r := range c.Refused {
		refused = append(refused, []string{code(r.Object), code(r.Field), code(r.Reason)})
	}
	for _, r := range c.Summary.Risks {
		risks = append(risks, []string{r.Level.String(), string(r.Code), code(subjects(r.Subjects)), code(r.Text + reach(c.Summary, r.Count)),
			code(strings.Join(r.Objects, ", "))})
	}
	for _, f := range c.Summary.Facts {
		facts = append(facts, []string{code(subjects(f.Subjects)), code(f.Aspect), code(f.Text + reach(c.Summary, f.Count))})
	}
	table("Refused", "object | field | reason", refused, 0)
	if len(refused) > 0 && c.Summary.Views == 0 { // nothing was planned
		_, err := io.WriteString(w, b.String())
		return err
	}
	table("Risks", "level | code | subject | risk | objects", risks, c.Summary.MoreRisks)
	if text := c.affected(); text != "" {
		fmt.Fprintf(&b, "\nAffected: %s\n", code(text))
	}
	writeDetails(&b, "Proxies", c.Names)
	table("Differences", "subject | part | difference", facts, c.Summary.MoreFacts)
	writeDetails(&b, "Resources", c.Raw)
	fmt.Fprintf(&b, "\n%s%s\n", c.unchanged(), c.problems())
	for _, p := range c.NewProblems {
		fmt.Fprintf(&b, "- new: %s\n", code(p))
	}
	for _, line := range strings.Split(strings.TrimSpace(c.cost()), "\n") {
		if line != "" {
			fmt.Fprintf(&b, "\n%s\n", code(line))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeDetails writes lines as a list that readers unfold. It writes nothing without lines.
func writeDetails(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n<details><summary>%s</summary>\n\n", title)
	for _, line := range lines {
		fmt.Fprintf(b, "- %s\n", code(line))
	}
	fmt.Fprintf(b, "\n</details>\n")
}

// code returns a text as a code span for a cell of a table. An empty text stays empty.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.NewReplacer("`", "'", "|", `\|`).Replace(Printable(text)) + "`"
}
