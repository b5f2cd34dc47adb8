package delta

import "navarch.io/navarch/push/xds"

// Info is the state of one type, for debugging.
type Info struct {
	Subscribed    bool
	All           bool   // of a wildcard subscription
	Names         int    // subscribed by name
	Sent, Acked   string // nonces; empty: none
	SentRevision  int64
	AckedRevision int64
	InFlight      int
	Exceptions    int
	Version       string            // hash of what it holds, once all in flight has arrived
	Held          int               // how many that are
	Refused       map[string]string // name -> version in quarantine
}

// Info describes one type; it costs as much as the client holds.
func (s *State) Info(t xds.Type) Info {
	ty := s.typed(t)
	if ty == nil {
		return Info{}
	}
	i := Info{Subscribed: ty.subscribed, All: ty.all, Names: ty.names.Len(), SentRevision: ty.sentRevision,
		AckedRevision: ty.ackedRevision, InFlight: len(ty.flights), Exceptions: len(ty.overrides)}
	if ty.sentNonce > 0 {
		i.Sent = nonceText(ty.sentNonce)
	}
	if ty.ackedNonce > 0 {
		i.Acked = nonceText(ty.ackedNonce)
	}
	held := ty.holding()
	i.Held, i.Version = len(held), setVersion(held)
	for name, o := range ty.overrides {
		if o.refused != "" {
			if i.Refused == nil {
				i.Refused = map[string]string{}
			}
			i.Refused[name] = o.refused
		}
	}
	return i
}

// Asks says whether the client asks for a resource.
func (s *State) Asks(t xds.Type, name string) bool {
	ty := &s.types[t]
	return ty.subscribed && ty.wants(name)
}

// Lacks says whether the client asks for a resource, and neither holds a version of it, nor is being sent it, nor has refused
// it.
func (s *State) Lacks(t xds.Type, name, version string) bool {
	if !s.Asks(t, name) {
		return false
	}
	ty := &s.types[t]
	o := ty.exception(name, ty.sent)
	has := o.has()
	return o.refused != version && (ty.fresh || has == nil || has.Version != version)
}

// Good is the version of a resource that the client has once all that is in flight has arrived; empty: none, or it is not
// known.
func (s *State) Good(t xds.Type, name string) string {
	ty := &s.types[t]
	o := ty.exception(name, ty.sent)
	if has := o.has(); has != nil && !ty.fresh {
		return has.Version
	}
	return ""
}

// Acknowledged is the version of a resource that the client has acknowledged last; empty: none, or something else is in
// flight.
func (s *State) Acknowledged(t xds.Type, name string) string {
	ty := &s.types[t]
	o := ty.exception(name, ty.acked)
	if o.have == nil || o.held || o.flying != 0 {
		return ""
	}
	return o.have.Version
}

// Quarantined is the version of a resource that the client refused and is not sent again; empty: none.
func (s *State) Quarantined(t xds.Type, name string) string {
	return s.types[t].overrides[name].refused
}
