package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"navarch.io/navarch/store/problem"
)

// Limits for restoring an object. To restore an object is to write it again after another writer has changed it. The
// first restorations within the duration contest begin no pause. The constant patience is the number of these
// restorations. Each further restoration begins a pause. The pauses double from contest to maxPause.
const (
	patience = 3
	contest  = time.Minute
	maxPause = 16 * time.Minute
)

// queue decides which object is written next. It is pure: time is an argument, and it sends no requests. It is not safe
// for concurrent use.
type queue[O any] struct {
	epoch   int64
	listed  bool // queue.there is complete
	want    map[Key]Desired[O]
	there   map[Key]Found[O]
	entries map[Key]*entry // one for each key of want
	line    line           // keys of objects that may differ from their target
}

// entry is the state of one object that is wanted.
type entry struct {
	waits     bool // the key is in the line
	compared  bool // Draw found a difference, and neither the object nor its target has changed since
	right     bool // the object had its target state, so a new difference was made by another writer
	notBefore time.Time
	failures  int    // consecutive failed writes
	conflicts int    // consecutive conflicts: another writer wrote between the read and the write of this process
	wrong     string // cause of the last failed write
	left      string // reason for which the object is left as it is (Desired.Left)
	putBack   []time.Time
	contested int    // number of consecutive restorations that began a pause
	by        string // the writer whose change was last replaced
}

func newQueue[O any](epoch int64) *queue[O] {
	return &queue[O]{epoch: epoch, want: map[Key]Desired[O]{}, there: map[Key]Found[O]{}, entries: map[Key]*entry{}, line: newLine()}
}

// wants replaces the target states.
func (q *queue[O]) wants(all map[Key]Desired[O]) {
	before := q.want
	q.want = all
	for k := range q.entries {
		if _, still := all[k]; !still {
			delete(q.entries, k)
		}
	}
	q.line.drop(func(k Key) bool { return q.entries[k] == nil })
	fresh := make([]Key, 0)
	for k, d := range all {
		e := q.entries[k]
		if e == nil {
			e = &entry{}
			q.entries[k] = e
		} else if before[k].Version == d.Version {
			continue
		}
		e.right = false
		fresh = append(fresh, k)
	}
	slices.SortFunc(fresh, func(a, b Key) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) })
	for _, k := range fresh {
		q.enqueue(k)
	}
}

// enqueue puts an object into the line after a change of the object or of its target.
func (q *queue[O]) enqueue(k Key) {
	e := q.entries[k]
	if e == nil {
		return
	}
	if e.compared = false; !e.waits {
		e.waits = true
		q.line.push(q.want[k].Turn, k)
	}
}

// replace replaces the known objects by a complete list. If the list is older than a write, the next write fails with a
// conflict.
func (q *queue[O]) replace(all map[Key]Found[O]) {
	q.listed, q.there = true, all
	for k := range q.entries {
		q.enqueue(k)
	}
}

// observe stores a change, unless it is older than the known object.
func (q *queue[O]) observe(k Key, f Found[O]) {
	if f.Version >= q.there[k].Version {
		q.reread(k, f)
	}
}

// reread stores an object that was read again. It forgets an absent object without a target.
func (q *queue[O]) reread(k Key, f Found[O]) {
	if _, wanted := q.want[k]; !wanted && f.Object == nil {
		delete(q.there, k)
		return
	}
	q.there[k] = f
	q.enqueue(k)
}

// next returns the key of the first object in the line that differs from its target and may be written now, and the
// value to write. If the returned object is nil, nothing has to be written within the duration wait, unless something
// changes. The key stays first until take is called.
func (q *queue[O]) next(now time.Time) (key Key, object *O, wait time.Duration) {
	wait = time.Hour
	if !q.listed {
		return Key{}, nil, wait
	}
	q.line.each(func(k Key) outcome {
		e, want, there := q.entries[k], q.want[k], q.there[k].Object
		due := e.notBefore.Sub(now)
		if due > 0 && e.compared { // Draw is not repeated when another object changes, since it is slow for large objects
			wait = min(wait, due)
			return waits
		}
		drawn := want.Draw(there, q.epoch)
		e.left = ""
		if drawn == nil {
			e.waits, e.right = false, true
			e.worked()
			if want.Left != nil {
				e.left = want.Left(there)
			}
			return leaves
		}
		if e.compared = true; due > 0 {
			wait = min(wait, due)
			return waits
		}
		key, object, wait = k, drawn, 0
		return stops
	})
	return key, object, wait
}

