package fields

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// A line of table.txt is FIELD[=VALUE] [in MESSAGE.FIELD] MARK TEXT, below the name of its message in brackets. The
// text of an acted field is the name of a scene in cmd/internal/scene, or "-" while no scene tests the field. If no
// scene can test the field, it is "test FOLDER TestName[: TEXT]". Lines that begin with # are comments.
//
//go:embed table.txt
var tableText string

// The table is parsed on first use, because many commands and processes never use it.
var table = sync.OnceValue(func() rows { return mustParse(tableText) })

// rows is the parsed table.
type rows struct {
	all  []*Row
	rows map[protoreflect.FullName][]*Row // by the field's full name in istio.io/api
}

func mustParse(text string) rows {
	t, err := parse(text)
	if err != nil {
		panic(err) // unreachable: a test parses the table
	}
	return t
}

func parse(text string) (t rows, err error) {
	t.rows = map[protoreflect.FullName][]*Row{}
	messages := map[protoreflect.FullName]protoreflect.MessageDescriptor{}
	for _, root := range Roots() {
		collect(root.Message, messages)
	}
	var of protoreflect.MessageDescriptor
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if name, is := strings.CutPrefix(line, "["); is {
			if of = messages[protoreflect.FullName(strings.TrimSuffix(name, "]"))]; of == nil {
				return t, fmt.Errorf("table.txt:%d: there is no message %s", number, line)
			}
			continue
		}
		row, err := parseRow(line)
		if err == nil && of == nil {
			err = errors.New("it is below no message")
		}
		if err != nil {
			return t, fmt.Errorf("table.txt:%d: %q: want FIELD[=VALUE] [in MESSAGE.FIELD] MARK TEXT: %w", number, line, err)
		}
		row.Message = of.FullName()
		fd := of.Fields().ByJSONName(row.Field)
		if fd == nil {
			return t, fmt.Errorf("table.txt:%d: %s has no field %s", number, of.FullName(), row.Field)
		}
		if row.Value != "" && (fd.Enum() == nil || fd.Enum().Values().ByName(protoreflect.Name(row.Value)) == nil) {
			return t, fmt.Errorf("table.txt:%d: %s has no value %s", number, fd.FullName(), row.Value)
		}
		if slices.ContainsFunc(t.rows[fd.FullName()], func(r *Row) bool { return r.key() == row.key() }) {
			return t, fmt.Errorf("table.txt:%d: %s occurs twice", number, row)
		}
		t.rows[fd.FullName()] = append(t.rows[fd.FullName()], row)
		t.all = append(t.all, row)
	}
	return t, nil
}

func parseRow(line string) (*Row, error) {
	row := &Row{}
	name, rest, _ := strings.Cut(line, " ")
	row.Field, row.Value, _ = strings.Cut(name, "=")
	rest = strings.TrimSpace(rest)
	if below, is := strings.CutPrefix(rest, "in "); is {
		row.Within, rest, _ = strings.Cut(below, " ")
	}
	mark, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
	row.Mark, text = Mark(mark), strings.TrimSpace(text)
	if !slices.Contains([]Mark{Acted, Reported, Whole, Closed, None}, row.Mark) {
		return nil, fmt.Errorf("%q is no mark", mark)
	}
	if text == "" {
		return nil, errors.New("a row has a scene or a reason")
	}
	if row.Mark != Acted {
		row.Text = text
		return row, nil
	}
	if test, is := strings.CutPrefix(text, "test "); is {
		test, row.Text, _ = strings.Cut(test, ": ")
		if row.Test = test; !strings.Contains(test, " Test") {
			return nil, fmt.Errorf("%q is no folder and name of a test", test)
		}
		return row, nil
	}
	if strings.Contains(text, " ") {
		return nil, fmt.Errorf("%q is neither a scene nor a test", text)
	}
	if text != "-" {
		row.Scene = text
	}
	return row, nil
}

// collect adds a message type, and all message types below it, to the map.
func collect(md protoreflect.MessageDescriptor, into map[protoreflect.FullName]protoreflect.MessageDescriptor) {
	if into[md.FullName()] != nil {
		return
	}
	into[md.FullName()] = md
	for i := range md.Fields().Len() {
		if below := Below(md.Fields().Get(i)); below != nil {
			collect(below, into)
		}
	}
}
