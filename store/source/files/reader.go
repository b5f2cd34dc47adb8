package files

import (
	"bytes"
	"fmt"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
)

// reading is the result of reading one file once.
type reading struct {
	path    string
	base    string // folder with which path begins; its sub-folders may name clusters; empty: path is relative to the folder
	missing bool   // there is no such file
	err     error  // reason why the file, which exists, cannot be read
	data    []byte
	docs    []doc // the parsed data; nil: it is parsed when the reading is accepted
}

// reader decides which readings are accepted. A reading that removes objects, or seems truncated, must be repeated
// after a grace period. The reason is that editors and copying tools remove or truncate a file before they write it.
// The reader has no clock. The time is an argument.
type reader struct {
	*folder
	cluster string // name of the config cluster
	grace   time.Duration
	pending map[string]*pending
	parsed  int                   // files parsed so far
	skipped func(location string) // receives each document that is not an object, once for each content of its file
}

// pending is a change that is accepted once it is read again unchanged.
type pending struct {
	sum   [32]byte
	gone  bool
	file  *file
	since time.Time
}

func newReader(cluster string, grace time.Duration) *reader {
	return &reader{folder: newFolder(), cluster: cluster, grace: grace, pending: map[string]*pending{}, skipped: func(string) {}}
}

// step applies readings that were made together, and returns the events. If trust is true, all readings are accepted
// at once.
func (r *reader) step(now time.Time, readings []reading, trust bool) []object.Event {
	changes := map[string]*file{}
	yielder := loop.NewYielder()
	for _, l := range readings {
		yielder.Yield()
		if file, believed := r.acceptReading(now, l, trust); believed {
			changes[l.path] = file
			delete(r.pending, l.path)
			if file != nil {
				for _, d := range file.foreign {
					r.skipped(d.location)
				}
			}
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return r.apply(changes)
}

// acceptReading returns the state of a file after a reading (nil: the file is gone), and reports whether the reading is
// accepted. If it is not accepted, the present state stays in effect.
func (r *reader) acceptReading(now time.Time, l reading, trust bool) (*file, bool) {
	have := r.files[l.path]
	delete(r.faults, l.path)
	if l.err != nil {
		r.faults[l.path] = fmt.Sprintf("cannot be read: %v", l.err)
		delete(r.pending, l.path)
		return nil, false
	}
	if l.missing {
		if have == nil {
			delete(r.pending, l.path)
			return nil, false
		}
		return nil, trust || r.confirmed(now, l.path, &pending{gone: true})
	}
	if blank(l.data) && have != nil && len(have.objects) > 0 {
		r.faults[l.path] = fmt.Sprintf("is empty and counts as half-written: its %d objects stay in effect until the file is written or removed",
			len(have.objects))
		delete(r.pending, l.path)
		return nil, false
	}
	sum := sumOf(l.data)
	if have != nil && have.sum == sum {
		delete(r.pending, l.path)
		return nil, false
	}
	if p := r.pending[l.path]; p != nil && !p.gone && p.sum == sum {
		return p.file, r.confirmed(now, l.path, p)
	}
	r.parsed++
	docs := l.docs
	if docs == nil {
		docs = parseUnder(r.cluster, l.base, l.path, l.data)
	}
	next := newFile(sum, docs, have)
	if trust || !suspect(have, next, l.data) {
		return next, true
	}
	return next, r.confirmed(now, l.path, &pending{sum: sum, file: next})
}

// suspect reports whether a content may be truncated, because objects are missing or the last line does not end with a
// line feed.
func suspect(have, next *file, data []byte) bool {
	if !bytes.HasSuffix(data, []byte("\n")) {
		return true
	}
	if have != nil {
		for id := range have.objects {
			if next.objects[id] == nil {
				return true
			}
		}
	}
	return false
}

// confirmed reports whether the pending change of a path equals like and has been pending for the grace period. A
// different change becomes the pending one.
func (r *reader) confirmed(now time.Time, path string, like *pending) bool {
	have := r.pending[path]
	if have == nil || have.gone != like.gone || have.sum != like.sum {
		like.since = now
		r.pending[path] = like
		return r.grace == 0
	}
	return now.Sub(have.since) >= r.grace
}

// due returns the time at which the pending paths are read again. It returns false if no path is pending. All pending
// paths are read at once, so that objects that vanish together are removed together. The time is at most four grace
// periods after the first pending change.
func (r *reader) due() (time.Time, bool) {
	var first, last time.Time
	for _, p := range r.pending {
		if first.IsZero() || p.since.Before(first) {
			first = p.since
		}
		if p.since.After(last) {
			last = p.since
		}
	}
	if first.IsZero() {
		return time.Time{}, false
	}
	due := last.Add(r.grace)
	if limit := first.Add(4 * r.grace); limit.Before(due) {
		due = limit
	}
	return due, true
}
