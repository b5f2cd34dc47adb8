package quarantine

// WithheldFrom returns the versions of resources that must not be sent on a stream, in no order, or nil. Withholdings
// and releases since the last call of Decided may be missing. The arguments identity and envoy are the identity of the
// stream's proxy and its version of Envoy.
func (s *State) WithheldFrom(view, identity, envoy string, stream uint64) (all []Key) {
	for _, e := range s.views[view] {
		if e.key.Covers(identity) && s.Withholds(e.key, envoy, stream) {
			all = append(all, e.key)
		}
	}
	return all
}

// Withholds reports whether the version that k identifies must not be sent on a stream. k must cover the stream's
// proxy, and envoy is the proxy's version of Envoy. It returns false for a stream with a retry of the version.
func (s *State) Withholds(k Key, envoy string, stream uint64) bool {
	e := s.entries[k]
	if e == nil || !e.withheld() || s.fromAll(k, envoy) {
		return false
	}
	g := e.group(envoy)
	return g == nil || g.stream != stream && !g.free()
}

// fromAll reports whether the version of a key with an Identity is also withheld from all proxies with that Envoy. The
// withholding from all proxies takes precedence.
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
