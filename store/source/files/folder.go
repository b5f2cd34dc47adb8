package files

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// file is the accepted state of one file. objects contains its valid objects. While a document is broken, objects also
// contains all earlier objects of the file.
type file struct {
	sum     [32]byte
	objects map[object.ID]*object.Object
	broken  []doc
	twice   []doc // objects that occur earlier in the same file
	foreign []doc // documents that are not objects
}

// newFile returns the state of a file with the given documents. The parameter before is the file's previous state, and
// nil if there was no file. If the file had objects, a document that is not an object counts as broken. If any document
// is broken, objects of the previous state that the documents lack are retained.
func newFile(sum [32]byte, docs []doc, before *file) *file {
	f := &file{sum: sum, objects: map[object.ID]*object.Object{}}
	had := before != nil && len(before.objects) > 0
	for _, d := range docs {
		if d.foreign && had {
			d.foreign, d.wrong = false, "is not a Kubernetes object any more: it has neither apiVersion nor kind. "+
				"The file's earlier objects stay in effect until this document is corrected or removed"
		}
		switch {
		case d.foreign:
			f.foreign = append(f.foreign, d)
		case d.wrong != "":
			f.broken = append(f.broken, d)
		case f.objects[d.id] != nil:
			f.twice = append(f.twice, d)
		default:
			f.objects[d.id] = d.object
		}
	}
	if len(f.broken) > 0 && before != nil {
		for id, o := range before.objects {
			if f.objects[id] == nil {
				f.objects[id] = o
			}
		}
	}
	return f
}

// folder is the emitted state of all files. It uses no clock and no file system.
type folder struct {
	files       map[string]*file
	definitions map[object.ID][]string // paths of the files with the object, in the order in which they got the object
	emitted     map[object.ID]*object.Object
	faults      map[string]string // by path: reason why the present content is not used
}

func newFolder() *folder {
	return &folder{files: map[string]*file{}, definitions: map[object.ID][]string{}, emitted: map[object.ID]*object.Object{},
		faults: map[string]string{}}
}

// get returns an object as it was emitted last, and as it is in the files now. A nil result means that the object is
// not emitted or not in the files.
func (f *folder) get(id object.ID) (emitted, now *object.Object) {
	if paths := f.definitions[id]; len(paths) > 0 {
		now = f.files[paths[0]].objects[id]
	}
	return f.emitted[id], now
}

// apply replaces the states of some files, and returns the resulting events. A nil state means that the file is gone.
func (f *folder) apply(changes map[string]*file) []object.Event {
	var events []object.Event
	paths, objects := make([]string, 0, len(changes)), 0
	for path, now := range changes {
		if paths = append(paths, path); now != nil {
			objects += len(now.objects)
		}
	}
	touched := make(touches, objects)
	if len(f.emitted) == 0 {
		f.emitted, f.definitions = make(map[object.ID]*object.Object, objects), make(map[object.ID][]string, objects)
	}
	slices.Sort(paths)
	var over []doc // documents that are no longer broken
	for _, path := range paths {
		old, now := f.files[path], changes[path]
		f.redefine(path, old, now, touched)
		began, ended := diffBroken(old, now)
		for _, d := range began {
			events = append(events, object.Event{Op: object.Broken, ID: d.id, Location: d.location, Problem: d.wrong})
		}
		over = append(over, ended...)
		if now == nil {
			delete(f.files, path)
		} else {
			f.files[path] = now
		}
	}
	for _, d := range over {
		if d.id.Name != "" && len(f.definitions[d.id]) > 0 {
			touched[d.id] = true // the object was reported as broken in between
		} else if !f.stillBroken(d) {
			events = append(events, object.Event{Op: object.Delete, ID: d.id, Location: d.location, Why: object.Missing})
		}
	}
	return append(events, f.events(touched)...)
}

// touches are the objects of a change. The value true means that the object is emitted even if it is unchanged.
type touches map[object.ID]bool

// note adds an object with the value false, unless it is present.
func (t touches) note(id object.ID) {
	if !t[id] {
		t[id] = false
	}
}

