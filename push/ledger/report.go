package ledger

import (
	"cmp"
	"slices"
	"time"

	"navarch.io/navarch/store/model"
)

// Report describes one change for a caller, limited to the namespaces that the caller may see. A publication may
// contain edits of several tenants. First, Last, Since and Took are those of the visible edits. Without visible edits,
// for example if an object of another namespace changed a visible view, they are those of the publication.
type Report struct {
	Lane        Lane
	First, Last int64     // the store's revisions of the first and the last edit
	Since       time.Time // time of the commit of the first edit or, if unknown, of the publication
	Objects     []string  // results of model.Key.String; at most 16 of one namespace, of at most 64 namespaces
	More        int       // number of further objects that the caller may see
	Counts
}

// Counts are the numbers of proxies and views of a change.
type Counts struct {
	Views    int  `json:"views"`             // changed views (groups of proxies with equal configuration)
	Affected int  `json:"affected"`          // notified streams, including Refused and Gone
	Refused  int  `json:"refused,omitempty"` // clients that refuse a version of the change
	Gone     int  `json:"gone,omitempty"`    // streams that ended before their client acknowledged
	Took     Took // times of the acknowledgements
}

// Acknowledged returns the number of clients that have acknowledged the change.
func (c Counts) Acknowledged() int { return c.Took.total() }

// Pending returns the number of connected clients that have not answered.
func (c Counts) Pending() int { return c.Affected - c.Acknowledged() - c.Refused - c.Gone }

// Plus returns the sum of two counts.
func (c Counts) Plus(o Counts) Counts {
	return Counts{Views: c.Views + o.Views, Affected: c.Affected + o.Affected, Refused: c.Refused + o.Refused, Gone: c.Gone + o.Gone,
		Took: c.Took.plus(o.Took)}
}

// Until returns the time from the commit until a share (0 to 1) of the affected clients had acknowledged. Clients that
// are gone are excluded. Clients that refused are included. Until returns 0 and false if fewer clients have
// acknowledged, if there are no clients, or if share is 0. The time is rounded up to the end of a bucket of Took, but
// is at most Took.Longest.
func (c Counts) Until(share float64) (time.Duration, bool) {
	return c.Took.until(share, c.Affected-c.Gone)
}

// counts returns the counts of a namespace. If all is false, times are those since the tenant's first edit. Payments
// are read before debts, so that Pending is never negative.
func (p *Part) counts(all bool) Counts {
	took := &p.took
	if !all && p.own != nil {
		took = p.own
	}
	c := Counts{Views: p.views, Took: took.read(), Refused: int(p.refused.Load()), Gone: int(p.gone.Load())}
	c.Affected = int(p.affected.Load())
	return c
}

// counts returns the counts of the visible namespaces. The argument all is that of Part.counts.
func (c *Change) counts(sees func(namespace string) bool, all bool) (sum Counts) {
	for namespace, p := range c.parts {
		if sees(namespace) {
			sum = sum.Plus(p.counts(all))
		}
	}
	return sum
}

// paid reports whether all clients of the visible namespaces have acknowledged or refused the change, or are gone.
func (c *Change) paid(sees func(namespace string) bool) bool {
	return c.left.Load() == 0 || c.sealed.Load() && c.counts(sees, true).Pending() == 0
}

// report returns the visible part of a change. The argument span is the result of c.visible. The result visible is true
// if all is true (the caller may see everything), or if the caller may see an object or a view of the change.
func (c *Change) report(span model.Span, sees func(namespace string) bool, all bool) (r Report, visible bool) {
	r = Report{Lane: c.lane, First: span.First, Last: span.Last, Since: span.Since, Counts: c.counts(sees, all)}
	for _, o := range c.objects {
		if sees(o.Namespace) {
			for _, key := range o.Keys {
				r.Objects = append(r.Objects, key.String())
			}
			r.More += o.More
		}
	}
	for namespace, n := range c.others {
		if all || sees(namespace) {
			r.More += n
		}
	}
	return r, all || len(r.Objects) > 0 || r.More > 0 || r.Views > 0
}

