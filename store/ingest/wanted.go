package ingest

import "navarch.io/navarch/store/model"

// wanted is the target state of the stored records. The inventory and the sealing of private keys change it, and the
// type writes compares it with the store.
type wanted struct {
	records      map[model.Key]model.Record
	awaitingSeal map[model.Key]*UnsealedRecord // become records once their private keys are sealed
	changed      map[model.Key]bool            // keys whose wanted record may differ since the last call of clearChanged
}

func newWanted() *wanted {
	return &wanted{records: map[model.Key]model.Record{}, awaitingSeal: map[model.Key]*UnsealedRecord{}, changed: map[model.Key]bool{}}
}

// remove removes records, and marks their keys as changed.
func (w *wanted) remove(records []model.Record) {
	for _, r := range records {
		key := r.Meta().Key
		delete(w.records, key)
		delete(w.awaitingSeal, key)
		w.changed[key] = true
	}
}

// add adds records, and marks their keys as changed.
func (w *wanted) add(records []model.Record) {
	for _, r := range records {
		w.records[r.Meta().Key] = r
		w.changed[r.Meta().Key] = true
	}
}

// note marks keys as changed.
func (w *wanted) note(keys []model.Key) {
	for _, key := range keys {
		w.changed[key] = true
	}
}

// clearChanged removes all marks. A large map is replaced, since maps do not shrink.
func (w *wanted) clearChanged() {
	if len(w.changed) > 1000 {
		w.changed = map[model.Key]bool{}
		return
	}
	clear(w.changed)
}

// empty reports whether no record is wanted. Records that wait to be sealed are wanted too.
func (w *wanted) empty() bool { return len(w.records)+len(w.awaitingSeal) == 0 }
