package delta

import (
	"iter"
	"slices"
	"strings"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// What a client can make a stream keep by asking for names is bounded (issue 12, item 9). Names of resources that the client is
// to have are bounded by what there is; a name of which there is nothing is *unknown*. Unknown names are ordinary: Envoy asks
// for assignments and routes before they come into being, and after a removal for those that were. So they are kept and
// answered like others, within bounds that are counted for each type of a stream, and paid for: what a request may cost is said by Cost,
// and what is granted of that by Grant, before Request takes it; Surplus is what is given back after it. What is beyond the bounds is left
// out: it is neither kept nor answered.
const (
	// maxName is the length in bytes of the longest unknown name; longer ones are left out. Names that Envoy makes of those of
	// Kubernetes have less than 1,000 bytes.
	maxName = 4096
	// fewNames and fewBytes are how many unknown names of one type a stream may ask for in any case, and how long all of them may
	// be together; where there are more resources, as many as these. All names together may be three times as many: those of
	// which there was something when they were asked for go on being kept.
	fewNames = 4096
	fewBytes = 1 << 20
	// manyClaims is how many unknown names a client that resumes may claim in any case, of a type of which it is sent everything:
	// whatever it has and there is no more must be removed.
	manyClaims = 1 << 16
	// costUnknown is about what an unknown name costs beside its own bytes: its override, its placeholder, its place in lists.
	costUnknown = 512
	// spendAtOnce is how much is asked for at least, bytes.
	spendAtOnce = 8 << 10
)

// maxNonce is the length in bytes of the longest nonce that is reported: ours are shorter.
const maxNonce = 64

// unknown counts the names of one type of which there was nothing when they were asked for.
type unknown struct {
	names int
	bytes int // that they cost
}

// cost is what an unknown name of some length costs, bytes. Of dynamic types a stream keeps so few that they are free.
func cost(t xds.Type, length int) int {
	if isDynamic(t) {
		return 0
	}
	return length + costUnknown
}

// LeftOut is how many names were left out so far.
func (s *State) LeftOut() int { return int(s.leftOut) }

// Again says that the client has to come again on another stream, because what was left out may matter by now: of a type of
// which it is sent everything, when it was told of the rest; else when there are other resources of the type than there were.
// Envoy asks for all that it wants then, and says what it has. Cheap.
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

// claimed says whether something that the client claimed is still to be answered.
func (ty *typed) claimed() bool {
	for _, o := range ty.overrides {
		if o.claimed {
			return true
		}
	}
	return false
}

// admit is those of names for which there is room: the list itself where there is for all. Names that are kept already have
// theirs.
func (s *State) admit(t xds.Type, names []string) []string {
	ty, stack := s.typed(t), s.stack(t)
	room := s.room(t, names)
	var kept []string
	left := false
	for i, name := range names {
		ok := ty.keeps(name)
		switch {
		case ok:
		case known(stack, name):
			ok = ty.all || room.total > 0
		default:
			ok = len(name) <= longest(t) && room.total > 0 && room.names > 0 && room.bytes >= len(name) && s.pay(t, len(name))
			if ok {
				room.names, room.bytes = room.names-1, room.bytes-len(name)
			}
		}
		if ok {
			room.total--
		} else if s.leftOut++; !ty.all && len(name) <= longest(t) {
			// of a type of which it is sent everything it is sent this, too, if that ever is
			s.cut(t)
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

// manyTimes is how many times as many names as there may be unknown ones a request may list before it is looked at which of them can matter: all that may be kept are three times as
// many.
const manyTimes = 6

// shorten leaves names out of a request that lists far more than may be kept, before any of them is copied: a message has room for hundreds of thousands. What is left is judged one by
// one (admit).
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

// shortenAsked leaves out of what a request asks for unknown names beyond most of them, and whatever there is more of than there are resources.
func (s *State) shortenAsked(r *Request, most int) {
	ty, stack := s.typed(r.Type), s.stack(r.Type)
	var left []string
	asked, all, unknown := r.asked.Len, r.all, 0
	r.asked = manifest.NameSum{}
	for name := range r.Subscribe {
		switch {
		case name == wildcard:
			continue
		case len(left) == manyTimes*most:
			s.cut(r.Type)
			continue
		case ty.keeps(name) || known(stack, name):
		case unknown == most || len(name) > longest(r.Type) && len(left) > 0:
			// a list is not left without any: that would be a wildcard of some types
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

// keeps says whether something is kept of a name that the client asks for.
func (ty *typed) keeps(name string) bool {
	if listed(ty.names, name) {
		return true
	}
	_, is := ty.overrides[name]
	return is && ty.all
}

// longest is the length in bytes of the longest name of a type that is kept.
func longest(t xds.Type) int {
	if isDynamic(t) {
		return maxDynamicName
	}
	return maxName
}

// known says whether there is something of a name, or will be in a moment.
func known(stack manifest.Stack, name string) bool {
	return stack.Get(name) != nil || stack.Pending(name)
}

// room is how many more names there may be, how many of which there is nothing, and how many bytes these may have.
type room struct{ total, names, bytes int }

// room is what is left for names that are asked for.
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

func lengths(names []string) (n int) {
	for _, name := range names {
		n += len(name)
	}
	return n
}

// admitClaim says whether there is room for a claim of which there is nothing, on a type of which everything is sent.
func (s *State) admitClaim(t xds.Type, name string, most int) bool {
	ty := s.typed(t)
	if _, is := ty.overrides[name]; is || len(name) <= longest(t) && ty.unknown.names < most && s.pay(t, len(name)) {
		return true
	}
	if s.leftOut++; len(name) <= longest(t) { // nobody else's name is as long: to come again would not help
		s.cut(t)
	}
	return false
}

// cut notes that names of a type were left out that matter, and what else there is.
func (s *State) cut(t xds.Type) {
	if ty := s.typed(t); !ty.short && !isDynamic(t) {
		ty.short, ty.shortAt = true, s.stack(t).Sum().Names
	}
}

// pay counts one more unknown name of a type; false: it cannot be paid for.
func (s *State) pay(t xds.Type, length int) bool {
	cost := cost(t, length)
	if s.cfg.Paid && cost > 0 && s.used+cost > s.granted {
		return false
	}
	u := &s.typed(t).unknown
	u.names, u.bytes, s.used = u.names+1, u.bytes+cost, s.used+cost
	return true
}

// repay counts one unknown name less: it is asked for no more.
func (s *State) repay(t xds.Type, length int) {
	if u := &s.typed(t).unknown; u.names > 0 {
		s.recounted(t, unknown{u.names - 1, max(0, u.bytes-cost(t, length))})
	}
}

// recount finds out what is kept of a type of which there is nothing: what came into being, or was answered and is kept no more,
// counts no longer.
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

func (s *State) recounted(t xds.Type, now unknown) {
	u := &s.typed(t).unknown
	s.used += now.bytes - u.bytes
	*u = now
}

// Cost is how many bytes more have to be granted, so that all names of a request can be kept of which there is nothing: an upper bound.
// 0, as of almost all requests: none.
func (s *State) Cost(r Request) (bytes int) {
	if !s.cfg.Paid || r.Type >= xds.NumTypes {
		return 0
	}
	r.digest()
	for name := range s.unknownIn(&r) {
		bytes += cost(r.Type, len(name))
	}
	if bytes > 0 && s.used+bytes > s.granted {
		s.recount(r.Type) // what has come into being pays for it
	}
	if bytes == 0 || s.used+bytes <= s.granted {
		return 0
	}
	return max(s.used+bytes-s.granted, spendAtOnce)
}

// unknownIn are the names of a request that may have to be paid for.
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

// Grant is the event that the stream may keep so many bytes more.
func (s *State) Grant(bytes int) { s.granted += bytes }

// Surplus is how many bytes were granted and are used no more; the stream does without them from here on.
func (s *State) Surplus() (bytes int) {
	unused := s.granted - s.used
	if !s.cfg.Paid || unused <= 2*spendAtOnce {
		return 0
	}
	s.granted -= unused
	return unused
}

// useLess finds out what of a type is not used any more, where that may be much.
func (s *State) useLess(t xds.Type) {
	if ty := s.typed(t); ty.all && 2*len(ty.overrides) <= ty.unknown.names {
		s.recount(t)
	}
}
