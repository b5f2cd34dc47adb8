// Package delivered computes the status of each Istio object in the config cluster (the cluster that stores Istio's
// configuration). A status contains the object's problems, and states whether the proxies have acknowledged the present
// generation. The package has no clock and does no I/O. store/status writes the statuses.
//
// Owns: for each object its UID, its generation, the store revision that has the generation, and whether the generation
// was ever acknowledged.
// Reads: events of changed objects, problems of objects, and the replicas' reports on acknowledgements and refusals.
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
	// keep is the time for which a problem or refusal counts after a replica last listed it. If that replica ends,
	// other replicas list the same problem within a minute.
	keep = 2 * time.Minute
)

// Objects tracks the objects from the source whose status is written. Make it with New. It is not safe for concurrent
// use.
type Objects struct {
	all    map[object.ID]*entry
	events uint64 // number of changes processed, for Taken
	stored bool   // Stored was called
	found  map[model.Problem]time.Time
	refuse map[model.Key]refusal
	due    time.Time // when the reports change next if the facts stay; zero: never
}

type entry struct {
	uid        string
	generation int64
	event      uint64    // value of Objects.events for this generation
	since      time.Time // arrival time of this generation
	revision   int64     // the generation's revision in the store; 0: unknown yet
	settled    bool      // the generation needs no acknowledgement, or was acknowledged
	status     string    // last reported status of the condition
	changed    time.Time // time of the last change of status
}

type refusal struct {
	text string
	last time.Time
}

// Facts are the inputs of Reports in addition to the tracked objects. Reports does not keep the slices.
type Facts struct {
	Problems     []object.Problem       // problems that the ingester found
	Found        []model.Problem        // problems that replicas list now
	Refused      []acknowledged.Refusal // refusals that replicas list now
	Acknowledged int64                  // revision of the store that all replicas have acknowledged
}

// New returns an empty Objects.
func New() *Objects {
	return &Objects{all: map[object.ID]*entry{}, found: map[model.Problem]time.Time{}, refuse: map[model.Key]refusal{}}
}

// has reports whether the status of the object with this ID is written.
func has(id object.ID) bool {
	return id.Name != "" && slices.Contains(status.IstioKinds, status.Kind{Group: id.Group, Kind: id.Kind})
}

// Take processes events from the source. The argument now is their time of arrival. Take ignores objects whose status
// is not written, unchanged generations, and objects that cannot be read. object.Forget resets everything.
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

// forget drops the problems and refusals that replicas listed for an object.
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

// Taken returns the number of changes that Take has processed since the last object.Forget. The number is an argument
// of Stored.
func (o *Objects) Taken() uint64 { return o.events }

// Stored records that the store contains the first changes that Take processed, as of the given revision. The argument
// taken is the number of these changes: an earlier result of Taken.
func (o *Objects) Stored(taken uint64, revision int64) {
	for id, e := range o.all {
		if e.revision == 0 && e.event <= taken {
			e.revision, e.settled = revision, workload(id) // a WorkloadEntry needs no acknowledgement
		}
	}
	o.stored = true
}

// Awaited returns the highest store revision among the generations that still need an acknowledgement. It returns 0 if
// no stored generation needs one. A new acknowledgement counts after the next call of Reports.
func (o *Objects) Awaited() (revision int64) {
	for _, e := range o.all {
		if !e.settled {
			revision = max(revision, e.revision)
		}
	}
	return revision
}

// workload reports whether an object is a WorkloadEntry, which comes and goes with its workload. A WorkloadEntry gets a
// new condition only for an error or a refusal.
func workload(id object.ID) bool { return id.Kind == "WorkloadEntry" }

// Due returns the time at which the result of Reports changes next even if its facts stay the same. The last call of
// Reports computes this time. Zero means that the result does not change.
func (o *Objects) Due() time.Time { return o.due }

// Reports returns the status of each object at the time now, by kind and then by namespace and name. Status False means
// that the object has an error, or that proxies refuse its resources. Without error or refusal, True means that all
// replicas have acknowledged the generation. Unknown means that 30 s have passed without acknowledgement. During these
// 30 s the report leaves the object's condition as it is. A WorkloadEntry needs no acknowledgement. Problems and
// refusals count for 2 minutes after a replica last listed them.
//
// Objects whose present generation is not in the store yet are omitted. After New and after object.Forget, the result
// is nil until Stored is called. The caller owns the result.
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

// wake sets o.due to the given time, unless o.due is earlier.
func (o *Objects) wake(at time.Time) {
	if o.due.IsZero() || at.Before(o.due) {
		o.due = at
	}
}
