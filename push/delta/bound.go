package delta

import (
	"iter"
	"slices"
	"strings"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// The memory that a client can cause by requesting names is bounded. The names of existing resources are bounded by
// the number of resources. A name without a resource is called unknown. Unknown names are normal: Envoy requests
// assignments and routes before they exist, and keeps requesting those that were removed. So unknown names are kept
// and answered like other names, within bounds for each type of a stream.
//
// The memory for unknown names must also be granted. Cost returns the bytes that a request needs, Grant grants bytes
// before Request processes the request, and Surplus returns unused bytes afterwards. Names beyond the bounds or the
// granted bytes are left out: they are neither kept nor answered.
const (
	// maxName is the maximum length of an unknown name in bytes; longer names are left out. Names that Envoy derives
	// from Kubernetes' names have less than 1,000 bytes.
	maxName = 4096
	// fewNames and fewBytes limit the number and the total length of a stream's unknown names of one type. If the names
	// of the type's resources are more or longer, their number and total length are the limits. The limit on all names,
	// known and unknown, is three times the limit on the number of unknown names. This limit on all names is higher
	// because names stay subscribed after their resource is removed.
	fewNames = 4096
	fewBytes = 1 << 20
	// manyClaims limits the unknown names that a resuming client may claim (list as resources that it has). It applies
	// to types with a wildcard subscription. If the type has more resources, their number is the limit. The limit is
	// high because claimed resources that no longer exist must be removed.
	manyClaims = 1 << 16
	// costUnknown is the approximate cost in bytes of an unknown name besides its length: its override, its placeholder
	// and its elements in lists.
	costUnknown = 512
	// spendAtOnce is the smallest result of Cost other than 0, in bytes.
	spendAtOnce = 8 << 10
)

// maxNonce is the maximum length of a reported nonce in bytes. Nonces of this server are shorter.
const maxNonce = 64

// unknown counts the names of one type that had no resource when they were requested or last counted.
type unknown struct {
	names int
	bytes int // cost of the names (see cost)
}

// cost returns the cost in bytes of an unknown name with the given length. Names of dynamic types are few and cost
// nothing.
func cost(t xds.Type, length int) int {
	if isDynamic(t) {
		return 0
	}
	return length + costUnknown
}

// LeftOut returns how many requested or claimed names were left out so far. Such names are neither kept nor answered. A
// name counts again whenever a request with it is processed and the name is left out.
func (s *State) LeftOut() int { return int(s.leftOut) }

// Again reports whether the client must reconnect, because names that were left out may have resources by now. On its
// next stream Envoy repeats its subscriptions and lists the resources that it has. For a type with a wildcard
// subscription, the client must reconnect once it has answered all responses of the type, and all names that it listed
// when it resumed were answered. For another type, it must reconnect if resources of the type were added or removed
// since names were left out. The call is cheap if no name was left out.
func (s *State) Again() bool {
	if s.leftOut == 0 {
		return false
	}
	for t := range s.types {
		ty := &s.types[t]
		switch {
		case !ty.short:
		case ty.all && len(ty.flights) == 0 && !ty.claimed():
			return true
		case !ty.all && s.stack(xds.Type(t)).Sum().Names != ty.shortAt:
			return true
		}
	}
	return false
}

// claimed reports whether a resource that the client listed when it resumed (override.claimed) is still unanswered.
func (ty *typed) claimed() bool {
	for _, o := range ty.overrides {
		if o.claimed {
			return true
		}
	}
	return false
}

// admit returns the names for which there is room, and charges the unknown ones among them to the granted bytes (pay).
// If there is room for all names, it returns the list itself. The result always contains the names that are kept
// already.
func (s *State) admit(t xds.Type, names []string) []string {
	ty, stack := s.typed(t), s.stack(t)
	room := s.room(t, names)
	var kept []string
	left := false
	for i, name := range names {
		keeps := ty.keeps(name) // room.total already counts the names that are kept
		ok := keeps
		switch {
		case keeps:
		case known(stack, name):
			ok = ty.all || room.total > 0
		default:
			ok = len(name) <= longest(t) && room.total > 0 && room.names > 0 && room.bytes >= len(name) && s.pay(t, len(name))
			if ok {
				room.names, room.bytes = room.names-1, room.bytes-len(name)
			}
		}
		if ok {
			if !keeps {
				room.total--
			}
		} else if s.leftOut++; !ty.all && len(name) <= longest(t) {
			s.cut(t) // with a wildcard subscription the resource is sent anyway when it exists
		}
		switch {
		case !ok && !left:
			left, kept = true, append(make([]string, 0, len(names)-1), names[:i]...)
		case ok && left:
			kept = append(kept, name)
		}
	}
	if left {
		return kept
	}
	return names
}

// manyTimes, multiplied by the limit on unknown names, is the maximum number of names of one request that admit
// examines. The limit on all kept names is lower.
const manyTimes = 6

// shorten removes names from a request that lists far more names than may be kept, before names are copied. A request
// may have hundreds of thousands of names. admit examines the remaining names one by one. For Envoy's types, shorten
// also removes names from Unsubscribe that the stream does not keep.
func (s *State) shorten(r Request) Request {
	ty, stack := s.typed(r.Type), s.stack(r.Type)
	most := max(fewNames, stack.Sum().Names.Len)
	if isDynamic(r.Type) {
		most = maxDynamicNames
	}
	if r.digest(); r.asked.Len > manyTimes*most {
		s.shortenAsked(&r, most)
	}
	if r.Unsubscribe != nil && !isDynamic(r.Type) {
		names := r.Unsubscribe
		r.Unsubscribe = func(yield func(string) bool) {
			for name := range names {
				if _, is := ty.overrides[name]; (is || listed(ty.names, name)) && !yield(name) {
					return
				}
			}
		}
	}
	return r
}

// shortenAsked shortens r.Subscribe to at most manyTimes*limit names. The parameter limit is the maximum number of
// unknown names among them.
func (s *State) shortenAsked(r *Request, limit int) {
	ty, stack := s.typed(r.Type), s.stack(r.Type)
	var left []string
	asked, all, unknown := r.asked.Len, r.all, 0
	r.asked = manifest.NameSum{}
	for name := range r.Subscribe {
		switch {
		case name == wildcard:
			continue
		case len(left) == manyTimes*limit:
			s.cut(r.Type)
			continue
		case ty.keeps(name) || known(stack, name):
		case unknown == limit || len(name) > longest(r.Type) && len(left) > 0:
			// The list must not become empty, which would be a wildcard for some types.
			if len(name) <= longest(r.Type) {
				s.cut(r.Type)
			}
			continue
		default:
			unknown++
		}
		left = append(left, strings.Clone(name))
		r.asked.Add(name)
	}
	s.leftOut += uint32(asked - len(left))
	if all {
		left = append(left, wildcard)
	}
	r.Subscribe = slices.Values(left)
}

// keeps reports whether memory for a requested name is in use already.
func (ty *typed) keeps(name string) bool {
	if listed(ty.names, name) {
		return true
	}
	_, is := ty.overrides[name]
	return is && ty.all
}

// longest returns the maximum length, in bytes, of the names of a type that are kept.
func longest(t xds.Type) int {
	if isDynamic(t) {
		return maxDynamicName
	}
	return maxName
}

// known reports whether a name has a resource, or a resource that is being built (manifest.Stack.Pending).
func known(stack manifest.Stack, name string) bool {
	return stack.Get(name) != nil || stack.Pending(name)
}

// room has the numbers that are still permitted: of all names, of unknown names, and of bytes of unknown names.
type room struct{ total, names, bytes int }

// room returns the room that is left for requested names.
func (s *State) room(t xds.Type, names []string) room {
	ty := s.typed(t)
	if isDynamic(t) {
		s.recount(t)
		left := maxDynamicNames - ty.names.Len()
		return room{total: left, names: left, bytes: left * maxDynamicName}
	}
	few, bytes := fewNames, fewBytes
	if ty.names.Len()+len(ty.overrides)+len(names) > fewNames || lengths(names) > fewBytes/4 {
		there := s.stack(t).Sum().Names
		few, bytes = max(few, there.Len), max(bytes, there.Bytes)
	}
	if ty.unknown.names+len(names) > few || ty.unknown.bytes > 0 && s.used+len(names)*costUnknown > s.granted {
		s.recount(t)
	}
	have := ty.names.Len()
	if ty.all {
		have = len(ty.overrides)
	}
	u := ty.unknown
	return room{total: 3*few - have, names: few - u.names, bytes: bytes - (u.bytes - u.names*costUnknown)}
}

// lengths returns the sum of the names' lengths, in bytes.
func lengths(names []string) (n int) {
	for _, name := range names {
		n += len(name)
	}
	return n
}

// admitClaim reports whether there is room for an unknown name that a resuming client has claimed. The type has a
// wildcard subscription. If there is room for a new name, admitClaim charges the name to the granted bytes (pay). The
// parameter limit is the maximum number of unknown names.
func (s *State) admitClaim(t xds.Type, name string, limit int) bool {
	ty := s.typed(t)
	if _, is := ty.overrides[name]; is || len(name) <= longest(t) && ty.unknown.names < limit && s.pay(t, len(name)) {
		return true
	}
	if s.leftOut++; len(name) <= longest(t) { // no resource has a longer name, so reconnecting would not help
		s.cut(t)
	}
	return false
}

// cut records that names of a type were left out, although they may have resources later. At the first call, it also
// records the sum of the names of the type's resources. It does nothing for dynamic types.
func (s *State) cut(t xds.Type) {
	if ty := s.typed(t); !ty.short && !isDynamic(t) {
		ty.short, ty.shortAt = true, s.stack(t).Sum().Names
	}
}

// pay counts one more unknown name of a type. With Config.Paid, it returns false and counts nothing if the granted
// bytes do not suffice.
func (s *State) pay(t xds.Type, length int) bool {
	cost := cost(t, length)
	if s.cfg.Paid && cost > 0 && s.used+cost > s.granted {
		return false
	}
	u := &s.typed(t).unknown
	u.names, u.bytes, s.used = u.names+1, u.bytes+cost, s.used+cost
	return true
}

// repay counts one unknown name less, after a name was unsubscribed.
func (s *State) repay(t xds.Type, length int) {
	if u := &s.typed(t).unknown; u.names > 0 {
		s.recounted(t, unknown{u.names - 1, max(0, u.bytes-cost(t, length))})
	}
}

// recount counts the unknown names of a type again. Names that have a resource now, and names that were answered and
// are no longer kept, cease to count.
func (s *State) recount(t xds.Type) {
	ty, stack := s.typed(t), s.stack(t)
	if ty.unknown.names == 0 {
		return
	}
	var now unknown
	count := func(name string) {
		if !known(stack, name) {
			now.names, now.bytes = now.names+1, now.bytes+cost(t, len(name))
		}
	}
	for _, name := range ty.names.All() {
		count(name)
	}
	for name := range ty.overrides {
		if ty.all && !listed(ty.names, name) {
			count(name)
		}
	}
	s.recounted(t, now)
}

// recounted sets the counts of a type's unknown names, and updates the used bytes.
func (s *State) recounted(t xds.Type, now unknown) {
	u := &s.typed(t).unknown
	s.used += now.bytes - u.bytes
	*u = now
}

// Cost returns the number of bytes that the caller should Grant before Request, so that unknown names of the request
// can be kept. A result other than 0 is at least 8 KiB and may exceed the need. Cost returns 0 if the granted bytes
// suffice, for dynamic types, and if Config.Paid is false.
func (s *State) Cost(r Request) (bytes int) {
	if !s.cfg.Paid || r.Type >= xds.NumTypes {
		return 0
	}
	r.digest()
	for name := range s.unknownIn(&r) {
		bytes += cost(r.Type, len(name))
	}
	if bytes > 0 && s.used+bytes > s.granted {
		s.recount(r.Type) // names that have a resource now release bytes
	}
	if bytes == 0 || s.used+bytes <= s.granted {
		return 0
	}
	return max(s.used+bytes-s.granted, spendAtOnce)
}

// unknownIn returns a sequence of the names of a request that may have to be paid for.
func (s *State) unknownIn(r *Request) iter.Seq[string] {
	return func(yield func(string) bool) {
		ty, stack := &s.types[r.Type], s.stack(r.Type)
		there := stack.Sum().Names
		most := max(fewNames, there.Len)
		pays := func(name string) bool {
			if len(name) > maxName || name == wildcard || ty.keeps(name) || known(stack, name) {
				return true
			}
			most--
			return yield(name) && most > 0
		}
		if r.asked.Len > 0 && r.asked != there && !(ty.subscribed && r.asked == ty.nameSum()) {
			for name := range r.Subscribe {
				if !pays(name) {
					return
				}
			}
		}
		if ty.subscribed || r.initialSum == stack.Sum() {
			return
		}
		most = max(manyClaims, there.Len)
		for name := range pairs(r.Initial) {
			if !pays(name) {
				return
			}
		}
	}
}

// Grant adds bytes to the memory that the stream may use for unknown names. It has no effect if Config.Paid is false.
func (s *State) Grant(bytes int) { s.granted += bytes }

// Surplus withdraws all granted bytes that are unused, and returns their number. It withdraws nothing and returns 0 if
// at most 16 KiB are unused, or if Config.Paid is false.
func (s *State) Surplus() (bytes int) {
	unused := s.granted - s.used
	if !s.cfg.Paid || unused <= 2*spendAtOnce {
		return 0
	}
	s.granted -= unused
	return unused
}

// useLess recounts the unknown names of a type with a wildcard subscription, if many counted names may have a resource
// now.
func (s *State) useLess(t xds.Type) {
	if ty := s.typed(t); ty.all && 2*len(ty.overrides) <= ty.unknown.names {
		s.recount(t)
	}
}
