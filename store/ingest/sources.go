package ingest

import (
	"slices"

	"navarch.io/navarch/store/ingest/lookup"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// sources knows which sources have emitted everything that they read. State owns it.
type sources struct {
	unsynced map[origin.Origin]bool // have not emitted everything; the leader writes nothing while there is one
	remotes  *remotes               // nil: there are no other clusters
}

func newSources(o Options) *sources {
	s := &sources{unsynced: map[origin.Origin]bool{}}
	if o.Sources == nil {
		s.unsynced[origin.Origin{}] = true
	}
	for _, source := range o.Sources {
		s.unsynced[source] = true
	}
	if o.Remote {
		s.remotes = &remotes{whole: map[origin.Origin]bool{}}
	}
	return s
}

// complete reports whether all sources of this cluster have emitted everything.
func (s *sources) complete() bool { return len(s.unsynced) == 0 }

// configured reports whether all sources of configuration have emitted everything. Those through which the leader emits
// its own findings may be missing.
func (s *sources) configured() bool {
	for o := range s.unsynced {
		if !lookup.FromLeader(o) {
			return false
		}
	}
	return true
}

// note notes which sources have emitted everything. True: a source of this cluster begins again.
func (s *sources) note(events []object.Event) (again bool) {
	for _, e := range events {
		switch e.Op {
		case object.Synced:
			if !s.remotes.synced(e.ID.Origin) {
				delete(s.unsynced, e.ID.Origin)
			}
		case object.Forget:
			if !s.remotes.beginAgain(e.ID.Origin) {
				s.unsynced[e.ID.Origin], again = true, true
			}
		case object.Put, object.Delete, object.Broken:
		}
	}
	return again
}

// Remotes is an event: it lists the sources of other clusters, by origin. Stored records of other origins are removed,
// as far as their removal is not held. While Known is false nobody knows the list, and all stored records of other
// clusters stay.
type Remotes struct {
	Known   bool
	Origins []origin.Origin
}

func (Remotes) event() {}

// Expect sets which sources of other clusters there are; the newest call counts. A source that is gone was forgotten
// (object.Forget) before.
func (l *Loop) Expect(r Remotes) { l.box.Put(input{remote: &r}) }

// remotes knows the sources of other clusters, which are API servers. The leader waits for none of them: the records of
// a cluster stay as they are stored until its source has emitted everything; then they are compared as a whole. A nil
// remotes has no clusters.
type remotes struct {
	whole map[origin.Origin]bool // have emitted everything
	known bool                   // now was set
	now   map[origin.Origin]bool // exist
	again bool                   // one has emitted everything since the store was last read
}

func isRemote(o origin.Origin) bool { return o.Cluster() != "" && o.Source() == origin.Kube }

// standing reports whether the records of an origin stay as they are stored.
func (r *remotes) standing(o origin.Origin) bool {
	return r != nil && isRemote(o) && !r.whole[o] && (!r.known || r.now[o])
}

// isWhole reports whether a source of another cluster has emitted everything.
func (r *remotes) isWhole(o origin.Origin) bool { return r != nil && r.whole[o] }

// synced notes that a source has emitted everything. False: the source is not of another cluster.
func (r *remotes) synced(o origin.Origin) bool {
	if r == nil || !isRemote(o) {
		return false
	}
	r.again = r.again || !r.whole[o]
	r.whole[o] = true
	return true
}

// beginAgain notes that a source emits everything again, or is gone. False: the source is not of another cluster.
func (r *remotes) beginAgain(o origin.Origin) bool {
	if r == nil || !isRemote(o) {
		return false
	}
	delete(r.whole, o)
	return true
}

// beginComparison notes that the store is read now.
func (r *remotes) beginComparison() {
	if r != nil {
		r.again = false
	}
}

// expect replaces the list of sources of other clusters.
func (s *sources) expect(e Remotes) {
	r := s.remotes
	if r == nil {
		return
	}
	now := map[origin.Origin]bool{}
	for _, o := range slices.DeleteFunc(slices.Clone(e.Origins), func(o origin.Origin) bool { return !isRemote(o) }) {
		now[o] = true
	}
	if e.Known {
		r.again = r.again || !r.known
		for o := range r.now {
			r.again = r.again || !now[o]
		}
	} else {
		clear(r.whole)
	}
	r.known, r.now = e.Known, now
}
