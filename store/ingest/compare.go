package ingest

import (
	"time"

	"navarch.io/navarch/store/model"
)

// compare compares the wanted records with a load of the whole store, and queues the differences. It runs at the
// beginning of a term (of leadership). It also runs after another writer has altered the store, after the level of the
// store has changed, and when a source of another cluster has emitted everything. The level decides which kinds of
// records are stored.
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
	kept := s.keepValid(e)
	s.inventory.rebase(e)
	s.inventory.recallMesh(e.Mesh)
	s.inventory.heard = time.Time{}
	s.sealing.sealEverything(s.inventory.objects)
	gone := s.adopt(e.Have)
	s.reportKept(kept, e.Now)
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

// adopt returns the keys of stored records that have no object, or that their object no longer yields. If an object is
// spoiled (invalid) or waits for a budget, its stored records stay, and the object adopts them. Records of another
// cluster stay until the source of the cluster has emitted everything. While some document cannot be read, all records
// without an object stay.
func (s *State) adopt(have map[model.Key]model.Hash) (gone []model.Key) {
	w := s.inventory
	for key := range have {
		source := w.objects.Get(w.sourceOf(key))
		switch {
		case source != nil && w.standsFor(source, key):
			if source.Entry.closed { // the stored record is a good version, or closes the same workloads
				w.setRecords(source, nil, nil)
				source.Entry.closed = false
			}
			source.Entry.setAdopted(append(source.Entry.few().adopted, key))
		case w.wanted.records[key] != nil || w.wanted.awaitingSeal[key] != nil:
		case s.sources.remotes.standing(key.Origin): // the source of its cluster has not emitted everything
		case source == nil && len(w.unreadable) > 0:
			s.writes.withheld[key] = true // the record's object may be in an unreadable document
		default:
			gone = append(gone, key)
		}
	}
	return gone
}

// standsFor reports whether a stored record stays in effect for an object that is spoiled or waits for its budget.
func (w *inventory) standsFor(source *node, key model.Key) bool {
	e := &source.Entry
	return (e.spoiled || e.waiting) && (len(e.records) == 0 || e.closed || key == model.MeshGatewaysKey && w.wanted.records[key] == nil)
}
