package delta

import "navarch.io/navarch/push/xds"

// free reports whether another response of a type may be sent within the credit. The credit (Config.Credit) limits the
// bytes that were sent and that the client may not have read.
func (s *State) free(t xds.Type) bool {
	flights := s.typed(t).flights
	if len(flights) > 0 && (t != xds.Cluster || !clustersFit(flights, s.cfg.Credit)) {
		return false
	}
	return s.unread() < s.cfg.Credit
}

// clustersFit reports whether another response with clusters may be sent while flights are unacknowledged. The sum of
// their sizes, without the largest one, must be below the credit. Their number must be below maxFlights.
func clustersFit(flights []flight, credit int) bool {
	all, largest := 0, 0
	for i := range flights {
		all, largest = all+flights[i].kept, max(largest, flights[i].kept)
	}
	return all-largest < credit && len(flights) < maxFlights
}

// unread returns the number of unacknowledged bytes that the client may not have read. If fewer bytes than the credit
// are unacknowledged, it returns the number of all of them, read or not. The client reads in order, so its answer to a
// response shows that it has read all earlier responses.
func (s *State) unread() (bytes int) {
	if s.unacked < s.cfg.Credit {
		return s.unacked
	}
	count := func(t xds.Type) {
		for _, f := range s.typed(t).flights {
			if f.nonce > s.answered {
				bytes += f.size
			}
		}
	}
	for t := range s.types {
		count(xds.Type(t))
	}
	for t := range s.dynamicTypes() {
		count(t)
	}
	return bytes
}

// removeOnly returns a response that only removes clusters. It returns false if there is no such response. A response
// that only removes clusters may be sent while free forbids other responses with clusters, because responses of other
// types may wait for the removal.
func (s *State) removeOnly(t xds.Type) (Reply, bool) {
	ty := s.typed(t)
	if t != xds.Cluster || s.urgent || ty.fresh || len(ty.flights) == maxFlights || s.unread() >= s.cfg.Credit {
		return Reply{}, false
	}
	var c change
	for name, o := range ty.overrides {
		if v, _ := s.decide(t, name, o); v == remove {
			c.removed = append(c.removed, name)
		}
	}
	if ty.sent != s.stack(t) {
		for _, d := range s.cfg.Diffs.between(ty.sent, s.stack(t)) {
			o := ty.standing(d.Name)
			if _, is := ty.overrides[d.Name]; is || d.New != nil || !ty.wants(d.Name) {
				continue
			}
			if v, _ := s.decide(t, d.Name, o); v == remove {
				c.removed = append(c.removed, d.Name)
				ty.put(d.Name, o)
			}
		}
	}
	if c.empty() {
		return Reply{}, false
	}
	return s.launch(t, c, c.removed, ty.sent, false), true
}
