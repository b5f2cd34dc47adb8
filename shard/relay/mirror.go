package relay

import (
	"maps"
	"slices"
	"time"
)

// wildcard subscribes to all resources of a type.
const wildcard = "*"

// inDoubt is the version that the relay states for a resource whose state in Envoy is unknown. It equals no real
// version. So the next upstream (connection to the control plane) sends the resource, or its removal, again.
const inDoubt = "navarch-in-doubt"

// mirror is a copy of Envoy's state of one delta stream: its subscriptions, and the versions of its resources. On a new
// stream, Envoy would state these subscriptions and versions. The mirror follows Envoy's
// source/extensions/config_subscription/grpc/delta_subscription_state.cc.
type mirror struct {
	types []*typeState // in the order of first use, which Envoy keeps when it reconnects
}

// typeState is the mirror's state of one type.
type typeState struct {
	url      string
	all      bool                // Envoy subscribes to the wildcard
	legacy   bool                // an empty first request subscribed to the wildcard; later requests named no resources
	names    map[string]bool     // names that Envoy subscribes to; true: the subscription is not answered yet
	unsaid   int                 // number of names without an answer
	answered bool                // false: Envoy's first request was empty, without versions, and has no response yet
	lastAsk  time.Time           // time of the newest subscription
	held     map[string]string   // versions of the resources that Envoy has, by name
	doubt    map[string]struct{} // names in refused responses, whose resources Envoy may have applied in part
	flying   []sent              // responses that Envoy has not answered, oldest first
}

// sent is a response that Envoy has not answered.
type sent struct {
	nonce    string   // the nonce that Envoy received
	upstream string   // the nonce that the upstream sent
	conn     uint32   // number of the upstream connection
	set      []named  // resources of the response
	removed  []string // names of removed resources
}

func (m *mirror) find(url string) *typeState {
	for _, k := range m.types {
		if k.url == url {
			return k
		}
	}
	return nil
}

// request applies one of Envoy's requests. It returns the response in flight that the request acknowledges or refuses.
// If there is no such response, it returns nil.
func (m *mirror) request(h request, now time.Time) (answered *sent) {
	k := m.find(h.typeURL)
	if k == nil {
		k = &typeState{url: h.typeURL, names: map[string]bool{}, held: map[string]string{}, doubt: map[string]struct{}{}}
		k.all = len(h.subscribe) == 0
		k.legacy = k.all
		k.answered = len(h.initial) > 0 || !k.all
		k.lastAsk = now
		m.types = append(m.types, k)
	}
	if h.nonce != "" {
		answered = k.answer(h.nonce, h.failed)
	}
	for _, r := range h.initial {
		k.held[r.name] = r.version
	}
	k.drop(h.unsubscribe)
	k.add(h.subscribe, now)
	for _, r := range h.initial {
		k.settle(r.name) // the server answers a stated version only if it is outdated
	}
	return answered
}

func (k *typeState) add(names []string, now time.Time) {
	for _, name := range names {
		k.lastAsk = now
		if k.legacy = false; name == wildcard {
			k.all = true
			continue
		}
		if _, again := k.names[name]; again && !k.all {
			delete(k.held, name) // Envoy unsubscribed and subscribed again, and forgot the resource
		}
		if !k.names[name] {
			k.names[name] = true
			k.unsaid++
		}
	}
}

func (k *typeState) drop(names []string) {
	for _, name := range names {
		k.legacy = false
		if name == wildcard {
			k.all = false
			maps.DeleteFunc(k.held, func(name, _ string) bool { _, is := k.names[name]; return !is })
			continue
		}
		k.settle(name)
		delete(k.names, name)
		if !k.all { // under the wildcard Envoy may still have the resource
			delete(k.held, name)
			delete(k.doubt, name)
		}
	}
}

// settle records that the subscription of a name is answered.
func (k *typeState) settle(name string) {
	if k.names[name] {
		k.names[name] = false
		k.unsaid--
	}
}

// response records a response that is sent to Envoy. Its resources count as held once Envoy accepts them.
func (m *mirror) response(h response, nonce string, conn uint32) {
	k := m.find(h.typeURL)
	if k == nil {
		return // Envoy never requested the type, and drops the response
	}
	k.answered = true
	k.flying = append(k.flying, sent{nonce: nonce, upstream: h.nonce, conn: conn, set: h.set, removed: h.removed})
	for _, r := range h.set {
		k.settle(r.name)
	}
	for _, name := range h.removed {
		k.settle(name)
	}
}

// answer applies Envoy's ACK or NACK (failed) of the response with a nonce. It removes the response from flying, and
// returns it. The result is nil if flying has no response with this nonce.
func (k *typeState) answer(nonce string, failed bool) *sent {
	i := slices.IndexFunc(k.flying, func(s sent) bool { return s.nonce == nonce })
	if i < 0 {
		return nil
	}
	s := k.flying[i]
	if k.flying = slices.Delete(k.flying, i, i+1); failed {
		s.suspect(k.doubt)
		return &s
	}
	for _, r := range s.set {
		k.held[r.name] = r.version
		delete(k.doubt, r.name)
	}
	for _, name := range s.removed {
		delete(k.held, name)
		delete(k.doubt, name)
	}
	return &s
}

// suspect adds the names of the resources in a response to the set doubt.
func (s *sent) suspect(doubt map[string]struct{}) {
	for _, r := range s.set {
		doubt[r.name] = struct{}{}
	}
	for _, name := range s.removed {
		doubt[name] = struct{}{}
	}
}

// quiet reports whether Envoy has answered every response, and the control plane every subscription. Unanswered
// subscriptions older than the duration patience are ignored.
func (m *mirror) quiet(now time.Time, patience time.Duration) bool {
	for _, k := range m.types {
		if len(k.flying) > 0 {
			return false
		}
		if (k.unsaid > 0 || !k.answered) && now.Sub(k.lastAsk) < patience {
			return false
		}
	}
	return true
}

// wanted reports whether Envoy subscribes to anything of the type.
func (k *typeState) wanted() bool { return k.all || len(k.names) > 0 }

// restate returns the first request of a type on a new upstream: the subscribed names and the stated versions, both
// sorted. If subscribe is empty, the request is for the wildcard. The stated version is inDoubt for refused resources,
// and for resources of responses that Envoy has not answered. It is also inDoubt for a resource that Envoy has and has
// subscribed to again, until the new subscription is answered.
func (k *typeState) restate() (subscribe []string, initial []named) {
	if !k.legacy {
		subscribe = slices.Sorted(maps.Keys(k.names))
		if k.all {
			subscribe = slices.Insert(subscribe, 0, wildcard)
		}
	}
	doubt := maps.Clone(k.doubt)
	for _, s := range k.flying {
		s.suspect(doubt)
	}
	for name, version := range k.held {
		if k.names[name] {
			doubt[name] = struct{}{}
		} else if _, is := doubt[name]; !is {
			initial = append(initial, named{name, version})
		}
	}
	for name := range doubt {
		if _, by := k.names[name]; by || k.all {
			initial = append(initial, named{name, inDoubt})
		}
	}
	slices.SortFunc(initial, func(a, b named) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return subscribe, initial
}
