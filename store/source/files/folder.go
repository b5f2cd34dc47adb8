package files

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// file is what stands of one file: its good objects, and those that stood before and cannot be read now.
type file struct {
	sum     [32]byte
	objects map[object.ID]*object.Object
	broken  []doc
	twice   []doc // objects that the file has before already
}

// newFile makes what stands from the documents of a file and what stood of it before (nil: nothing).
func newFile(sum [32]byte, docs []doc, before *file) *file {
	f := &file{sum: sum, objects: map[object.ID]*object.Object{}}
	for _, d := range docs {
		switch {
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

// folder is what was told of all files. It is pure: no clock, no file system.
type folder struct {
	allowEmpty bool
	files      map[string]*file
	claims     map[object.ID][]string // paths that hold the object, the one that had it first in front
	told       map[object.ID]*object.Object
	held       map[object.ID]bool // told, and in no file any more: the shrink guard holds it
	faults     map[string]string  // path -> why its present content is not used
	guard      guard
}

func newFolder(allowEmpty bool) *folder {
	return &folder{allowEmpty: allowEmpty, files: map[string]*file{}, claims: map[object.ID][]string{},
		told: map[object.ID]*object.Object{}, held: map[object.ID]bool{}, faults: map[string]string{},
		guard: guard{vanished: map[object.ID][]vanished{}, parents: map[object.ID]time.Time{}}}
}

// apply takes new contents of some files (nil: the file is gone), all read at once, and says what that changes.
func (f *folder) apply(at time.Time, changes map[string]*file) []object.Event {
	touched := touches{}
	var events []object.Event
	paths := make([]string, 0, len(changes))
	for path := range changes {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	var over []doc // broken documents that are no more
	for _, path := range paths {
		old, now := f.files[path], changes[path]
		f.claim(path, old, now, touched)
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
		if d.id.Name != "" && len(f.claims[d.id]) > 0 {
			touched[d.id] = true // it was broken in between
		} else if !f.stillBroken(d) && !f.held[d.id] {
			events = append(events, object.Event{Op: object.Delete, ID: d.id, Location: d.location})
		}
	}
	return append(events, f.events(at, touched)...)
}

// touches are the objects that a change is about; true: told again even if it is the same.
type touches map[object.ID]bool

// note adds an object, and leaves it as it is where it was there.
func (t touches) note(id object.ID) {
	if !t[id] {
		t[id] = false
	}
}

// claim moves the claims on objects from one content of a path to the next.
func (f *folder) claim(path string, old, now *file, touched touches) {
	if old != nil {
		for id := range old.objects {
			if now == nil || now.objects[id] == nil {
				f.claims[id] = slices.DeleteFunc(f.claims[id], func(p string) bool { return p == path })
				touched.note(id)
			}
		}
	}
	if now != nil {
		for id := range now.objects {
			if old == nil || old.objects[id] == nil {
				f.claims[id] = append(f.claims[id], path)
			}
			touched.note(id)
		}
	}
}

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

// stillBroken says whether an object that is named in full is broken in another document.
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

// tell compares what is told of the touched objects with what holds now.
func (f *folder) events(at time.Time, touched touches) []object.Event {
	ids := make([]object.ID, 0, len(touched))
	for id := range touched {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, object.ID.Compare)
	var gone []object.ID
	var events []object.Event
	before := f.liveByKind()
	for _, id := range ids {
		have := f.told[id]
		if len(f.claims[id]) == 0 {
			delete(f.claims, id)
			if have != nil && !f.held[id] {
				gone = append(gone, id)
			}
			continue
		}
		delete(f.held, id)
		delete(f.guard.parents, id)
		now := f.files[f.claims[id][0]].objects[id]
		f.told[id] = now
		if have == nil || touched[id] || !bytes.Equal(have.JSON, now.JSON) || have.Location != now.Location {
			events = append(events, object.Event{Op: object.Put, ID: id, Object: now, Location: now.Location})
		}
	}
	f.hold(at, gone, before)
	gone = append(gone, f.excused(touched)...)
	for _, id := range gone {
		if !f.held[id] {
			events = append(events, object.Event{Op: object.Delete, ID: id, Location: f.told[id].Location})
			delete(f.told, id)
		}
	}
	return events
}

// problems is everything that is wrong with the folder, by file.
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
				Message: fmt.Sprintf("is in %s already, which wins", file.objects[d.id].Location)})
		}
	}
	for id, paths := range f.claims {
		for _, path := range paths[min(1, len(paths)):] {
			all = append(all, object.Problem{ID: id, Location: f.files[path].objects[id].Location, Code: problem.Duplicate, Severity: problem.Error,
				Message: fmt.Sprintf("is in %s too, which wins; this one applies when that one goes", f.told[id].Location)})
		}
	}
	held := map[object.ID]int{}
	for id := range f.held {
		held[kindOf(id)]++
	}
	for kind, n := range held {
		all = append(all, object.Problem{ID: kind, Code: problem.Held, Severity: problem.Error, Message: fmt.Sprintf(
			"%d vanished at once: the last good ones are held; put them back, or accept the removal (navarchctl store held; --allow-empty)", n)})
	}
	slices.SortFunc(all, func(a, b object.Problem) int {
		return cmp.Or(strings.Compare(a.Location, b.Location), a.ID.Compare(b.ID), strings.Compare(a.Message, b.Message))
	})
	return all
}

func sumOf(data []byte) [32]byte { return sha256.Sum256(data) }
