package show

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"navarch.io/navarch/push/describe"
	"navarch.io/navarch/push/inspect"
)

// Described is the description of a subject, such as a Pod. It has the problems and the last changes of the described
// objects.
type Described struct {
	Schema   string `json:"schema"`
	Subject  string `json:"subject"`            // noun and name, as "pod shop/web-0"
	Revision int64  `json:"revision,omitempty"` // of the store; 0: unknown, or planned from a folder
	describe.Part
	Problems []inspect.Problem `json:"problems"`
	Changes  []Touched         `json:"changes"` // newest first
}

// Touched is a change of at least one object of a description.
type Touched struct {
	Lane         string    `json:"lane"`         // config or endpoints
	Revision     int64     `json:"revision"`     // the store's revision of the last edit
	Since        time.Time `json:"since"`        // time of the commit of the first edit
	Affected     int       `json:"affected"`     // number of proxies that the change affects
	Acknowledged int       `json:"acknowledged"` // number of affected proxies that have acknowledged the change
	Objects      []string  `json:"objects"`      // changed objects of the description, at most four
}

// mostNamed is the maximum number of objects that a line names, unless wide is set.
const mostNamed = 3

// unstated is the end of the line of a fact that no object causes.
const unstated = "(default)"

// Description prints a description. Each line of a fact ends with the objects that cause the fact, or with (default) if
// no object causes it. The line names the first three objects, or all objects if wide is set. Text may be untrusted.
// Errors are those of w.
func Description(w io.Writer, d *Described, wide bool) error {
	facts := func(heading, indent string, all []describe.Fact) error { return facts(w, heading, indent, all, wide) }
	for _, o := range d.Objects {
		if err := facts(o.Object, "", o.Facts); err != nil {
			return err
		}
	}
	for _, g := range d.Groups {
		fmt.Fprintln(w, Printable(title(g)))
		for _, s := range g.Sections {
			if err := facts(s.Name, "  ", s.Facts); err != nil {
				return err
			}
		}
	}
	var rows []describe.Fact
	for _, p := range d.Problems {
		text := cmp.Or(string(p.Analyzer), string(p.Code)) + " " + p.Message
		by := []string{strings.TrimSpace(p.Object + " " + p.Field)}
		rows = append(rows, describe.Fact{Subject: string(p.Severity), Text: text, By: by})
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "problems: these objects have no problems")
	} else if err := facts("problems", "", rows); err != nil {
		return err
	}
	rows = nil
	for _, c := range d.Changes {
		text := fmt.Sprintf("%s, %s: %d of %d proxies have acknowledged it",
			c.Since.UTC().Format(time.RFC3339), c.Lane, c.Acknowledged, c.Affected)
		rows = append(rows, describe.Fact{Subject: fmt.Sprintf("revision %d", c.Revision), Text: text, By: c.Objects})
	}
	if err := facts("last changes", "", rows); err != nil {
		return err
	}
	for _, text := range d.More {
		fmt.Fprintln(w, Printable(text))
	}
	return nil
}

// title returns the heading of a group: its side and its proxies.
func title(g describe.Group) string {
	names := strings.Join(g.Proxies, ", ")
	if more := g.Total - len(g.Proxies); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	if g.Side == describe.Itself {
		return g.Side + " " + names
	}
	return g.Side + " of " + names
}

// facts prints a heading and a line for each fact. Without facts it prints nothing.
func facts(w io.Writer, heading, indent string, all []describe.Fact, wide bool) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(w, indent+Printable(heading))
	rows := make([][]string, 0, len(all))
	for _, f := range all {
		named := f.By
		if more := len(named) - mostNamed; more > 0 && !wide {
			named = append(named[:mostNamed:mostNamed], fmt.Sprintf("and %d more", more))
		}
		by := strings.Join(named, ", ")
		rows = append(rows, []string{indent + "  " + f.Subject, f.Text, cmp.Or(by, unstated)})
	}
	return Table(w, rows)
}
