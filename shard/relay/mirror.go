package relay

import (
	"maps"
	"slices"
	"time"
)

const wildcard = "*"

// inDoubt is claimed as the version of a resource of which it is not known what Envoy has: it equals no version, so the
// next upstream sends the resource again, or its removal.
const inDoubt = "navarch-in-doubt"

// mirror is what Envoy has recorded and subscribed to on one stream: what it would say itself if it had to open a new
// one (envoy: source/extensions/config_subscription/grpc/delta_subscription_state.cc; measured, too).
type mirror struct {
	types []*kept // in the order of first use, which Envoy keeps when it reconnects
}

// kept is one type.
type kept struct {
	url      string
	all      bool            // the wildcard is subscribed
	legacy   bool            // by an empty first request, and nothing was subscribed by name since
	names    map[string]bool // subscribed by name; true: not answered since
	unsaid   int             // how many of names are true
	answered bool            // a response came, or Envoy said at the start what it holds
	lastAsk  time.Time
	held     map[string]string   // name -> version, as Envoy recorded them
	doubt    map[string]struct{} // names of responses that were refused, perhaps applied in part
	flying   []sent
}

// sent is a response that Envoy has not answered.
type sent struct {
	nonce    string // as Envoy knows it
	upstream string // as the upstream knows it
	conn     uint32
	set      []named
	removed  []string
}

func (m *mirror) find(url string) *kept {
	for _, k := range m.types {
		if k.url == url {
			return k
		}
	}
	return nil
}

// request is one of Envoy's requests. answered is the response it acknowledges or refuses; nil: none that is in flight.
func (m *mirror) request(h request, now time.Time) (answered *sent) {
	k := m.find(h.typeURL)
	if k == nil {
		k = &kept{url: h.typeURL, names: map[string]bool{}, held: map[string]string{}, doubt: map[string]struct{}{}}
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
		k.said(r.name) // a claim is answered only where it is wrong
	}
	return answered
}

func (k *kept) add(names []string, now time.Time) {
	for _, name := range names {
		k.lastAsk = now
		if k.legacy = false; name == wildcard {
			k.all = true
			continue
		}
		if _, again := k.names[name]; again && !k.all {
			delete(k.held, name) // Envoy left and came back, and forgot what it had
		}
		if !k.names[name] {
			k.names[name] = true
			k.unsaid++
		}
	}
}

func (k *kept) drop(names []string) {
	for _, name := range names {
		k.legacy = false
		if name == wildcard {
			k.all = false
			maps.DeleteFunc(k.held, func(name, _ string) bool { _, is := k.names[name]; return !is })
			continue
		}
		k.said(name)
		delete(k.names, name)
		if !k.all { // under the wildcard it may still be Envoy's
			delete(k.held, name)
			delete(k.doubt, name)
		}
	}
}

// said notes that a response has answered for a name.
func (k *kept) said(name string) {
	if k.names[name] {
		k.names[name] = false
		k.unsaid--
	}
}

// response is one that goes to Envoy. It is not recorded before Envoy accepts it.
func (m *mirror) response(h response, nonce string, conn uint32) {
	k := m.find(h.typeURL)
	if k == nil {
		return // Envoy never asked for it, and drops it
	}
	k.answered = true
	k.flying = append(k.flying, sent{nonce: nonce, upstream: h.nonce, conn: conn, set: h.set, removed: h.removed})
	for _, r := range h.set {
		k.said(r.name)
	}
	for _, name := range h.removed {
		k.said(name)
	}
}

func (k *kept) answer(nonce string, failed bool) *sent {
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

// suspect adds the names of a response.
func (s *sent) suspect(doubt map[string]struct{}) {
	for _, r := range s.set {
		doubt[r.name] = struct{}{}
	}
	for _, name := range s.removed {
		doubt[name] = struct{}{}
	}
}

// quiet says that nothing is in flight: each response is answered, and each question, but for those that have waited
// longer than patience.
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

// wanted says whether there is anything that Envoy subscribes to.
func (k *kept) wanted() bool { return k.all || len(k.names) > 0 }

// restate is the first request of a type on a new upstream: the names to subscribe to (none: all), and the claims, sorted.
// In doubt is also what Envoy asked for again and was not answered, and what an upstream that is gone had on the way.
func (k *kept) restate() (subscribe []string, initial []named) {
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
