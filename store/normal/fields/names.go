package fields

import (
	_ "embed"
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// The sections of names.txt. They cover annotations and labels of objects, and the keys with which proxies describe
// themselves.
const (
	Annotations = "annotations"
	Labels      = "labels"
	Metadata    = "node metadata" // keys of the metadata of a proxy's node
)

// A line of names.txt is NAME MARK TEXT, below its section in brackets. The text of an acted name has the form of
// table.txt.
//
//go:embed names.txt
var namesText string

var named = mustParseNames(namesText)

// names are the rows of names.txt.
type names struct {
	all    []*Row
	byName map[string]*Row // by section and name
}

// Named returns the row of a name in a section. The result is nil if there is no such row.
func Named(section, name string) *Row { return named.byName[section+"."+name] }

// All yields the rows of both tables, in their order: first those of table.txt, then those of names.txt.
func All() iter.Seq[*Row] { return slices.Values(slices.Concat(table().all, named.all)) }

// In yields the rows of a section of names.txt, in their order. An unknown section has no rows.
func In(section string) iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		for _, row := range named.all {
			if string(row.Message) == section && !yield(row) {
				return
			}
		}
	}
}

func mustParseNames(text string) names {
	n, err := parseNames(text)
	if err != nil {
		panic(err) // unreachable: a test parses the table
	}
	return n
}

func parseNames(text string) (n names, err error) {
	n.byName = map[string]*Row{}
	section, number := "", 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if name, is := strings.CutPrefix(line, "["); is {
			if section = strings.TrimSuffix(name, "]"); !slices.Contains([]string{Annotations, Labels, Metadata}, section) {
				return n, fmt.Errorf("names.txt:%d: there is no section %q", number, section)
			}
			continue
		}
		row, err := parseRow(line)
		if err != nil {
			return n, fmt.Errorf("names.txt:%d: %q: want NAME MARK TEXT: %w", number, line, err)
		}
		row.Message = protoreflect.FullName(section)
		switch {
		case section == "":
			return n, fmt.Errorf("names.txt:%d: %s is above the first section", number, row.Field)
		case n.byName[row.String()] != nil:
			return n, fmt.Errorf("names.txt:%d: %s occurs twice", number, row.Field)
		}
		n.byName[row.String()] = row
		n.all = append(n.all, row)
	}
	return n, nil
}
