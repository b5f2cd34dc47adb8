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

// document is a document of a file.
type document struct {
	files.Document
	wanted bool       // a finding is about the document
	root   *yaml.Node // nil: it is not parsed, or does not parse
}

// Fill sets the Place of each finding from its Location and Field. Without a Location, the Place becomes zero. Line is
// 0 if the file cannot be read, or if Location names no document of the file.
func (l *Lines) Fill(all []Finding) {
	var unparsed []*document
	for _, f := range all {
		if _, d, _ := l.document(f.Location); d != nil && !d.wanted {
			d.wanted = true
			unparsed = append(unparsed, d)
		}
	}
	loop.Each(len(unparsed), func(i int) { unparsed[i].parse() })
	for i := range all {
		all[i].Place = l.place(all[i])
	}
}

// NewLines returns Lines that read files with the given function. The function gets the path in Finding.Location. Fill
// ignores its errors.
func NewLines(read func(path string) ([]byte, error)) *Lines {
	return &Lines{read: read, files: map[string][]*document{}}
}

// location matches a Finding.Location: the file, the number of the document, and the element of a List.
var location = regexp.MustCompile(`^(.+?)(?:#(\d+)(?:\.(items\[\d+\]))?)?$`)

// place returns the line of a finding's field. If the file lacks the field, it returns the line of the closest
// parent.
func (l *Lines) place(f Finding) Place {
	path, d, item := l.document(f.Location)
	if d == nil {
		return Place{File: path}
	}
	field := f.Field
	if item != "" {
		field = item + "." + field
	}
	return Place{File: path, Line: d.Line + find(d.root, field) - 1}
}

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

// parse sets the root of a document.
func (d *document) parse() {
	var root yaml.Node
	if yaml.Unmarshal(d.Data, &root) == nil && len(root.Content) > 0 {
		d.root = root.Content[0]
	}
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