// take returns the key and the object of next. It moves the returned key to the end of the line, because the object is
// being written.
func (q *queue[O]) take(now time.Time) (Key, *O) {
	k, object, _ := q.next(now)
	if object != nil {
		q.line.rotate()
	}
	return k, object
}

// wrote stores the result of a write. If this write is the first restoration beyond the limit patience, it returns the
// name of the other writer. If not, it returns the empty string.
func (q *queue[O]) wrote(k Key, f Found[O], now time.Time) (by string) {
	before := q.there[k]
	if f.Version >= before.Version {
		q.there[k] = f
	}
	e := q.entries[k]
	if e == nil {
		return ""
	}
	if e.right {
		by = e.putBackAt(now, cmp.Or(before.By, "another writer"))
	}
	e.right, e.compared = q.want[k].Draw(f.Object, q.epoch) == nil, false // the target may have changed since the write began
	e.worked()
	return by
}

// putBackAt counts a restoration at the given time, and sets a pause after too many restorations. The argument by is
// the name of the other writer. If this restoration is the first beyond the limit patience, putBackAt returns this
// name. If not, it returns the empty string.
func (e *entry) putBackAt(now time.Time, by string) string {
	e.by = by
	if e.contested > 0 && now.Before(e.over()) {
		e.contested++
		e.putBack = append(e.putBack[:0], now)
		e.notBefore = now.Add(e.pause())
		return ""
	}
	e.contested = 0
	e.putBack = slices.DeleteFunc(e.putBack, func(at time.Time) bool { return now.Sub(at) >= contest })
	if e.putBack = append(e.putBack, now); len(e.putBack) <= patience {
		return ""
	}
	e.contested, e.putBack = 1, []time.Time{now}
	e.notBefore = now.Add(e.pause())
	return by
}

// pause returns the time for which a contested object is not restored.
func (e *entry) pause() time.Duration { return min(contest<<min(e.contested-1, 10), maxPause) }

// over returns the time at which a contested object stops being contested if no other writer changes it any more.
func (e *entry) over() time.Time { return e.putBack[len(e.putBack)-1].Add(2 * e.pause()) }

// failed stores a failed write. The write is repeated after 1, 2, 4 ... 64 seconds.
func (q *queue[O]) failed(k Key, err error, now time.Time) {
	if e := q.entries[k]; e != nil {
		e.wrong, e.notBefore = problem.Cause(err), now.Add(time.Second<<min(e.failures, 6))
		e.failures++
	}
}

// conflicted stores the state of an object after a conflict: another writer changed the object between the read and the
// write of this process. The first conflict is retried immediately. Each further conflict in a row counts as a failure
// and returns an error.
func (q *queue[O]) conflicted(k Key, f Found[O], now time.Time) (err error) {
	if e := q.entries[k]; e != nil {
		if e.conflicts++; e.conflicts > 1 {
			err = fmt.Errorf("%w, %d times in a row, after it was read and before it was written", ErrConflict, e.conflicts)
			q.failed(k, err, now)
		}
	}
	q.reread(k, f)
	return err
}

// worked clears the failures of an object.
func (e *entry) worked() { e.wrong, e.failures, e.conflicts = "", 0, 0 }

// failing reports whether the last write of any object failed.
func (q *queue[O]) failing() bool {
	for _, e := range q.entries {
		if e.wrong != "" {
			return true
		}
	}
	return false
}

// problems lists the objects that cannot be written, are left as they are, or are contested. The last argument bounds
// the number of named objects. One further problem counts the others.
func (q *queue[O]) problems(now time.Time, most int) (all []Problem) {
	for k, e := range q.entries {
		switch {
		case e.wrong != "":
			all = append(all, Problem{k, "cannot be written: " + e.wrong})
		case e.left != "":
			all = append(all, Problem{k, e.left})
		case e.contested > 0 && now.Before(e.over()):
			all = append(all, Problem{k, fmt.Sprintf("%s replaces the content after each write of the leader; the leader writes the object "+
				"again after pauses of %v to %v", e.by, contest, maxPause)})
		}
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	if more := len(all) - most; more > 0 {
		all = append(all[:most], Problem{Message: fmt.Sprintf("%d more objects cannot be written, are left unchanged, or are replaced by "+
			"another writer", more)})
	}
	return all
}
