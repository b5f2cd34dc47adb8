package quarantine

// WithheldFrom lists the versions, as of the last Decided, that a stream of a view and an identity must not be sent;
// nil: none apply.
func (s *State) WithheldFrom(view, identity, envoy string, stream uint64) (all []Key) {
	for _, e := range s.views[view] {
		if e.key.Covers(identity) && s.Withholds(e.key, envoy, stream) {
			all = append(all, e.key)
		}
	}
	return all
}

// Withholds reports whether a stream, which k covers, must not be sent a version.
func (s *State) Withholds(k Key, envoy string, stream uint64) bool {
	e := s.entries[k]
	if e == nil || !e.withheld() || s.fromAll(k, envoy) {
		return false
	}
	g := e.group(envoy)
	return g == nil || g.stream != stream && !g.free()
}

// fromAll reports whether the version of a key with Identity is withheld from all proxies with that Envoy, which takes
// precedence.
func (s *State) fromAll(k Key, envoy string) bool {
	if k.Identity == "" {
		return false
	}
	e := s.entries[k.Of("")]
	if e == nil || !e.withheld() {
		return false
	}
	g := e.group(envoy)
	return g == nil || !g.free()
}

// drop removes an entry without groups.
func (s *State) drop(e *entry) {
	own := e.key.Identity
	if delete(s.entries, e.key); own == "" {
		return
	}
	if s.own[own]--; s.own[own] == 0 {
		delete(s.own, own)
	}
}
