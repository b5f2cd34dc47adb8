package quarantine

// admits reports whether a refusal may be added to one more group of an entry, within the bounds of the reporter and
// its credential.
func (s *State) admits(e *entry, r Report) bool {
	has := e.groupsOf(r.Reporter)
	return has < maxOfEnvoys && (has > 0 || s.room(r))
}

// room reports whether a report may be added to one more entry, within the bounds of the reporter and its credential.
func (s *State) room(r Report) bool {
	if r.Key.Identity != "" { // the reporter is a credential
		return s.refused[r.Reporter] < maxOfShare
	}
	return s.refused[r.Reporter] < maxOfReporter && s.shares[r.Credential] < maxOfShare
}

// charge counts the reporter of a refusal, and the reporter's credential if it is known, in one more entry.
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
