package mirror

// With is the snapshot `of` as far as its revision, its place and its records of unknown kinds go, with the records of s, but for the
// edits: there it has their New, or nothing. The records of edits are taken as they are, so that they stay the pointers that they are
// in other snapshots. Neither s nor of changes.
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
		for _, host := range hostsOf(old) {
			hosts.Delete([]byte(hostKey(key.Kind, host, path)))
		}
		if e.New == nil {
			records.Delete([]byte(path))
			continue
		}
		next.counts[key.Kind]++
		records.Insert([]byte(path), e.New)
		for _, host := range hostsOf(e.New) {
			hosts.Insert([]byte(hostKey(key.Kind, host, path)), e.New)
		}
	}
	next.records, next.byHost = records.Commit(), hosts.Commit()
	return &next
}
