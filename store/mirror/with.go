package mirror

import "navarch.io/navarch/store/model"

// With returns a new snapshot. It has the records of s, changed by the edits. Its revision, place and unknown records
// come from the snapshot in the parameter named of. An edit adds its New or replaces the earlier record with it. If New
// is nil, the edit removes the record. Records of edits keep their pointers, so that other snapshots can share them.
// Both given snapshots stay unchanged.
func (s *Snapshot) With(edits []Edit, of *Snapshot) *Snapshot {
	next := *of
	next.counts = s.counts
	records, hosts := s.records.Txn(), s.byHost.Txn()
	for _, e := range edits {
		key := e.Key()
		path := treeKey(key)
		old, had := records.Get([]byte(path))
		if had {
			next.counts[key.Kind]--
		}
		for _, host := range model.HostsOf(old) {
			hosts.Delete([]byte(hostKey(key.Kind, host, path)))
		}
		if e.New == nil {
			records.Delete([]byte(path))
			continue
		}
		next.counts[key.Kind]++
		records.Insert([]byte(path), e.New)
		for _, host := range model.HostsOf(e.New) {
			hosts.Insert([]byte(hostKey(key.Kind, host, path)), e.New)
		}
	}
	next.records, next.byHost = records.Commit(), hosts.Commit()
	return &next
}
