package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
)

// Stdin is the path that stands for the standard input in ReadPaths and InOrder. The locations of objects from the
// standard input begin with Stdin.
const Stdin = "-"

// Once are the options of ReadPaths.
type Once struct {
	Cluster   string                // name of the config cluster, as in Config
	Namespace string                // namespace of namespaced objects that state no namespace; empty: default
	Skipped   func(location string) // called for each JSON document that is not an object; nil: not called
}

// ReadPaths reads files, folders with all folders below, and the standard input once, for tools that work offline. It
// returns a Put for each object and a Broken for each document that cannot be read, then Synced, and the problems of
// the files. An object that occurs twice has one Put, and the other occurrence is a problem. Locations begin with the
// given path, or with the result of filepath.Join for a file in a folder. A file in paths is read even without the
// suffix .yaml, .yml or .json. Errors: an element of paths does not exist or cannot be read, or a folder below cannot
// be listed. A file within a folder that cannot be read is a problem instead.
func ReadPaths(paths []string, stdin io.Reader, o Once) ([]object.Event, []object.Problem, error) {
	r := newReader(o.Cluster, 0)
	if o.Skipped != nil {
		r.skipped = o.Skipped
	}
	var all []reading
	for _, path := range paths {
		some, err := readPath(path, stdin)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, some...)
	}
	parseAll(o.Cluster, all)
	events := r.step(time.Now(), all, true)
	for i := range events {
		events[i] = o.placed(events[i])
	}
	return append(events, object.Event{Op: object.Synced}), r.problems(), nil
}

// parseAll parses the files that could be read, on all cores: files, and the documents of a large file, at once.
func parseAll(config string, all []reading) {
	loop.Each(len(all), func(i int) {
		if one := &all[i]; one.err == nil && !one.missing {
			one.docs = parseUnder(config, one.base, one.path, one.data)
		}
	})
}

// InOrder reads files, folders with all folders below, and the standard input once, for tools that act on objects one
// after the other. It returns the objects in the order of paths. Files of a folder are in the order of their paths, and
// objects of a file in the order of the text. It also returns objects that are stated twice. JSON documents that are
// not objects are skipped. Errors: a path, a folder below or a file in a folder cannot be read, or a document is not a
// valid object. The error for a document names its location.
func InOrder(paths []string, stdin io.Reader) (all []*object.Object, err error) {
	for _, path := range paths {
		read, err := readPath(path, stdin)
		if err != nil {
			return nil, err
		}
		for _, one := range read {
			if one.err != nil && !strings.Contains(one.err.Error(), one.path) {
				return nil, fmt.Errorf("%s: %w", one.path, one.err)
			}
			if one.err != nil {
				return nil, one.err
			}
			for _, d := range parseUnder("", one.base, one.path, one.data) {
				switch {
				case d.foreign:
				case d.object == nil:
					return nil, errors.New(d.fault())
				default:
					all = append(all, d.object)
				}
			}
		}
	}
	return all, nil
}

// placed returns the event e. If the event's object states no namespace, it gets the namespace of the options.
func (o Once) placed(e object.Event) object.Event {
	var stated struct {
		Metadata struct{ Namespace string }
	}
	if o.Namespace == "" || e.Op != object.Put || e.ID.Namespace != defaultNamespace ||
		json.Unmarshal(e.Object.JSON, &stated) != nil || stated.Metadata.Namespace != "" {
		return e
	}
	one := *e.Object
	e.ID.Namespace, one.ID.Namespace, e.Object = o.Namespace, o.Namespace, &one
	return e
}

// readPath reads one file, the files of a folder, or the standard input.
func readPath(path string, stdin io.Reader) ([]reading, error) {
	if path == Stdin {
		data, err := io.ReadAll(io.LimitReader(stdin, maxFile+1))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return []reading{{path: Stdin, data: data}}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		data, err := contents(path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		return []reading{{path: path, base: filepath.Dir(path), data: data}}, nil
	}
	t := walk(path)
	if err := errors.Join(slices.Collect(maps.Values(t.unknown))...); err != nil {
		return nil, fmt.Errorf("read folder %s: %w", path, err)
	}
	var all []reading
	for _, rel := range slices.Sorted(maps.Keys(t.files)) {
		one := read(path, rel)
		one.path, one.base = filepath.Join(path, rel), filepath.Clean(path)
		all = append(all, one)
	}
	for _, rel := range slices.Sorted(maps.Keys(t.irregular)) {
		all = append(all, reading{path: filepath.Join(path, rel), err: t.irregular[rel]})
	}
	return all, nil
}

// Document is one document of a file.
type Document struct {
	Data []byte // nil: the document of a file without content, or of data that is nil
	Line int    // line of the file in which Data begins; the first line, and that of every JSON document, is 1
}

// Documents divides a file into its documents. The document of the location PATH#2 is the second. The suffix of path
// decides the format, as in ReadPaths. The parameter data is the content of the file. A YAML document is a part of
// data, and a JSON document is a copy.
func Documents(path string, data []byte) []Document {
	var all []Document
	for _, raw := range split(path, data) {
		all = append(all, Document{Data: raw.data, Line: raw.line + 1})
	}
	return all
}
