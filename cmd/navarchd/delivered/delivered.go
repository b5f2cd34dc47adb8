// Package delivered decides what the status of Istio's objects in the config cluster says: which problems an object has, and whether its present
// generation was acknowledged by the proxies. It is pure: no clock, no store, no API server. Writing is store/status's.
//
// Owns: of each object its uid and generation, at which revision of the store that generation is, and whether it was acknowledged once.
// Reads: events of the source, problems, what replicas answer (push/acknowledged).  Never: counts proxies, nor says anything new because one
// joins or leaves.
package delivered

import (
	"slices"
	"time"

	"navarch.io/navarch/push/acknowledged"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/status"
)

const (
	// unknownAfter is how long a generation may take to be acknowledged before its status says that this is not known.
	unknownAfter = 30 * time.Second
	// keep is for how long a problem that a replica found, or a refusal, counts after it was last listed: lists end with the replicas, and
	// others say the same a minute later.
	keep = 2 * time.Minute
)

// Objects is every object of Istio's kinds that the source has emitted. Its owner serialises its methods.
type Objects struct {
	all    map[object.ID]*entry
	events uint64 // objects taken so far
	stored bool   // everything was in the store once
	found  map[model.Problem]time.Time
	refuse map[model.Key]refusal
	due    time.Time // when time alone changes something; zero: never
}

type entry struct {
	uid        string
	generation int64
	event      uint64    // that brought this generation
	since      time.Time // when that was
	revision   int64     // at which the store has it; 0: not known yet
	settled    bool      // it was acknowledged once
	status     string    // what was said last
	changed    time.Time // since when
}

type refusal struct {
	text string
	last time.Time
}

// Facts are what is known beside the objects.
type Facts struct {
	Problems     []object.Problem // of the ingester
	Found        []model.Problem  // by replicas
	Refused      []acknowledged.Refusal
	Acknowledged int64 // the revision up to which all replicas have
}

// New knows no objects.
func New() *Objects {
	return &Objects{all: map[object.ID]*entry{}, found: map[model.Problem]time.Time{}, refuse: map[model.Key]refusal{}}
}

// has says whether objects of an ID's kind have a status that is written.
func has(id object.ID) bool {
	return id.Name != "" && slices.Contains(status.IstioKinds, status.Kind{Group: id.Group, Kind: id.Kind})
}

// Take takes what the source emitted.
func (o *Objects) Take(events []object.Event, now time.Time) {
	for _, e := range events {
		switch {
		case e.Op == object.Forget:
			*o = *New()
		case !has(e.ID):
		case e.Op == object.Delete:
			delete(o.all, e.ID)
			o.events++
		case e.Op == object.Put:
			was := o.all[e.ID]
			if was != nil && was.uid == e.Object.UID && was.generation == e.Object.Generation {
				continue
			}
			o.events++
			o.all[e.ID] = &entry{uid: e.Object.UID, generation: e.Object.Generation, event: o.events, since: now}
			o.forget(e.ID) // what was found in the generation before
		}
	}
}

// forget drops what is only kept because it was listed a while ago.
func (o *Objects) forget(id object.ID) {
	for p := range o.found {
		if idOf(p.Key) == id {
			delete(o.found, p)
		}
	}
	for key := range o.refuse {
		if idOf(key) == id {
			delete(o.refuse, key)
		}
	}
}

// Taken is how many changes of objects were taken so far.
func (o *Objects) Taken() uint64 { return o.events }

// Stored says that everything that was taken up to a count is in the store at a revision.
func (o *Objects) Stored(taken uint64, revision int64) {
	for id, e := range o.all {
		if e.revision == 0 && e.event <= taken {
			e.revision, e.settled = revision, workload(id) // nobody asks for those
		}
	}
	o.stored = true
}

// Awaited is the newest revision that a generation waits for to be acknowledged; 0: none does.
func (o *Objects) Awaited() (revision int64) {
	for _, e := range o.all {
		if !e.settled {
			revision = max(revision, e.revision)
		}
	}
	return revision
}

// workload says whether an object comes and goes with its workload, as a WorkloadEntry does: nothing is said of it unless something is wrong.
func workload(id object.ID) bool { return id.Kind == "WorkloadEntry" }

// Due is when Reports may come to something else although no fact changes; the zero time: never.
func (o *Objects) Due() time.Time { return o.due }

// Reports is what the objects' status is to say, by kind; nil: not before everything was stored once.
func (o *Objects) Reports(now time.Time, f Facts) map[status.Kind]map[status.Key]status.Report {
	if !o.stored {
		return nil
	}
	o.due = time.Time{}
	o.remember(now, f)
	problems := o.problems(f)
	refused := map[object.ID]string{}
	for key, r := range o.refuse {
		refused[idOf(key)] = r.text
	}
	out := map[status.Kind]map[status.Key]status.Report{}
	for id, e := range o.all {
		if e.revision == 0 {
			continue // its problems are not known yet
		}
		e.settled = e.settled || e.revision <= f.Acknowledged
		text, is := refused[id]
		kind := status.Kind{Group: id.Group, Kind: id.Kind}
		if out[kind] == nil {
			out[kind] = map[status.Key]status.Report{}
		}
		out[kind][status.Key{Namespace: id.Namespace, Name: id.Name}] = o.report(now, id, e, problems[id], text, is)
	}
	return out
}

// report is one object's.
func (o *Objects) report(now time.Time, id object.ID, e *entry, problems []detail, refused string, isRefused bool) status.Report {
	r := status.Report{UID: e.uid, Generation: e.generation, Messages: messagesOf(problems, isRefused)}
	d := &r.Delivered
	switch {
	case len(problems) > 0 && problems[0].Severity == problem.Error:
		d.Status, d.Reason, d.Message = "False", string(problems[0].Code), textOf(problems)
	case isRefused:
		d.Status, d.Reason, d.Message = "False", string(problem.Refused), cut("proxies refuse what is made of it, and keep what they had: "+refused)
	case e.settled:
		d.Status, d.Reason, d.Message = "True", "Acknowledged", textOf(problems)
		if workload(id) {
			d.Only = status.WherePresent
		}
	case now.Sub(e.since) < unknownAfter:
		d.Only = status.Nowhere
		o.wake(e.since.Add(unknownAfter))
		return r
	default:
		d.Status, d.Reason, d.Message = "Unknown", "NotAcknowledged", "not all replicas have said that their proxies have it; /debug/syncz of each shows them"
		d.Only = status.WhereUnsaid
	}
	if e.status != d.Status {
		e.status, e.changed = d.Status, now
	}
	d.Since = e.changed
	return r
}

// wake notes that something changes at a time.
func (o *Objects) wake(at time.Time) {
	if o.due.IsZero() || at.Before(o.due) {
		o.due = at
	}
}
