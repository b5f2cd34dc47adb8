package mirror

import "navarch.io/navarch/store/model"

// With is the snapshot `of` as far as its revision, its place and its records of unknown kinds go, with the records of s, but for the
// edits: there it has their New, or nothing. The records of edits are taken as they are, so that they stay the pointers that they are
// in other snapshots. Neither s nor of changes.
func (s *Snapshot) With(edits []Edit, of *Snapshot) *Snapshot {
	next := *of
	next.counts = s.counts
	records, hosts := s.records.Txn(), s.byHost.Txn()
	for _, e := range edits {
		key := e.Key()
		path := key.Path()
		old, had := records.Get([]byte(path))
		var after []string
		if e.New != nil {
			after = hostsOf(e.New)
			records.Insert([]byte(path), e.New)
			next.counts[key.Kind]++
		} else {
			records.Delete([]byte(path))
		}
		if had {
			next.counts[key.Kind]--
			dropHosts(old, after, func(host string) { hosts.Delete([]byte(hostKey(key.Kind, host, path))) })
		}
		for _, host := range after {
			hosts.Insert([]byte(hostKey(key.Kind, host, path)), e.New)
		}
	}
	next.records, next.byHost = records.Commit(), hosts.Commit()
	return &next
}

// dropHosts calls f with the hosts of a record that are not among those that come in its place.
func dropHosts(old model.Record, after []string, f func(host string)) {
hosts:
	for _, host := range hostsOf(old) {
		for _, stays := range after {
			if stays == host {
				continue hosts
			}
		}
		f(host)
	}
}
