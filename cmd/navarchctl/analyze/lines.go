package analyze

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"navarch.io/navarch/store/source/files"
)

// Place is a line of a file. It is zero for objects of a cluster, and before Lines.Fill.
type Place struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"` // from 1; 0: unknown
}

// Lines finds the lines of findings in files. It reads each file once. It is not safe for concurrent use.
type Lines struct {
	read  func(path string) ([]byte, error)
	files map[string][]byte
	docs  map[string]*document
}

// document is a parsed document of a file.
type document struct {
	root *yaml.Node // nil: it does not parse
	line int        // number of the document's first line in the file
}

// Fill sets the Place of each finding from its Location and Field. Without a Location, the Place becomes zero. Line is
// 0 if the file cannot be read, or if Location names no document of the file.
func (l *Lines) Fill(all []Finding) {
	for i := range all {
		all[i].Place = l.place(all[i])
	}
}

// NewLines returns Lines that read files with the given function. The function gets the path in Finding.Location. Fill
// ignores its errors.
func NewLines(read func(path string) ([]byte, error)) *Lines {
	return &Lines{read: read, files: map[string][]byte{}, docs: map[string]*document{}}
}

// location matches a Finding.Location: the file, the number of the document, and the element of a List.
var location = regexp.MustCompile(`^(.+?)(?:#(\d+)(?:\.(items\[\d+\]))?)?$`)

// place returns the line of a finding's field. If the file lacks the field, it returns the line of the closest
// parent.
func (l *Lines) place(f Finding) Place {
	m := location.FindStringSubmatch(f.Location)
	if m == nil {
		return Place{}
	}
	number, _ := strconv.Atoi(m[2]) // 0: the location is the file
	d := l.document(m[1], number)
	if d == nil {
		return Place{File: m[1]}
	}
	field := f.Field
	if m[3] != "" {
		field = m[3] + "." + field
	}
	return Place{File: m[1], Line: d.line + find(d.root, field) - 1}
}

// document returns a document of a file, or nil if the file has no such document.
func (l *Lines) document(path string, number int) *document {
	key := path + "#" + strconv.Itoa(number)
	if d, known := l.docs[key]; known {
		return d
	}
	data, known := l.files[path]
	if !known {
		data, _ = l.read(path) // the error is ignored: without the file there is no line
		l.files[path] = data
	}
	var d *document
	if text, line := files.Document(path, data, number); text != nil {
		d = &document{line: line}
		var root yaml.Node
		if yaml.Unmarshal(text, &root) == nil && len(root.Content) > 0 {
			d.root = root.Content[0]
		}
	}
	l.docs[key] = d
	return d
}

// find returns the line of a path of fields, counted in the document. If the document lacks the whole path, find
// returns the line of the last part that the document has.
func find(n *yaml.Node, field string) int {
	line := 1
	if n == nil {
		return line
	}
	line = n.Line
	for _, part := range parts(field) {
		key, value := child(n, part)
		if key == nil {
			break
		}
		n, line = value, key.Line
	}
	return line
}

// child returns an element of a mapping or a list (the second result), and the node whose line is the element's line
// (the first result). It finds an element of a list by its number, or by its field name or type.
func child(n *yaml.Node, part string) (key, value *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
		for _, one := range n.Content {
			for _, name := range []string{"name", "type"} {
				if _, v := child(one, name); v != nil && v.Value == part {
					return one, one
				}
			}
		}
	case yaml.AliasNode:
		return nil, nil // the fields of an alias are at another place of the file
	default: // has no elements
	}
	return nil, nil
}

// parts splits a path of fields: spec.http[0].route, metadata.annotations[sidecar.istio.io/inject].
func parts(field string) (all []string) {
	for field != "" {
		if rest, is := strings.CutPrefix(field, "["); is {
			part, after, _ := strings.Cut(rest, "]")
			all, field = append(all, part), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(field, ".[")
		if end < 0 {
			end = len(field)
		}
		all = append(all, field[:end])
		field = strings.TrimPrefix(field[end:], ".")
	}
	return all
}
