package quarantine

// WithheldFrom lists, as of the last Decided, what a stream of a view and an identity must not be sent; nil: nothing.
func (s *State) WithheldFrom(view, identity, envoy string, stream uint64) (all []Key) {
	for _, e := range s.views[view] {
		if e.key.Covers(identity) && s.Withholds(e.key, envoy, stream) {
			all = append(all, e.key)
		}
	}
	return all
}

// Withholds says whether a stream must not be sent a version, of those that k covers.
func (s *State) Withholds(k Key, envoy string, stream uint64) bool {
	e := s.entries[k]
	if e == nil || !e.withheld() || s.fromAll(k, envoy) {
		return false
	}
	g := e.group(envoy)
	return g == nil || g.stream != stream && !g.free()
}

// fromAll says of a version, as one identity is to have it, that it is withheld from all with that Envoy: that goes before.
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

// drop takes out an entry without groups.
func (s *State) drop(e *entry) {
	own := e.key.Identity
	if delete(s.entries, e.key); own == "" {
		return
	}
	if s.own[own]--; s.own[own] == 0 {
		delete(s.own, own)
	}
}