// redefine updates the definitions of objects after a change of one path.
func (f *folder) redefine(path string, old, now *file, touched touches) {
	if old != nil {
		for id := range old.objects {
			if now == nil || now.objects[id] == nil {
				f.definitions[id] = slices.DeleteFunc(f.definitions[id], func(p string) bool { return p == path })
				touched.note(id)
			}
		}
	}
	if now != nil {
		for id := range now.objects {
			if old == nil || old.objects[id] == nil {
				f.definitions[id] = append(f.definitions[id], path)
			}
			touched.note(id)
		}
	}
}

// diffBroken compares the broken documents in two states of a file. The result began has documents that were not
// broken, or were broken in another way. The result ended has documents that are no longer broken, or now name another
// object.
func diffBroken(old, now *file) (began, ended []doc) {
	before, after := map[string]doc{}, map[string]doc{}
	if old != nil {
		for _, d := range old.broken {
			before[d.location] = d
		}
	}
	if now != nil {
		for _, d := range now.broken {
			after[d.location] = d
			if before[d.location] != d {
				began = append(began, d)
			}
		}
	}
	if old != nil {
		for _, d := range old.broken {
			if after[d.location].wrong == "" || after[d.location].id != d.id {
				ended = append(ended, d)
			}
		}
	}
	return began, ended
}

// stillBroken reports whether a broken document of any file states the same object as d. It returns false if d has no
// object name.
func (f *folder) stillBroken(d doc) bool {
	if d.id.Name == "" {
		return false
	}
	for _, file := range f.files {
		for _, b := range file.broken {
			if b.id == d.id {
				return true
			}
		}
	}
	return false
}

// events returns the differences between the emitted and the present state of the touched objects, Puts first. It marks
// these differences as emitted.
func (f *folder) events(touched touches) []object.Event {
	var puts, deletes []object.Event
	for _, id := range slices.SortedFunc(maps.Keys(touched), object.ID.Compare) {
		have, now := f.get(id)
		if now == nil {
			delete(f.definitions, id)
			if have != nil {
				deletes = append(deletes, f.withdraw(id))
			}
			continue
		}
		f.emitted[id] = now
		if have == nil || touched[id] || !bytes.Equal(have.JSON, now.JSON) || have.Location != now.Location {
			puts = append(puts, object.Event{Op: object.Put, ID: id, Object: now, Location: now.Location})
		}
	}
	return append(puts, deletes...)
}

// withdraw removes an object from the emitted state, and returns its Delete.
func (f *folder) withdraw(id object.ID) object.Event {
	e := object.Event{Op: object.Delete, ID: id, Location: f.emitted[id].Location, Why: object.Missing}
	delete(f.emitted, id)
	return e
}

// problems lists all problems of the folder, by location.
func (f *folder) problems() []object.Problem {
	var all []object.Problem
	for path, why := range f.faults {
		all = append(all, object.Problem{Location: path, Code: problem.Unreadable, Severity: problem.Error, Message: why})
	}
	for _, file := range f.files {
		for _, d := range file.broken {
			all = append(all, object.Problem{ID: d.id, Location: d.location, Code: problem.Unreadable, Severity: problem.Error, Message: d.wrong})
		}
		for _, d := range file.twice {
			all = append(all, object.Problem{ID: d.id, Location: d.location, Code: problem.Duplicate, Severity: problem.Error,
				Message: fmt.Sprintf("an object of this name in %s takes precedence", file.objects[d.id].Location)})
		}
	}
	for id, paths := range f.definitions {
		for _, path := range paths[min(1, len(paths)):] {
			all = append(all, object.Problem{ID: id, Location: f.files[path].objects[id].Location, Code: problem.Duplicate, Severity: problem.Error,
				Message: fmt.Sprintf("an object of this name in %s takes precedence; this object applies once the other is removed",
					f.emitted[id].Location)})
		}
	}
	slices.SortFunc(all, func(a, b object.Problem) int {
		return cmp.Or(strings.Compare(a.Location, b.Location), a.ID.Compare(b.ID), strings.Compare(a.Message, b.Message))
	})
	return all
}

func sumOf(data []byte) [32]byte { return sha256.Sum256(data) }
