package delta

import (
	"strconv"

	"google.golang.org/grpc/mem"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Credit is the default of Config.Credit: below gRPC's write quota of 64 KiB a stream, so that SendMsg does not block.
const Credit = 60 << 10

// maxFlights is how many responses of one type may be unacknowledged: more than one only of clusters, and of dependencies that are due.
const maxFlights = 128

// Config is what a State is made of. The zero Config is ready for use.
type Config struct {
	// Dynamic are the type URLs of the types that are served beside Envoy's, MaxDynamic at most: agents ask for them. A client has one
	// resource of such a type, or none (dynamic.go).
	Dynamic []string
	// Credit is how many unacknowledged bytes stop further responses; 0: the default.
	Credit int
	// SotW makes a state-of-the-world stream.
	SotW bool
	// Paid says that what the stream keeps of names of which there is nothing has to be granted (Cost, Grant, Surplus).
	Paid bool
	// Names interns subscriptions, so that proxies with equal ones share them; nil: its own.
	Names *Names
	// Diffs remembers differences, so that streams share the work; nil: they are not remembered.
	Diffs *Diffs
}

// State is one stream. It is not safe for concurrent use.
type State struct {
	cfg        Config
	target     *manifest.Set // the newest
	types      [xds.NumTypes]typed
	dynamic    *[MaxDynamic]*dynamic // as Config.Dynamic; nil, and an entry of it: never asked for
	unacked    int                   // bytes
	serial     uint64
	resumeOver bool
	urgent     bool   // the response that is being made does not wait for configuration
	deciding   bool   // until decided
	leftOut    uint32 // names
	rests      [xds.NumTypes]rest
	granted    int // bytes, by Grant
	withheld   func(*xds.Resource) bool
	used       int // of these: the sum of typed.unknown

	now      int64   // by Tick, unix nanoseconds
	answered uint64  // the newest response that the client has answered: it has read those before it
	claims   bool    // the first request for clusters says that the client has some
	early    bool    // listeners or routes were asked for before any cluster was sent: the client has clusters
	assumed  bool    // clusters are sent although the client has not asked for them: EndResume
	opened   opened  // see openClusters; kept while deciding
	ahead    []ahead // what was sent ahead of clusters
	lost     bool    // more was sent ahead than is remembered
}

// typed is the state of one type: two stacks that all streams share, and the overrides.
type typed struct {
	subscribed bool // a request of this type has come
	all        bool // subscribed to whatever there is
	answer     bool // the first request is answered, even with nothing
	resumed    bool // the first request claimed versions
	fresh      bool // its names were never answered: they are sent as they are in the set, without an override for each

	names       intern.List[string] // sorted; what is subscribed by name
	summed      intern.List[string] // what sum is of
	sum         manifest.NameSum
	acked, sent manifest.Stack
	overrides   map[string]override // names of which acked and sent are not true
	flights     []flight            // oldest first
	retry       [][]string          // names of refused responses, to be sent in responses of their own
	unknown     unknown
	short       bool             // names were left out that may matter later
	shortAt     manifest.NameSum // what there was when the first of them was

	sentNonce, ackedNonce       uint64
	settled                     uint64 // the newest response that was answered
	sentRevision, ackedRevision int64
}

// override is a name whose state differs from what the stacks say.
type override struct {
	have        *xds.Resource   // acknowledged, or the last good version; nil: none, or not known
	held        bool            // the client may hold something that have does not say
	claimed     bool            // it said that it holds another version
	force       bool            // subscribed to: must be answered even if nothing differs
	placeholder bool            // what it has is the empty placeholder for a resource that does not exist
	refused     string          // the version that it refused
	maybe       []*xds.Resource // versions in responses that it refused for something else: it may have applied one of them
	noStandIn   bool            // it has refused the stand-in for that version, too
	lacks       string          // the cluster that the client has refused, because of which it was sent the version before again
	flying      uint64          // the newest response in flight that carries the name
	now         *xds.Resource   // carried by it
	since       int64           // it waits for clusters since then, unix nanoseconds; 0: it does not
}

// has is what the client has of the name once all that is in flight has arrived; nil: nothing, or it is not known.
func (o override) has() *xds.Resource {
	if o.flying != 0 {
		return o.now
	}
	return o.have
}

// flight is a response that is not acknowledged.
type flight struct {
	nonce    uint64
	size     int             // on the wire, bytes
	kept     int             // of what differs alone: less than size where a state-of-the-world response has more
	set      []*xds.Resource // sorted by name
	removed  []string
	at       manifest.Stack // sent, after this response
	revision int64
	since    int64  // when it was sent, unix nanoseconds
	version  string // of a state-of-the-world response
	whole    bool   // it also carries what the flights before it set, less what was removed since
}

// Reply is a response to be sent.
type Reply struct {
	Type     xds.Type
	URL      string          // of the type
	Set      []*xds.Resource // by name; of a state-of-the-world stream's CDS and LDS: everything
	Removed  []string        // sorted; never a name of Set
	Nonce    string
	Version  string          // the hash of the set; state of the world only
	Encoded  mem.BufferSlice // Set, as xds.Pack makes it; not of a state-of-the-world stream
	Size     int             // bytes on the wire, framing included
	Revision int64
	// Due says that it is outside the credit: sending it may block.
	Due bool
}

// New makes the state of a stream that nothing was asked on; set is the view's newest.
func New(cfg Config, set *manifest.Set) *State {
	if cfg.Credit == 0 {
		cfg.Credit = Credit
	}
	if cfg.Names == nil {
		cfg.Names = &Names{}
	}
	return &State{cfg: cfg, target: set, now: 1}
}

// Target is the event that the view has a newer set.
func (s *State) Target(set *manifest.Set) { s.target = set }

// Withhold is the event that other versions must not be sent to this client although it has not refused them itself; nil: there are none.
// The function is asked by Next and Urgent, about versions that the client does not have.
func (s *State) Withhold(versions func(*xds.Resource) bool) { s.withheld = versions }

// withholds says whether a version must not be sent.
func (s *State) withholds(r *xds.Resource) bool { return s.withheld != nil && s.withheld(r) }

// Aims says whether the client is being brought to what a set has: whether Target was told of it, or of one with the same.
func (s *State) Aims(set *manifest.Set) bool { return s.target == set || s.target.Types == set.Types }

// Took says whether the client has acknowledged, or refused, all configuration of the newest set that it asks for. Endpoints do
// not count, nor do removals that wait, nor dynamic types, nor clusters whose answer may wait until others are warm (overtaken).
func (s *State) Took() bool {
	for t := range s.types {
		ty := &s.types[t]
		if !ty.subscribed || xds.Type(t) == xds.Endpoint {
			continue
		}
		if ty.answer || ty.fresh || s.outstanding(xds.Type(t)) || len(ty.retry) > 0 || ty.sent != s.target.Types[t] {
			return false
		}
	}
	_, waits := s.Wake()
	return !waits
}

// outstanding says whether an answer of a type is to come soon.
func (s *State) outstanding(t xds.Type) bool {
	flights := s.typed(t).flights
	return len(flights) > 0 && !s.overtaken(t, &flights[len(flights)-1])
}

// overtaken says whether a response with clusters has no answer although listeners or routes that were sent later have: a cluster warms.
func (s *State) overtaken(t xds.Type, f *flight) bool {
	return t == xds.Cluster && f.nonce < max(s.types[xds.Listener].ackedNonce, s.types[xds.Route].ackedNonce)
}

// Settled says whether everything that was sent is acknowledged or refused, but for clusters that warm.
func (s *State) Settled() bool {
	if s.unacked == 0 {
		return true
	}
	for t := range s.types {
		if s.outstanding(xds.Type(t)) {
			return false
		}
	}
	for t := range s.dynamicTypes() {
		if s.outstanding(t) {
			return false
		}
	}
	return true
}

// MayWarm says whether the client may leave clusters unacknowledged for as long as it likes, because one of them warms. One that begins with nothing
// acknowledges its first clusters at once.
func (s *State) MayWarm() bool { return s.answered > 0 || s.claims || s.assumed }

// EndResume is the event that the client had time to ask for everything it held before: removals of clusters no longer
// wait for types that it has not asked for. An Envoy that asks for all but clusters warms one of these, and is sent clusters unasked.
func (s *State) EndResume() {
	s.resumeOver = true
	cds, lds := &s.types[xds.Cluster], &s.types[xds.Listener]
	if !cds.subscribed && lds.subscribed && lds.all && s.types[xds.Endpoint].subscribed {
		s.assumed, cds.subscribed, cds.all = true, true, true
		s.exposeUnrecorded()
	}
}

// Idle says that Next has certainly nothing to give; cheap.
func (s *State) Idle() bool {
	for t := range s.types {
		if !s.types[t].idle(s.stack(xds.Type(t))) {
			return false
		}
	}
	for t := range s.dynamicTypes() {
		if d := s.dynamicOf(t); !d.idle(d.target) {
			return false
		}
	}
	return true
}

// idle says that nothing of a type is to be sent, and certainly nothing of a stack.
func (ty *typed) idle(stack manifest.Stack) bool {
	return !ty.subscribed || !ty.answer && !ty.fresh && len(ty.overrides) == 0 && len(ty.retry) == 0 && ty.sent == stack
}

// InFlight is the number of unacknowledged responses of a type.
func (s *State) InFlight(t xds.Type) int {
	if ty := s.typed(t); ty != nil {
		return len(ty.flights)
	}
	return 0
}

// Subscribed says whether a type was asked for on the stream.
func (s *State) Subscribed(t xds.Type) bool {
	ty := s.typed(t)
	return ty != nil && ty.subscribed
}

// Unacked is the number of unacknowledged bytes.
func (s *State) Unacked() int { return s.unacked }

// typed is the state of a type; nil of a dynamic one that was never asked for.
func (s *State) typed(t xds.Type) *typed {
	if t < xds.NumTypes {
		return &s.types[t]
	}
	if d := s.dynamicOf(t); d != nil {
		return &d.typed
	}
	return nil
}

// stack is what the client is to have of a type.
func (s *State) stack(t xds.Type) manifest.Stack {
	if d := s.dynamicOf(t); d != nil {
		return d.target
	}
	return s.target.Types[t]
}

func (ty *typed) wants(name string) bool { return ty.all || listed(ty.names, name) }

// nameSum is the sum of the names subscribed to.
func (ty *typed) nameSum() manifest.NameSum {
	if ty.summed != ty.names {
		ty.summed, ty.sum = ty.names, sumOf(ty.names.All())
	}
	return ty.sum
}

func (ty *typed) put(name string, o override) {
	if ty.overrides == nil {
		ty.overrides = map[string]override{}
	}
	ty.overrides[name] = o
}

// overrideOf is the override of a name; where there is none, one that says what the stack says.
func (ty *typed) overrideOf(name string, stack manifest.Stack) override {
	if o, ok := ty.overrides[name]; ok {
		return o
	}
	return override{have: stack.Get(name)}
}

// current is the override of a name; where there is none, one that says what was sent and acknowledged.
func (ty *typed) current(name string) override {
	if o, ok := ty.overrides[name]; ok {
		return o
	}
	return ty.standing(name)
}

// standing is what the stacks and the responses in flight say of a name.
func (ty *typed) standing(name string) override {
	if nonce, r := ty.later(0, name); nonce != 0 {
		return override{have: ty.acked.Get(name), flying: nonce, now: r}
	}
	return override{have: ty.sent.Get(name)}
}

// tidy sets an override, or drops it where it is superfluous.
func (ty *typed) tidy(name string, o override) {
	if ty.superfluous(name, o) {
		delete(ty.overrides, name)
		return
	}
	ty.put(name, o)
}

// tidyAll is tidy for all overrides.
func (ty *typed) tidyAll() {
	for name, o := range ty.overrides {
		if ty.superfluous(name, o) {
			delete(ty.overrides, name)
		}
	}
}

// superfluous says whether an override says nothing else than the stacks, and those that come between them as responses are acknowledged.
func (ty *typed) superfluous(name string, o override) bool {
	if o.flying != 0 || o.force || o.held || o.refused != "" || !same(o.have, ty.sent.Get(name)) {
		return false
	}
	for i := range ty.flights {
		if at := ty.flights[i].at; at != ty.sent && !same(o.have, at.Get(name)) {
			return false
		}
	}
	return ty.acked == ty.sent || same(o.have, ty.acked.Get(name))
}

// same says whether two resources are one as far as a client can see.
func same(a, b *xds.Resource) bool {
	return a == b || a != nil && b != nil && a.Version == b.Version
}

func nonceText(n uint64) string { return strconv.FormatUint(n, 10) }
