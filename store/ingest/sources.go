package ingest

import (
	"slices"

	"navarch.io/navarch/store/ingest/lookup"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// sources tracks which sources have emitted everything. State owns it.
type sources struct {
	unsynced map[origin.Origin]bool // sources that have not emitted everything; if any, nothing is written
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

// configured reports whether all sources of configuration have emitted everything. The leader's own sources
// (lookup.FromLeader) do not count.
func (s *sources) configured() bool {
	for o := range s.unsynced {
		if !lookup.FromLeader(o) {
			return false
		}
	}
	return true
}

// note applies the events Synced and Forget. It reports whether a source that the leader waits for emits everything
// again.
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

// Remotes is an event with the list of sources of other clusters, which replaces the previous list. Stored records of
// clusters that are not in the list are deleted, unless their removal is held back. While Known is false the list is
// unknown, and all stored records of other clusters stay. Origins other than API servers of other clusters are ignored.
// Without Options.Remote the event has no effect.
type Remotes struct {
	Known   bool
	Origins []origin.Origin
}

func (Remotes) event() {}

// Expect replaces the list of sources of other clusters. For a removed source, the caller must emit object.Forget
// before this call. Expect does not block. A later call replaces a call that Run has not processed yet.
func (l *Loop) Expect(r Remotes) { l.box.Put(input{remote: &r}) }

// remotes tracks the sources of other clusters, which are API servers. The leader does not wait for these sources. The
// stored records of a cluster stay until its source has emitted everything, and are then compared as a whole. A nil
// remotes has no clusters.
type remotes struct {
	whole map[origin.Origin]bool // sources that have emitted everything
	known bool                   // the list in the field now is valid (Remotes.Known)
	now   map[origin.Origin]bool // sources in the present list
	again bool                   // the store has to be compared, since a source has emitted everything or the list has changed
}

// isRemote reports whether an origin is the API server of another cluster.
func isRemote(o origin.Origin) bool { return o.Cluster() != "" && o.Source() == origin.Kube }

// standing reports whether the stored records of an origin stay as they are until its source has emitted everything.
func (r *remotes) standing(o origin.Origin) bool {
	return r != nil && isRemote(o) && !r.whole[o] && (!r.known || r.now[o])
}

// isWhole reports whether a source of another cluster has emitted everything.
func (r *remotes) isWhole(o origin.Origin) bool { return r != nil && r.whole[o] }

// synced marks a source as having emitted everything. It returns false if the source is not of another cluster.
func (r *remotes) synced(o origin.Origin) bool {
	if r == nil || !isRemote(o) {
		return false
	}
	r.again = r.again || !r.whole[o]
	r.whole[o] = true
	return true
}

// beginAgain marks a source as not having emitted everything. It returns false if the source is not of another cluster.
func (r *remotes) beginAgain(o origin.Origin) bool {
	if r == nil || !isRemote(o) {
		return false
	}
	delete(r.whole, o)
	return true
}

// beginComparison resets r.again, since a load of the store begins.
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
