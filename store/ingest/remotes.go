package ingest

import (
	"slices"

	"navarch.io/navarch/store/origin"
)

// Remotes is which sources of other clusters there are, by origin. Of one that is not among them nothing is there: what is stored of it goes, as
// far as the shrink guard lets it. Known is false while that cannot be said: all that is stored of other clusters stands.
type Remotes struct {
	Known   bool
	Origins []origin.Origin
}

func (Remotes) event() {}

// Expect says which sources of other clusters there are; the newest word counts. One that is gone was forgotten (object.Forget) before.
func (l *Loop) Expect(r Remotes) { l.box.Put(input{remote: &r}) }

// remotes are the sources of other clusters, API servers all of them. Nobody waits for one: its records stay as they are stored, neither
// written nor removed, until it has emitted everything; then they are compared as a whole, with the shrink guard. A nil remotes has none.
type remotes struct {
	whole map[origin.Origin]bool // those that have emitted everything
	known bool                   // which there are was said
	now   map[origin.Origin]bool // those that there are
	again bool                   // one became whole since what is stored was last read
}

func remote(o origin.Origin) bool { return o.Cluster() != "" && o.Source() == origin.Kube }

// stand says of an origin that its records stay as they are stored.
func (r *remotes) stand(o origin.Origin) bool {
	return r != nil && remote(o) && !r.whole[o] && (!r.known || r.now[o])
}

// isWhole says whether a source of another cluster has emitted everything.
func (r *remotes) isWhole(o origin.Origin) bool { return r != nil && r.whole[o] }

// synced takes down that a source has emitted everything; false: it is none of another cluster.
func (r *remotes) synced(o origin.Origin) bool {
	if r == nil || !remote(o) {
		return false
	}
	r.again = r.again || !r.whole[o]
	r.whole[o] = true
	return true
}

// begins takes down that a source emits everything again, or is no more; false: it is none of another cluster.
func (r *remotes) begins(o origin.Origin) bool {
	if r == nil || !remote(o) {
		return false
	}
	delete(r.whole, o)
	return true
}

// compared takes down that what is stored is read now.
func (r *remotes) compared() {
	if r != nil {
		r.again = false
	}
}

// expect takes down which sources of other clusters there are.
func (s *State) expect(e Remotes) {
	if s.remotes == nil {
		return
	}
	now := map[origin.Origin]bool{}
	for _, o := range slices.DeleteFunc(slices.Clone(e.Origins), func(o origin.Origin) bool { return !remote(o) }) {
		now[o] = true
	}
	if e.Known {
		s.remotes.again = s.remotes.again || !s.remotes.known
		for o := range s.remotes.now {
			s.remotes.again = s.remotes.again || !now[o]
		}
	} else {
		clear(s.remotes.whole)
	}
	s.remotes.known, s.remotes.now = e.Known, now
}

// compareAgain has everything compared with what is stored, where a cluster became whole.
func (s *State) compareAgain() []Effect {
	if s.remotes == nil || !s.remotes.again {
		return nil
	}
	switch s.phase {
	case ready:
		return s.start(false)
	case loading, writing:
		s.altered, s.remotes.again = true, false
	case idle:
	}
	return nil
}
