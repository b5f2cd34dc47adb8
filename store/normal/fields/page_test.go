package fields

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

var update = flag.Bool("update", false, "write "+page)

const page = "../../../deploy/docs/compatibility.md"

const pageHead = `# What of Istio's configuration is acted on

Each field of istio.io/api %s has one of three marks.
` + "`go test ./store/normal/fields -update`" + ` generates this page from the files table.txt and names.txt there.

- **acted on**: the field changes what proxies get, or another result that its scene prints. A scene is one of
  ` + "`cmd/internal/scene/testdata`" + `: a test removes the field from the scene's objects and expects a
  different result. If no scene can show the field, the row names a Go test and its package. A row with neither is acted
  on, and no test shows it yet: there are %d of them.
- **reported**: the field has no effect, and the rest of its object applies. The object has a problem that names the
  field and what happens instead (code ` + "`NotSupported`" + `, NAV0005 in the status). *Refused or closed*: without
  the field the object would have another meaning for security or for the destination of traffic. So the object is
  refused, or what it selects is closed. *With its object*: the object has one problem for all of its fields.
- **no effect for sidecars**: a sidecar does the same with and without the field. The row has the reason.

Gateways read ` + "`gatewayTopology`" + `, the profile EDGE, and EnvoyFilters' ` + "`portName`" + ` and ` + "`gateway`" + `
([Gateways](gateways.md)). No proxy reads labels, annotations and MeshConfig of the Gateway API and of Ingress, which
are not served yet.

| | acted on | reported | no effect |
|---|---|---|---|
`

// The page contains the table.
func TestPage(t *testing.T) {
	want := drawPage()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil || string(have) != want {
		t.Errorf("%s is not what the table says (%v): go test ./store/normal/fields -update", page, err)
	}
}

// line is one row of the page: one field, or all of a message that are as another.
type line struct {
	fields []string
	mark   Mark
	text   string
}

func (l line) String() string {
	marks := map[Mark]string{Acted: "acted on", Reported: "reported", Whole: "reported, with its object", Closed: "reported: refused or closed", None: "no effect for sidecars"}
	return fmt.Sprintf("| `%s` | %s | %s |\n", strings.Join(l.fields, "`, `"), marks[l.mark], l.text)
}

func drawPage() string {
	byMessage := map[protoreflect.FullName][]line{}
	for _, md := range everyMessage() {
		byMessage[md.FullName()] = linesOf(md)
	}
	var body, counts strings.Builder
	unshown := 0
	count := func(name string, lines []line) {
		acted, reported, none := 0, 0, 0
		for _, l := range lines {
			switch l.mark {
			case Acted:
				acted += len(l.fields)
				if l.text == "" {
					unshown++
				}
			case None:
				none += len(l.fields)
			case Reported, Whole, Closed:
				reported += len(l.fields)
			}
		}
		fmt.Fprintf(&counts, "| %s | %d | %d | %d |\n", name, acted, reported, none)
	}
	drawn := map[protoreflect.FullName]bool{}
	for _, root := range Roots() {
		fmt.Fprintf(&body, "\n## %s\n", root.Name)
		if drawn[root.Message.FullName()] {
			fmt.Fprintf(&body, "\nIts fields stand above: other kinds have them too.\n")
		}
		var all []line
		for _, md := range below(root.Message) {
			if drawn[md.FullName()] {
				continue
			}
			drawn[md.FullName()] = true
			lines := byMessage[md.FullName()]
			all = append(all, lines...)
			if md != root.Message {
				fmt.Fprintf(&body, "\n### %s\n", short(md.FullName()))
			}
			fmt.Fprintf(&body, "\n| field | mark | scene, or test, or what happens instead |\n|---|---|---|\n")
			for _, l := range lines {
				body.WriteString(l.String())
			}
		}
		count(root.Name, all)
	}
	for _, of := range []struct{ section, title, about string }{
		{Annotations, "Annotations", "Of Pods, Services, Namespaces and objects of Istio's."},
		{Labels, "Labels", "Of Pods, Services, Nodes, Namespaces and objects of Istio's."},
		{Metadata, "Node metadata", "Proxies state metadata as they connect. Metadata that is reported is a line of the log at that moment\n(`node metadata that is not acted on`)."},
	} {
		var lines []line
		for row := range In(of.section) {
			lines = append(lines, line{[]string{row.Field}, row.Mark, said(row)})
		}
		fmt.Fprintf(&body, "\n## %s\n\n%s\n\n| name | mark | scene, or test, or what happens instead |\n|---|---|---|\n", of.title, of.about)
		for _, l := range lines {
			body.WriteString(l.String())
		}
		count(of.title, lines)
	}
	return fmt.Sprintf(pageHead, "(1.32)", unshown) + counts.String() + body.String()
}

// said returns the last column of a row: the scene, or the test and the code that uses the field, or the reason why it
// has no effect.
func said(row *Row) string {
	if row.Test == "" {
		return cmp.Or(row.Scene, row.Text)
	}
	folder, name, _ := strings.Cut(row.Test, " ")
	text := fmt.Sprintf("test `%s` of `%s`", name, folder)
	if row.Text != "" {
		text += ": " + row.Text
	}
	return text
}

// below are a message and all that lie below it, in the order of their fields.
func below(md protoreflect.MessageDescriptor) (all []protoreflect.MessageDescriptor) {
	seen := map[protoreflect.FullName]bool{}
	var visit func(md protoreflect.MessageDescriptor)
	visit = func(md protoreflect.MessageDescriptor) {
		if seen[md.FullName()] {
			return
		}
		seen[md.FullName()] = true
		all = append(all, md)
		for i := range md.Fields().Len() {
			if b := Below(md.Fields().Get(i)); b != nil {
				visit(b)
			}
		}
	}
	visit(md)
	return all
}

// linesOf are the rows of a message; one that only fields lead to which are not acted on is as these.
func linesOf(md protoreflect.MessageDescriptor) (lines []line) {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		for _, row := range table().rows[fd.FullName()] {
			lines = append(lines, line{[]string{row.key()}, row.Mark, said(row)})
		}
	}
	if len(lines) > 0 {
		return lines
	}
	mark, holder := markAbove(md, nil)
	all := line{mark: mark, text: "as " + holder}
	for i := range md.Fields().Len() {
		all.fields = append(all.fields, md.Fields().Get(i).JSONName())
	}
	return []line{all}
}

// markAbove is the mark of the fields that lead to a message without rows of its own: the first of them that is not
// acted on.
func markAbove(md protoreflect.MessageDescriptor, seen []protoreflect.FullName) (Mark, string) {
	for _, other := range everyMessage() {
		for i := range other.Fields().Len() {
			fd := other.Fields().Get(i)
			if b := Below(fd); b == nil || b.FullName() != md.FullName() || slices.Contains(seen, other.FullName()) {
				continue
			}
			if row := Of(fd, "", nil); row != nil && row.Mark != Acted {
				return row.Mark, "`" + nameOf(fd) + "`"
			}
			if len(table().rows[fd.FullName()]) == 0 {
				return markAbove(other, append(seen, md.FullName()))
			}
		}
	}
	return None, "nothing leads to it"
}
