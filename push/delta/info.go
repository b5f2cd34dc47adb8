package delta

import (
	"navarch.io/navarch/push/xds"
)

// Resumed is the value of Info.Sent for a type that the client has resumed, until a response of the type is made. A
// client resumes a type by a request that lists its resources. If the type is also synced (Info.Synced), Info.Acked has
// this value too.
const Resumed = "resumed"

// Info describes the state of one type, for debugging.
type Info struct {
	Subscribed bool // the client has requested the type, or is sent clusters without a request (EndResume)
	// Synced means that the client has acknowledged, or listed when it resumed, the newest version of everything that
	// it requests. Refused and withheld versions, names that were left out, and resources whose content is not known
	// yet do not count. After a new set of resources, Synced may be false until Next has returned false.
	Synced bool
	All    bool // the subscription has the wildcard
	// Names is the number of subscribed names. For Envoy's types, names that the client subscribes together with the
	// wildcard or later do not count.
	Names int
	// Sent is the nonce of the newest response, and Acked that of the newest accepted response. Each may be Resumed. It
	// is empty if there is no such response.
	Sent, Acked   string
	SentRevision  int64             // the store's revision of the last response, or of a later set without changes; 0: none
	AckedRevision int64             // as SentRevision, but of the newest response with an ACK or NACK; 0: none
	InFlight      int               // number of unacknowledged responses
	Overrides     int               // number of names whose state differs from the stacks that streams share
	Refused       map[string]string // maps names to versions that Quarantined returns; nil without such versions
}

// Info describes one type. It returns the zero Info for a dynamic type that was neither opened nor requested. The cost
// grows with Info.Overrides, but not with the number of the client's resources.
func (s *State) Info(t xds.Type) Info {
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

// synced computes Info.Synced. Its cost grows with Info.Overrides.
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

// Asks reports whether the client subscribes to a resource. The type t must not be dynamic.
func (s *State) Asks(t xds.Type, name string) bool {
	ty := &s.types[t]
	return ty.subscribed && ty.wants(name)
}

// Lacks reports whether the client subscribes to a resource but does not have the given version. It returns false if
// this version is in flight, or if the client has refused it. The type t must not be dynamic.
func (s *State) Lacks(t xds.Type, name, version string) bool {
	if !s.Asks(t, name) {
		return false
	}
	ty := &s.types[t]
	o := ty.overrideOf(name, ty.sent)
	has := o.has()
	return o.refused != version && (ty.fresh || has == nil || has.Version != version)
}

// Good returns the version of a resource that the client has. Responses in flight count as accepted. It returns "" if
// the client lacks the resource or the version is unknown. The result has no meaning if the client does not subscribe
// to the resource (Asks). The type t must not be dynamic.
func (s *State) Good(t xds.Type, name string) string {
	ty := &s.types[t]
	o := ty.overrideOf(name, ty.sent)
	if has := o.has(); has != nil && !ty.fresh {
		return has.Version
	}
	return ""
}

// Acknowledged returns the version of a resource that the client acknowledged last, or listed when it resumed. It
// returns "" if there is no such version, or if the client may have another version. While a newer version is in
// flight, the result is the previous version or "". The result has no meaning if the client does not subscribe to the
// resource (Asks). The type t must not be dynamic.
func (s *State) Acknowledged(t xds.Type, name string) string {
	ty := &s.types[t]
	o := ty.overrideOf(name, ty.acked)
	if o.have == nil || o.held || o.flying != 0 {
		return ""
	}
	return o.have.Version
}

// Quarantined returns the newest version of a resource if this version is not sent, because the client has refused the
// version or a cluster that it names. In all other cases it returns "". For dynamic types, see Refused.
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