// Changes returns the recorded changes of both lanes, newest first; nil without changes. sees selects the visible
// namespaces. Changes without visible objects and views are included only if all is true, for a caller that may see
// everything. The caller owns the result.
func (l *Ledger) Changes(sees func(namespace string) bool, all bool) (out []Report) {
	for _, c := range l.recorded() {
		if r, visible := c.report(c.visible(sees, all), sees, all); visible {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b Report) int {
		return cmp.Or(-cmp.Compare(a.Last, b.Last), cmp.Compare(a.Lane, b.Lane), -cmp.Compare(a.First, b.First))
	})
	return out
}

// recorded returns the changes of both lanes.
func (l *Ledger) recorded() []*Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(slices.Clone(l.lanes[Config].changes), l.lanes[Endpoints].changes...)
}

// Object selects the object whose delivery is awaited. If Is is nil, the whole revision is awaited.
type Object struct {
	Namespace string               // empty for an object without a namespace
	Is        func(model.Key) bool // reports whether a key is that of the object
}

// Target describes the changes whose delivery a caller awaits.
type Target struct {
	Counts Counts // sum of the visible counts of Changes
	// Exact states that the newest change of the requested object is known, and that the Target consists of this
	// change. Otherwise the Target consists of all changes up to the revision.
	Exact bool
	// Changes are the visible recorded changes that Counts sums up. If no object is requested, they are the changes
	// that contain the revision. If an object is requested, there is at most one: the newest change that contains or
	// may contain the object. A change may contain the object if it has more objects than it lists.
	Changes []Report
	Span    model.Span // of the publications of Changes, including edits that the caller may not see
	// Of selects the changes of the Target whose debts must be paid (Debts.Owes). It is for one goroutine.
	Of func(*Change) bool
	// Paid states that no answer is missing: all clients of the visible namespaces have acknowledged or refused the
	// recorded changes that Of selects, or are gone. It is false while one of these changes is being published.
	Paid bool
}

// Find returns the Target for a caller that awaits the delivery of a revision, or of an object at that revision. If the
// newest change that may contain the object lists the object, the Target is this change. In all other cases the Target
// is all changes up to the revision. Counts and Changes describe fewer changes (Target.Changes). The arguments sees and
// all limit them as in Ledger.Changes.
func (l *Ledger) Find(revision int64, object Object, sees func(namespace string) bool, all bool) Target {
	changes := l.recorded()
	spans := make(map[*Change]model.Span, len(changes))
	span := func(c *Change) model.Span { // Of may ask again for each debt of each stream
		s, known := spans[c]
		if !known {
			s = c.visible(sees, all)
			spans[c] = s
		}
		return s
	}
	t := Target{Paid: true, Of: func(c *Change) bool { return span(c).First <= revision }}
	newest, listed := newestOf(changes, revision, object, span)
	if t.Exact = listed; listed {
		t.Of = func(c *Change) bool { return c == newest }
	}
	for _, c := range changes {
		if !t.Of(c) {
			continue
		}
		t.Paid = t.Paid && c.paid(sees)
		if object.Is != nil && c != newest || object.Is == nil && span(c).Last < revision {
			continue
		}
		if r, visible := c.report(span(c), sees, all); visible {
			t.Span = t.Span.Join(c.span)
			t.Counts = t.Counts.Plus(r.Counts)
			t.Changes = append(t.Changes, r)
		}
	}
	return t
}

// newestOf returns the newest change up to the revision that contains or may contain the object, or nil. listed reports
// whether the change lists the object. The function span returns the span of a change's visible edits.
func newestOf(changes []*Change, revision int64, object Object, span func(*Change) model.Span) (newest *Change, listed bool) {
	for _, c := range changes {
		if object.Is == nil || span(c).First > revision || newest != nil && c.span.Last <= newest.span.Last {
			continue
		}
		if has := c.has(object.Is); has || c.mayHave(object.Namespace) {
			newest, listed = c, has
		}
	}
	return newest, listed
}

// has reports whether a selected object is listed in a change.
func (c *Change) has(object func(model.Key) bool) bool {
	return slices.ContainsFunc(c.objects, func(o objects) bool { return slices.ContainsFunc(o.Keys, object) })
}

// mayHave reports whether a change has objects of a namespace that it does not list.
func (c *Change) mayHave(namespace string) bool {
	i := slices.IndexFunc(c.objects, func(o objects) bool { return o.Namespace == namespace })
	return c.others[namespace] > 0 || i >= 0 && c.objects[i].More > 0
}
