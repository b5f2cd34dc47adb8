package delta

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Resumed is the value of Info.Sent and Info.Acked for a resumed type without responses. The client has listed the
// resources that it holds, and has been sent nothing since.
const Resumed = "resumed"

// Info describes the state of one type, for debugging.
type Info struct {
	Subscribed bool
	// Synced means that the client has acknowledged, or listed when it resumed, the newest version of everything that
	// it requests. Refused and withheld versions do not count.
	Synced        bool
	All           bool              // the subscription has the wildcard
	Names         int               // number of names in the subscription
	Sent, Acked   string            // nonce of the last response and of the last ACK, or Resumed; empty: none
	SentRevision  int64             // the store's revision of the last response
	AckedRevision int64             // the store's revision of the last ACK
	InFlight      int               // number of unacknowledged responses
	Overrides     int               // number of names with a state of their own
	Version       string            // hash of the client's resources; responses in flight count as accepted
	Held          int               // number of the client's resources; responses in flight count as accepted
	Refused       map[string]string // maps names to refused versions that the newest set has
}

// Sums caches hashes of held resources (Info.Version) while many clients are described. The cost of a hash grows with
// the number of resources, and many clients hold the same resources. The zero Sums is ready for use. It keeps resources
// alive until it is dropped. One goroutine at a time may use it.
type Sums struct{ of map[holding]sum }

// holding identifies the resources that a client without overrides holds.
type holding struct {
	stack manifest.Stack
	all   bool
	names intern.List[string]
}

// sum is the number and hash of held resources.
type sum struct {
	held    int
	version string
}

// sum returns the hash of a client's resources of a type. A nil Sums caches nothing.
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

// Info describes one type; the zero Info for a dynamic type that was not requested. The cost grows with the number of
// the client's resources.
func (s *State) Info(t xds.Type) Info { return s.InfoWith(t, nil) }

// InfoWith describes one type, as Info does. Calls for clients with equal resources share hashes by sums; nil: nothing
// is shared.
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

// synced computes Info.Synced. Its cost grows with the number of overrides.
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

// Asks reports whether the client subscribes to a resource. t must not be a dynamic type.
func (s *State) Asks(t xds.Type, name string) bool {
	ty := &s.types[t]
	return ty.subscribed && ty.wants(name)
}

// Lacks reports whether the client subscribes to a resource without having the version. It returns false if the version
// is in flight, or if the client has refused it. t must not be a dynamic type.
func (s *State) Lacks(t xds.Type, name, version string) bool {
	if !s.Asks(t, name) {
		return false
	}
	ty := &s.types[t]
	o := ty.overrideOf(name, ty.sent)
	has := o.has()
	return o.refused != version && (ty.fresh || has == nil || has.Version != version)
}

// Good returns the version of a resource that the client has; responses in flight count as accepted. It returns "" if
// the client lacks the resource or the version is unknown. t must not be a dynamic type.
func (s *State) Good(t xds.Type, name string) string {
	ty := &s.types[t]
	o := ty.overrideOf(name, ty.sent)
	if has := o.has(); has != nil && !ty.fresh {
		return has.Version
	}
	return ""
}

// Acknowledged returns the version of a resource that the client acknowledged last. It returns "" if the client has
// acknowledged none, or if a response with the resource is in flight. t must not be a dynamic type.
func (s *State) Acknowledged(t xds.Type, name string) string {
	ty := &s.types[t]
	o := ty.overrideOf(name, ty.acked)
	if o.have == nil || o.held || o.flying != 0 {
		return ""
	}
	return o.have.Version
}

// Quarantined returns the newest version of a resource if the client has refused this version, so that it is not sent.
// It returns "" otherwise.
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
