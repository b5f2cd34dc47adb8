package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"navarch.io/navarch/store/problem"
)

// How often an object is put back that somebody else writes as well: patience times within contest, then after a pause that doubles each
// time, from contest to maxPause.
const (
	patience = 3
	contest  = time.Minute
	maxPause = 16 * time.Minute
)

// queue is which object is to be written next. It is pure: it knows no clock, and asks nobody. Not safe for concurrent use.
type queue[O any] struct {
	epoch   int64
	listed  bool // there is complete
	want    map[Key]Desired[O]
	there   map[Key]Found[O]
	entries map[Key]*entry // of what is wanted
	line    line           // those that may differ
}

// entry is what is known of one object that is wanted.
type entry struct {
	waits     bool // it is in the line
	compared  bool // neither what is there nor what is wanted has changed since Draw found them to differ
	right     bool // it was as it is wanted now: if it differs, somebody else has written it
	notBefore time.Time
	failures  int    // in a row
	conflicts int    // in a row: others wrote it between its being read and written
	wrong     string // why the last write failed
	left      string // why it is left as it is (Desired.Left)
	putBack   []time.Time
	contested int    // how often in a row patience was over
	by        string // who wrote against this process last
}

func newQueue[O any](epoch int64) *queue[O] {
	return &queue[O]{epoch: epoch, want: map[Key]Desired[O]{}, there: map[Key]Found[O]{}, entries: map[Key]*entry{}, line: newLine()}
}

// wants takes what is wanted now in place of what was before.
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

// enqueue puts an object in line of which something has changed: what is there, or what is wanted.
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

// replace takes a complete list. One that is older than what was written meanwhile costs a conflict.
func (q *queue[O]) replace(all map[Key]Found[O]) {
	q.listed, q.there = true, all
	for k := range q.entries {
		q.enqueue(k)
	}
}

// observe takes a change, unless it was before what is known.
func (q *queue[O]) observe(k Key, f Found[O]) {
	if f.Version >= q.there[k].Version {
		q.reread(k, f)
	}
}

// reread takes an object as it was read.
func (q *queue[O]) reread(k Key, f Found[O]) {
	if _, wanted := q.want[k]; !wanted && f.Object == nil {
		delete(q.there, k)
		return
	}
	q.there[k] = f
	q.enqueue(k)
}

// next is the first object in the line that differs and may be written now, and what to write; nil: none for so long, if nothing changes.
// It stays first, until it is taken.
func (q *queue[O]) next(now time.Time) (key Key, object *O, wait time.Duration) {
	wait = time.Hour
	if !q.listed {
		return Key{}, nil, wait
	}
	q.line.each(func(k Key) said {
		e, want, there := q.entries[k], q.want[k], q.there[k].Object
		due := e.notBefore.Sub(now)
		if due > 0 && e.compared { // an object may have a megabyte: it is not drawn again each time that another one changes
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

// take is next, and what it gives goes to the end of the line: it is being written.
func (q *queue[O]) take(now time.Time) (Key, *O) {
	k, object, _ := q.next(now)
	if object != nil {
		q.line.took()
	}
	return k, object
}

// wrote takes in that an object was written. It returns who writes against this process, the first time that patience is over.
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
		by = e.putBackAt(now, cmp.Or(before.By, "somebody else"))
	}
	e.right, e.compared = q.want[k].Draw(f.Object, q.epoch) == nil, false // something else may be wanted since it was sent
	e.worked()
	return by
}

// putBackAt notes that an object was put back, and makes it wait where that happens too often.
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

// pause is how long a contested object is left as the others write it.
func (e *entry) pause() time.Duration { return min(contest<<min(e.contested-1, 10), maxPause) }

// over is when an object that nobody has written any more is not contested any more.
func (e *entry) over() time.Time { return e.putBack[len(e.putBack)-1].Add(2 * e.pause()) }

// failed takes in that an object could not be written: it is tried again after 1, 2, 4 ... 64 seconds.
func (q *queue[O]) failed(k Key, err error, now time.Time) {
	if e := q.entries[k]; e != nil {
		e.wrong, e.notBefore = problem.Cause(err), now.Add(time.Second<<min(e.failures, 6))
		e.failures++
	}
}

// conflicted takes in that somebody else had written an object between its being read and written, and what it is now. The first time it is written again at once;
// an object that somebody writes without a pause is one that cannot be written.
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

// worked forgets why writes failed.
func (e *entry) worked() { e.wrong, e.failures, e.conflicts = "", 0, 0 }

// failing says whether any write failed the last time.
func (q *queue[O]) failing() bool {
	for _, e := range q.entries {
		if e.wrong != "" {
			return true
		}
	}
	return false
}

// problems names the objects that cannot be written, that are left as they are, or that somebody else writes as well: so many at most, and how many more.
func (q *queue[O]) problems(now time.Time, most int) (all []Problem) {
	for k, e := range q.entries {
		switch {
		case e.wrong != "":
			all = append(all, Problem{k, "cannot be written: " + e.wrong})
		case e.left != "":
			all = append(all, Problem{k, e.left})
		case e.contested > 0 && now.Before(e.over()):
			all = append(all, Problem{k, fmt.Sprintf("%s writes it with another content each time that it is put back; it is put back after "+
				"pauses of %v to %v", e.by, contest, maxPause)})
		}
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	if more := len(all) - most; more > 0 {
		all = append(all[:most], Problem{Message: fmt.Sprintf("%d more cannot be written, are left as they are, or are written by somebody "+
			"else as well", more)})
	}
	return all
}
