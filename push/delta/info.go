package delta

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Resumed stands for a nonce in Info.Sent and Info.Acked: the client stated on this stream what it holds, and has been sent nothing since.
const Resumed = "resumed"

// Info is the state of one type, for debugging.
type Info struct {
	Subscribed bool
	// Synced: the client has acknowledged, or stated when it resumed, the newest version of everything that it asks for. Versions that it
	// refused and versions that are withheld from it are left out.
	Synced        bool
	All           bool   // of a wildcard subscription
	Names         int    // subscribed by name
	Sent, Acked   string // nonces, or Resumed; empty: none
	SentRevision  int64
	AckedRevision int64
	InFlight      int
	Overrides     int
	Version       string            // hash of what it holds, once all in flight has arrived
	Held          int               // how many that are
	Refused       map[string]string // name -> refused version, where the newest set has that version
}

// Sums remembers the hashes of what clients hold while many are described: a hash costs as much as a client holds, and most hold what
// others of their view do. The zero Sums are ready; they keep what they have summed alive, and are for one goroutine.
type Sums struct{ of map[holding]sum }

// holding is what a client holds where nothing is different from its stack.
type holding struct {
	stack manifest.Stack
	all   bool
	names intern.List[string]
}

type sum struct {
	held    int
	version string
}

// sum is of what a client holds of a type. Sums of nil remember nothing.
func (k *Sums) sum(ty *typed) sum {
	of := func() sum {
		all := ty.holding()
		return sum{len(all), setVersion(all)}
	}
	if k == nil || !ty.subscribed || len(ty.overrides) > 0 {
		return of()
	}
	key := holding{ty.sent, ty.all, ty.names}
	one, known := k.of[key]
	if !known {
		if one = of(); k.of == nil {
			k.of = map[holding]sum{}
		}
		k.of[key] = one
	}
	return one
}

// Info describes one type; it costs as much as the client holds.
func (s *State) Info(t xds.Type) Info { return s.InfoWith(t, nil) }

// InfoWith is Info for one of many clients, which are described with the same Sums; nil: as Info.
func (s *State) InfoWith(t xds.Type, sums *Sums) Info {
	ty := s.typed(t)
	if ty == nil {
		return Info{}
	}
	i := Info{Subscribed: ty.subscribed, Synced: s.synced(t, ty), All: ty.all, Names: ty.names.Len(), SentRevision: ty.sentRevision,
		AckedRevision: ty.ackedRevision, InFlight: len(ty.flights), Overrides: len(ty.overrides)}
	if ty.sentNonce > 0 {
		i.Sent = nonceText(ty.sentNonce)
	}
	if ty.ackedNonce > 0 {
		i.Acked = nonceText(ty.ackedNonce)
	}
	if ty.resumed && ty.sentNonce == 0 {
		i.Sent = Resumed
		if i.Synced {
			i.Acked = Resumed
		}
	}
	held := sums.sum(ty)
	i.Held, i.Version = held.held, held.version
	for name := range ty.overrides {
		if refused := s.Quarantined(t, name); refused != "" {
			if i.Refused == nil {
				i.Refused = map[string]string{}
			}
			i.Refused[name] = refused
		}
	}
	return i
}

// synced is Info.Synced. It costs as much as there are overrides.
func (s *State) synced(t xds.Type, ty *typed) bool {
	if !ty.subscribed || ty.answer || ty.fresh || len(ty.flights) > 0 || len(ty.retry) > 0 || ty.sent != s.stack(t) {
		return false
	}
	s.deciding = true
	defer s.decided()
	for name, o := range ty.overrides {
		if v, _ := s.decide(t, name, o); v != hold {
			return false
		}
	}
	return true
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
	o := ty.overrideOf(name, ty.sent)
	has := o.has()
	return o.refused != version && (ty.fresh || has == nil || has.Version != version)
}

// Good is the version of a resource that the client has once all that is in flight has arrived; empty: none, or it is not
// known.
func (s *State) Good(t xds.Type, name string) string {
	ty := &s.types[t]
	o := ty.overrideOf(name, ty.sent)
	if has := o.has(); has != nil && !ty.fresh {
		return has.Version
	}
	return ""
}

// Acknowledged is the version of a resource that the client has acknowledged last; empty: none, or something else is in
// flight.
func (s *State) Acknowledged(t xds.Type, name string) string {
	ty := &s.types[t]
	o := ty.overrideOf(name, ty.acked)
	if o.have == nil || o.held || o.flying != 0 {
		return ""
	}
	return o.have.Version
}

// Quarantined returns the version of a resource that the newest set has, and that is not sent because the client refused it; empty: none.
func (s *State) Quarantined(t xds.Type, name string) string {
	ty := s.typed(t)
	if ty == nil {
		return ""
	}
	refused := ty.overrides[name].refused
	if want := s.stack(t).Get(name); refused == "" || want == nil || want.Version != refused {
		return ""
	}
	return refused
}
