package delta

import (
	"strconv"

	"google.golang.org/grpc/mem"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Credit is the default of Config.Credit in bytes. It is below gRPC's write quota of 64 KiB per stream, so that SendMsg
// does not block.
const Credit = 60 << 10

// maxFlights is the maximum number of unacknowledged responses of one type. Types other than clusters have more than
// one only while the client may need them to acknowledge clusters (dependenciesDue).
const maxFlights = 128

// Config configures a State. The zero Config is ready for use.
type Config struct {
	// Dynamic are the type URLs of the dynamic types (dynamic.go); at most MaxDynamic.
	Dynamic []string
	// Credit bounds the bytes that were sent but that the client may not have read. At this number of bytes, only
	// responses with Reply.Due are sent. One response may be longer than Credit. 0: the constant Credit.
	Credit int
	// SotW selects the state-of-the-world form of the protocol; false: the delta form.
	SotW bool
	// Paid requires grants for the memory of names without a resource (Cost, Grant, Surplus).
	Paid bool
	// Names interns lists of names, so that streams with equal subscriptions share memory; nil: a new Names.
	Names *Names
	// Diffs caches differences between sets of resources, so that streams share the work; nil: no cache.
	Diffs *Diffs
}

// State is the protocol state of one stream. It is not safe for concurrent use.
type State struct {
	cfg        Config
	target     *manifest.Set // the newest set of resources for the client
	types      [xds.NumTypes]typed
	dynamic    *[MaxDynamic]*dynamic // states of the types in Config.Dynamic; nil, or a nil entry: not requested
	unacked    int                   // bytes
	serial     uint64                // nonce of the last response
	resumeOver bool                  // EndResume was called
	urgent     bool                  // Urgent is running
	deciding   bool                  // results are cached until the method decided is called
	leftOut    uint32                // number of names that were left out (bound.go)
	rests      [xds.NumTypes]rest    // results of restOf, kept while deciding
	granted    int                   // bytes granted for unknown names
	withheld   func(*xds.Resource) bool
	used       int // used part of granted: the total of typed.unknown

	now      int64   // time of the last Tick, in Unix nanoseconds
	answered uint64  // nonce of the newest response that the client has answered; it has read all earlier ones
	claims   bool    // the client listed clusters in its first request for clusters
	early    bool    // the client requested listeners or routes before a cluster was sent, so it has clusters
	assumed  bool    // clusters are sent although the client has not requested them (EndResume)
	opened   opened  // result of openClusters, kept while deciding
	ahead    []ahead // resources that were sent although they newly name an open cluster (openClusters)
	lost     bool    // ahead is incomplete: there were more such resources than maxAhead
}

// typed is the state of one type. The stacks acked and sent are sets of resources that streams share. acked has the
// resources that the client has acknowledged. sent has the resources of the client after it acknowledges all responses
// in flight. An override corrects both stacks for one name.
type typed struct {
	subscribed bool // a request of this type was processed
	all        bool // wildcard subscription: all resources
	answer     bool // the first request must be answered, even without content
	resumed    bool // the client listed versions in its first request
	fresh      bool // the first names were not answered yet; they have no overrides

	names       intern.List[string] // names of the subscription, sorted
	summed      intern.List[string] // the list whose digest is sum
	sum         manifest.NameSum
	acked, sent manifest.Stack
	overrides   map[string]override // by name: corrections of acked and sent
	flights     []flight            // oldest first
	retry       [][]string          // names in refused responses, whose resources are sent in separate responses
	unknown     unknown
	short       bool             // names beyond the memory bound were left out (cut)
	shortAt     manifest.NameSum // digest of the type's names at the time of cut

	sentNonce, ackedNonce       uint64
	settled                     uint64 // nonce of the newest answered response
	sentRevision, ackedRevision int64
}

// override is the state of a name for which the stacks typed.acked and typed.sent are wrong.
type override struct {
	have        *xds.Resource   // the acknowledged or last good version; nil: none or unknown
	held        bool            // the client may have a version other than the one in the field have
	claimed     bool            // the client listed another version
	force       bool            // the client subscribed to the name, which must be answered even without a difference
	placeholder bool            // the client has the empty placeholder for a missing resource
	refused     string          // the refused version
	maybe       []*xds.Resource // versions in responses that were refused for another resource; Envoy may have applied any
	noStandIn   bool            // the client has also refused the substitute (stand-in) for the refused version
	lacks       string          // name of the refused cluster that made the client get the previous version again
	flying      uint64          // nonce of the newest response in flight that carries the name; 0: none
	now         *xds.Resource   // the resource in the response with the nonce flying; nil: the response removes the resource
	since       int64           // start of the wait for clusters, in Unix nanoseconds; 0: the resource does not wait
}

// has returns the client's version of the name once all responses in flight have arrived; nil: none or unknown.
func (o override) has() *xds.Resource {
	if o.flying != 0 {
		return o.now
	}
	return o.have
}

// flight is an unacknowledged response.
type flight struct {
	nonce    uint64
	size     int             // size on the wire in bytes
	kept     int             // part of size for changed resources; state-of-the-world responses repeat others too
	set      []*xds.Resource // sorted by name
	removed  []string
	at       manifest.Stack // value of typed.sent after this response
	revision int64
	since    int64  // time of sending, in Unix nanoseconds
	version  string // version of a state-of-the-world response
	whole    bool   // the response also contains the resources of earlier flights that were not removed since
}

// Reply is a response to send.
type Reply struct {
	Type     xds.Type        // may be a dynamic type
	URL      string          // type URL
	Set      []*xds.Resource // sorted by name; in state of the world all resources of CDS, LDS and dynamic types; read-only
	Removed  []string        // names of removed resources, sorted, read-only; nil for state of the world
	Nonce    string          // decimal number; later responses have higher numbers
	Version  string          // hash of Set; empty in delta, and for a dynamic type with an empty Set
	Encoded  mem.BufferSlice // Set, encoded by xds.Pack in any order; the pieces are read-only; nil for state of the world
	Size     int             // upper bound of the size on the wire in bytes, with framing
	Revision int64           // the store's revision of the target
	// Due means that the response is sent although Config.Credit is used up or an earlier response of the type is
	// unacknowledged. Sending it may block. Without the resources in this response, the client does not acknowledge
	// clusters.
	Due bool
}

// New returns the state of a stream before its first request. The parameter set is the newest set of resources for the
// client, and must not be nil. State keeps the set and does not change it.
func New(cfg Config, set *manifest.Set) *State {
	if cfg.Credit == 0 {
		cfg.Credit = Credit
	}
	if cfg.Names == nil {
		cfg.Names = &Names{}
	}
	return &State{cfg: cfg, target: set, now: 1}
}

// Target sets the newest set of resources for the client, which must not be nil. Next then returns responses with the
// differences. State keeps the set and does not change it.
func (s *State) Target(set *manifest.Set) { s.target = set }

// Withhold sets a function that reports whether a version must not be sent to the client. nil: no version is withheld.
// Methods of State may call the function at any time, so it must not call State.
func (s *State) Withhold(versions func(*xds.Resource) bool) { s.withheld = versions }

// withholds reports whether a version must not be sent.
func (s *State) withholds(r *xds.Resource) bool { return s.withheld != nil && s.withheld(r) }

// Aims reports whether the set of the last call of Target (or of New) is the given set, or has equal resources for all
// of Envoy's types.
func (s *State) Aims(set *manifest.Set) bool { return s.target == set || s.target.Types == set.Types }

// Took reports whether the client has acknowledged or refused all configuration that it subscribes to in the newest
// set. Withheld versions, endpoints, removals that wait, and dynamic types do not count. Clusters without an answer do
// not count either if the client has acknowledged later listeners or routes (overtaken). Took may be false until Next
// has returned false.
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

// outstanding reports whether an ACK or NACK of a type is expected soon.
func (s *State) outstanding(t xds.Type) bool {
	flights := s.typed(t).flights
	return len(flights) > 0 && !s.overtaken(t, &flights[len(flights)-1])
}

// overtaken reports whether a response with clusters is unanswered although later listeners or routes were
// acknowledged. One of the clusters is then warming: Envoy waits for its endpoints or secrets.
func (s *State) overtaken(t xds.Type, f *flight) bool {
	return t == xds.Cluster && f.nonce < max(s.types[xds.Listener].ackedNonce, s.types[xds.Route].ackedNonce)
}

// Settled reports whether the client has acknowledged or refused every response. Responses with clusters that are
// warming (overtaken) do not count.
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

// MayWarm reports whether the client may leave clusters unacknowledged without a time limit, because one of them warms
// (waits for its endpoints or secrets). A client that starts without resources acknowledges its first clusters at once.
// For this client, the result is false until it has answered a response.
func (s *State) MayWarm() bool { return s.answered > 0 || s.claims || s.assumed }

// EndResume states that the time is over in which a reconnecting client requests all types of which it has resources.
// Removals of clusters then no longer wait for types that the client has not requested. A client that has requested all
// listeners and some endpoints, but no clusters, is an Envoy that warms a cluster. Next sends all clusters to this
// client without a request.
func (s *State) EndResume() {
	s.resumeOver = true
	cds, lds := &s.types[xds.Cluster], &s.types[xds.Listener]
	if !cds.subscribed && lds.subscribed && lds.all && s.types[xds.Endpoint].subscribed {
		s.assumed, cds.subscribed, cds.all = true, true, true
		s.exposeUnrecorded()
	}
}

// Idle reports whether Next certainly has no response. The call is cheap.
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

// idle reports whether a type certainly has nothing to send if stack is its target.
func (ty *typed) idle(stack manifest.Stack) bool {
	return !ty.subscribed || !ty.answer && !ty.fresh && len(ty.overrides) == 0 && len(ty.retry) == 0 && ty.sent == stack
}

// InFlight returns the number of responses of a type that the client has neither acknowledged nor refused. It returns 0
// for a type that was not requested.
func (s *State) InFlight(t xds.Type) int {
	if ty := s.typed(t); ty != nil {
		return len(ty.flights)
	}
	return 0
}

// Subscribed reports whether a type was requested on the stream, or clusters are sent without a request (EndResume).
func (s *State) Subscribed(t xds.Type) bool {
	ty := s.typed(t)
	return ty != nil && ty.subscribed
}

// Unacked returns the sum of Reply.Size, in bytes, of all responses that the client has neither acknowledged nor
// refused.
func (s *State) Unacked() int { return s.unacked }

// typed returns the state of a type; nil for a dynamic type that was neither opened nor requested.
func (s *State) typed(t xds.Type) *typed {
	if t < xds.NumTypes {
		return &s.types[t]
	}
	if d := s.dynamicOf(t); d != nil {
		return &d.typed
	}
	return nil
}

// stack returns the newest resources of a type.
func (s *State) stack(t xds.Type) manifest.Stack {
	if d := s.dynamicOf(t); d != nil {
		return d.target
	}
	return s.target.Types[t]
}

// wants reports whether the client subscribes to a name.
func (ty *typed) wants(name string) bool { return ty.all || listed(ty.names, name) }

// nameSum returns the digest of the subscribed names.
func (ty *typed) nameSum() manifest.NameSum {
	if ty.summed != ty.names {
		ty.summed, ty.sum = ty.names, sumOf(ty.names.All())
	}
	return ty.sum
}

// put sets the override of a name.
func (ty *typed) put(name string, o override) {
	if ty.overrides == nil {
		ty.overrides = map[string]override{}
	}
	ty.overrides[name] = o
}

// overrideOf returns the override of a name. Without an override it returns an override with the version of the given
// stack.
func (ty *typed) overrideOf(name string, stack manifest.Stack) override {
	if o, ok := ty.overrides[name]; ok {
		return o
	}
	return override{have: stack.Get(name)}
}

// current returns the override of a name. Without an override it returns the name's state by the stacks (standing).
func (ty *typed) current(name string) override {
	if o, ok := ty.overrides[name]; ok {
		return o
	}
	return ty.standing(name)
}

// standing returns the state of a name without an override, from the stacks and the responses in flight.
func (ty *typed) standing(name string) override {
	if nonce, r := ty.later(0, name); nonce != 0 {
		return override{have: ty.acked.Get(name), flying: nonce, now: r}
	}
	return override{have: ty.sent.Get(name)}
}

// tidy sets an override, or drops it if it is superfluous.
func (ty *typed) tidy(name string, o override) {
	if ty.superfluous(name, o) {
		delete(ty.overrides, name)
		return
	}
	ty.put(name, o)
}

// tidyAll drops all superfluous overrides.
func (ty *typed) tidyAll() {
	for name, o := range ty.overrides {
		if ty.superfluous(name, o) {
			delete(ty.overrides, name)
		}
	}
}

// superfluous reports whether an override is not needed, because it agrees with acked, sent, and the stacks of the
// responses in flight.
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

// same reports whether two resources are equal for a client: both nil, or of the same version.
func same(a, b *xds.Resource) bool {
	return a == b || a != nil && b != nil && a.Version == b.Version
}

// nonceText returns a nonce as text.
func nonceText(n uint64) string { return strconv.FormatUint(n, 10) }
