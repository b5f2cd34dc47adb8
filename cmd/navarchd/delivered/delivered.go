// Package delivered decides the content of the status of Istio's objects in the config cluster: an object's problems,
// and whether the proxies have acknowledged its present generation. It has no clock and does no I/O. store/status
// writes the statuses.
//
// Owns: for each object its uid and generation, the generation's revision in the store, and whether it was ever
// acknowledged.
// Reads: events of the source, problems, replicas' answers (push/acknowledged).
// Never: counts proxies; changes a status because a proxy joins or leaves.
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
	// unknownAfter is the time without acknowledgement after which the condition of a generation has status Unknown.
	unknownAfter = 30 * time.Second
	// keep is the time for which a problem or refusal counts after a replica last listed it. A list ends with its
	// replica, and other replicas list the same problems within a minute.
	keep = 2 * time.Minute
)

// Objects are all objects of Istio's kinds that the source has emitted. Make it with New. Not safe for concurrent use.
type Objects struct {
	all    map[object.ID]*entry
	events uint64 // number of objects processed
	stored bool   // everything has been in the store once
	found  map[model.Problem]time.Time
	refuse map[model.Key]refusal
	due    time.Time // next change that time alone causes; zero: no such change
}

type entry struct {
	uid        string
	generation int64
	event      uint64    // the event that brought this generation
	since      time.Time // time of that event
	revision   int64     // the generation's revision in the store; 0: unknown yet
	settled    bool      // the generation needs no acknowledgement, or was acknowledged
	status     string    // last reported status
	changed    time.Time // time since which status has been reported
}

type refusal struct {
	text string
	last time.Time
}

// Facts are the inputs of Reports besides the objects. Reports does not keep them.
type Facts struct {
	Problems     []object.Problem       // that the ingester found
	Found        []model.Problem        // that replicas found, as they list them now
	Refused      []acknowledged.Refusal // that replicas list now
	Acknowledged int64                  // revision of the store that all replicas have acknowledged
}

// New returns Objects without any object.
func New() *Objects {
	return &Objects{all: map[object.ID]*entry{}, found: map[model.Problem]time.Time{}, refuse: map[model.Key]refusal{}}
}

// has reports whether objects of an ID's kind have a status that is written.
func has(id object.ID) bool {
	return id.Name != "" && slices.Contains(status.IstioKinds, status.Kind{Group: id.Group, Kind: id.Kind})
}

// Take processes events of the source, which arrived at the time now. It ignores objects whose status is not written,
// generations that have not changed, and objects that cannot be read. object.Forget resets everything.
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
			o.forget(e.ID) // findings about the previous generation
		}
	}
}

// forget drops problems and refusals of an object that replicas listed earlier.
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

// Taken returns the number of changes that Take has processed since the last object.Forget. It is an argument of
// Stored.
func (o *Objects) Taken() uint64 { return o.events }

// Stored records that the store has the changes up to taken, an earlier result of Taken, at a revision.
func (o *Objects) Stored(taken uint64, revision int64) {
	for id, e := range o.all {
		if e.revision == 0 && e.event <= taken {
			e.revision, e.settled = revision, workload(id) // the status of these needs no acknowledgement
		}
	}
	o.stored = true
}

// Awaited returns the highest revision of a stored generation that was not acknowledged by the proxies at the last
// call of Reports; 0: no stored generation waits.
func (o *Objects) Awaited() (revision int64) {
	for _, e := range o.all {
		if !e.settled {
			revision = max(revision, e.revision)
		}
	}
	return revision
}

// workload reports whether an object comes and goes with its workload, as a WorkloadEntry does. Such an object has a
// status only if it has a problem.
func workload(id object.ID) bool { return id.Kind == "WorkloadEntry" }

// Due returns the time at which the result of Reports changes even without other facts, by the last call of Reports;
// zero: the result does not change.
func (o *Objects) Due() time.Time { return o.due }

// Reports returns the status of each object at the time now, by kind and then by namespace and name. Status False means
// an error of the object, or a refusal by proxies. Otherwise True means that all replicas have acknowledged the
// generation. Unknown means that neither has come within 30 s. During these 30 s the report leaves the object's
// condition as it is. A WorkloadEntry needs no acknowledgement. Problems and refusals count for 2 minutes after a
// replica last listed them.
//
// Objects that are not in the store yet are omitted. The result is nil until Stored is called after New or
// object.Forget. The caller owns the result.
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

// report returns the status of one object.
func (o *Objects) report(now time.Time, id object.ID, e *entry, problems []detail, refused string, isRefused bool) status.Report {
	r := status.Report{UID: e.uid, Generation: e.generation, Messages: messagesOf(problems, isRefused)}
	d := &r.Delivered
	switch {
	case len(problems) > 0 && problems[0].Severity == problem.Error:
		d.Status, d.Reason, d.Message = "False", string(problems[0].Code), textOf(problems)
	case isRefused:
		d.Status, d.Reason, d.Message = "False", string(problem.Refused),
			cut("proxies refuse its configuration and keep the previous one: "+refused)
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
		d.Status, d.Reason, d.Message = "Unknown", "NotAcknowledged",
			"some replicas have not reported that their proxies have it; /debug/syncz of each replica shows the proxies"
		d.Only = status.WhereUnsaid
	}
	if e.status != d.Status {
		e.status, e.changed = d.Status, now
	}
	d.Since = e.changed
	return r
}

// wake records that a status changes at a time.
func (o *Objects) wake(at time.Time) {
	if o.due.IsZero() || at.Before(o.due) {
		o.due = at
	}
}
