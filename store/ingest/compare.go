package ingest

import (
	"time"

	"navarch.io/navarch/store/model"
)

// compare is the full comparison of the wanted records with the store, at the beginning of a term and after the store
// was altered.
func (s *State) compare(e Loaded) {
	s.phase, s.altered = ready, false
	s.stored.load(e)
	s.stored.shareKeys(s.inventory.wanted.records)
	s.others.forget()
	s.writes.begin(e, s.removals.allowEmpty)
	s.dropSkippable(e.Skippable)
	for _, n := range s.inventory.objects.All() {
		n.Entry.setAdopted(nil)
	}
	s.inventory.rebase(e)
	s.inventory.recallMesh(e.Mesh)
	s.inventory.heard = time.Time{}
	s.sealing.sealEverything(s.inventory.objects)
	gone := s.adopt(e.Have)
	wanted := s.inventory.wanted
	wanted.clearChanged()
	wanted.note(s.removals.compare(e.Now, gone))
	for key := range wanted.records {
		if s.writes.differs(key) {
			wanted.changed[key] = true
		}
	}
	s.writes.queue.add(wanted.changed, time.Time{})
	wanted.clearChanged()
}

// adopt returns the stored records that no object makes any more. Those of objects that cannot be understood stay
// stored, and the objects adopt them; so do records of clusters that were not listed in full, and all that may be of a
// document that cannot be read.
func (s *State) adopt(have map[model.Key]model.Hash) (gone []model.Key) {
	w := s.inventory
	for key := range have {
		source := w.objects.Get(w.sourceOf(key))
		switch {
		case source != nil && w.standsFor(source, key):
			if source.Entry.closed { // the stored record is a good version, or closes as much as this one
				w.setRecords(source, nil, nil)
				source.Entry.closed = false
			}
			source.Entry.setAdopted(append(source.Entry.few().adopted, key))
		case w.wanted.records[key] != nil || w.wanted.awaitingSeal[key] != nil:
		case s.sources.remotes.standing(key.Origin): // its cluster was not listed in full
		case source == nil && len(w.unreadable) > 0:
			s.writes.withheld[key] = true // its object may be in a document that cannot be read
		default:
			gone = append(gone, key)
		}
	}
	return gone
}

// standsFor reports whether a stored record stays in effect for an object that is spoiled, or waits for its tenant's
// budget.
func (w *inventory) standsFor(source *node, key model.Key) bool {
	e := &source.Entry
	return (e.spoiled || e.waiting) && (len(e.records) == 0 || e.closed || key == model.MeshGatewaysKey && w.wanted.records[key] == nil)
}
