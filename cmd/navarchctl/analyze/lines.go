package analyze

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"navarch.io/navarch/store/loop"
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
	files map[string][]*document // the documents of each file, in their order
}

// document is a document of a file, and the findings about it while Fill runs.
type document struct {
	files.Document
	found []located
}

// located is a finding about a document, or about an element of a List.
type located struct {
	*Finding
	item string // the element, as in items[1]; empty: the finding is about the document
}

// Fill sets the Place of each finding from its Location and Field. Without a Location, the Place becomes zero. Line is
// 0 if the file cannot be read, or if Location names no document of the file.
func (l *Lines) Fill(all []Finding) {
	var docs []*document
	for i := range all {
		path, d, item := l.document(all[i].Location)
		all[i].Place = Place{File: path}
		if d == nil {
			continue
		}
		if len(d.found) == 0 {
			docs = append(docs, d)
		}
		d.found = append(d.found, located{&all[i], item})
	}
	loop.Each(len(docs), func(i int) { docs[i].fill() })
}

// NewLines returns Lines that read files with the given function. The function gets the path in Finding.Location. Fill
// ignores its errors.
func NewLines(read func(path string) ([]byte, error)) *Lines {
	return &Lines{read: read, files: map[string][]*document{}}
}

// location matches a Finding.Location: the file, the number of the document, and the element of a List.
var location = regexp.MustCompile(`^(.+?)(?:#(\d+)(?:\.(items\[\d+\]))?)?$`)

// document returns the parts of a location: the path of the file, the document, and the element of a List. The document
// is nil if the file has no such document. The element is empty for a document that is no List.
func (l *Lines) document(of string) (path string, d *document, item string) {
	m := location.FindStringSubmatch(of)
	if m == nil {
		return "", nil, ""
	}
	path, item = m[1], m[3]
	docs, known := l.files[path]
	if !known {
		data, _ := l.read(path) // the error is ignored: without the file there is no line
		for _, one := range files.Documents(path, data) {
			docs = append(docs, &document{Document: one})
		}
		l.files[path] = docs
	}
	number, _ := strconv.Atoi(m[2]) // 0: the location is the file
	if number < 1 || number > len(docs) || docs[number-1].Data == nil {
		return path, nil, item
	}
	return path, docs[number-1], item
}

// fill sets the lines of the findings about a document. If the document lacks the field of a finding, the line is that
// of the closest parent. The parsed document is dropped at once, because all documents need much memory.
func (d *document) fill() {
	var whole yaml.Node
	var root *yaml.Node // nil: the document does not parse
	if yaml.Unmarshal(d.Data, &whole) == nil && len(whole.Content) > 0 {
		root = whole.Content[0]
	}
	for _, f := range d.found {
		field := f.Field
		if f.item != "" {
			field = f.item + "." + field
		}
		f.Line = d.Line + find(root, field) - 1
	}
	d.found = nil
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
