package quarantine

// admits reports whether the bounds of a reporter and of its credential permit a refusal in one more group of an entry.
// An entry is the state of one version of a resource. A group is the part of an entry for one version of Envoy.
func (s *State) admits(e *entry, r Report) bool {
	has := e.groupsOf(r.Reporter)
	return has < maxOfEnvoys && (has > 0 || s.room(r))
}

// room reports whether the bounds of a reporter and of its credential permit a report in one more entry.
func (s *State) room(r Report) bool {
	if r.Key.Identity != "" { // the reporter is a credential
		return s.refused[r.Reporter] < maxOfShare
	}
	return s.refused[r.Reporter] < maxOfReporter && s.shares[r.Credential] < maxOfShare
}

// charge counts the entry for the reporter of a refusal, and for the reporter's credential if it is known.
func (s *State) charge(e *entry, r Report) {
	s.refused[r.Reporter]++
	if r.Credential == (Credential{}) {
		return
	}
	s.shares[r.Credential]++
	if e.charged == nil {
		e.charged = map[Reporter]Credential{}
	}
	e.charged[r.Reporter] = r.Credential
}

// discharge reverses the effect of charge for a reporter in an entry.
func (s *State) discharge(e *entry, by Reporter) {
	if s.refused[by]--; s.refused[by] == 0 {
		delete(s.refused, by)
	}
	if c, is := e.charged[by]; is {
		delete(e.charged, by)
		if s.shares[c]--; s.shares[c] == 0 {
			delete(s.shares, c)
		}
	}
}
