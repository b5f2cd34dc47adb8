package serve

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// AgentType is a type beside Envoy's own: agents ask for it on the stream that they carry for Envoy, and keep the answer for
// themselves. A client has one resource of it, or none. It is pushed when it changes (Server.AgentResourceChanged). To delta.State it is a
// dynamic type.
type AgentType struct {
	// TypeURL is what is asked for; not one of xds.Type.
	TypeURL string
	// Resource is the client's; nil: there is none. It is called before each response of a stream that subscribed, in its turn (fanout.Loop.Join):
	// it must take constant time. Equal content should be one pointer, so that its bytes are shared.
	Resource func(Client, Proxy) *AgentResource
}

// AgentResource is an encoded resource of an agent type, shared by all streams that send it. Immutable.
type AgentResource struct {
	Name    string
	Version string // hash of the body, in hexadecimal

	stack manifest.Stack // which holds it alone
}

var agentMarshal = proto.MarshalOptions{Deterministic: true}

// EncodeAgentResource makes a resource of a message, in an Any of its own type. An error is a message that does not marshal.
func EncodeAgentResource(name string, m proto.Message) (*AgentResource, error) {
	body := &anypb.Any{}
	if err := anypb.MarshalFrom(body, m, agentMarshal); err != nil {
		return nil, fmt.Errorf("encode agent resource %q: %w", name, err)
	}
	return encodeAgentResourceBody(name, body)
}

// encodeAgentResourceBody makes a resource of an encoded message. An error is a name or type URL that is not UTF-8, or no type URL.
func encodeAgentResourceBody(name string, body *anypb.Any) (*AgentResource, error) {
	r, err := xds.EncodeAny(name, body)
	if err != nil {
		return nil, fmt.Errorf("agent resource: %w", err)
	}
	return &AgentResource{Name: name, Version: r.Version, stack: manifest.Stack{manifest.Scope: manifest.Of(r)}}, nil
}

// PlannedAgentResource is the one resource that a manifest holds; nil where there is no manifest.
func PlannedAgentResource(m *manifest.Manifest) *AgentResource {
	for r := range m.All() {
		return &AgentResource{Name: r.Name, Version: r.Version, stack: manifest.Stack{manifest.Scope: m}}
	}
	return nil
}

func (r *AgentResource) resource() *xds.Resource { return r.stack[manifest.Scope].Get(r.Name) }

// Body is a copy of what is in it, for debugging and tests.
func (r *AgentResource) Body() *anypb.Any { return r.resource().Any() }

// AgentResourceChanged says that clients may have another resource of an agent type: every stream that subscribed to it takes a turn,
// in the lane of configuration. It never blocks; the work is one mark for each of them. For a type that is not served it does
// nothing.
func (s *Server) AgentResourceChanged(typeURL string) {
	s.AgentResourceChangedFor(typeURL, func(_ Proxy, listens bool) bool { return listens })
}

// AgentResourceChangedFor is AgentResourceChanged of those streams that `of` picks. It is called once for each stream; listens says whether that has
// subscribed. A stream that subscribes meanwhile takes a turn whatever `of` has said.
func (s *Server) AgentResourceChangedFor(typeURL string, of func(p Proxy, listens bool) bool) {
	i, is := s.agentTypes[typeURL]
	if !is {
		return
	}
	now := time.Now()
	for _, st := range s.all() {
		listens := st.listens(i)
		if of(st.proxy, listens) || !listens && st.listens(i) {
			st.mark(fanout.Config, now)
		}
	}
}

// subscribeAgentType notes that a type is asked for, before the request is taken in; first: it was not before.
func (st *stream) subscribeAgentType(i int) (first bool) {
	bit := uint32(1) << i
	return st.agentTypes.Or(bit)&bit == 0
}

func (st *stream) subscribed(i int) bool { return st.agentTypes.Load()&(1<<i) != 0 }

// listens says whether the stream has joined and subscribed to an agent type.
func (st *stream) listens(i int) bool {
	if !st.subscribed(i) {
		return false
	}
	return !st.ended()
}

// offers are the resources of agent types that a client has, as of one moment. They are asked for before the stream's lock is taken,
// because that calls others.
type offers struct {
	asked     uint32 // a bit for each type that the client had subscribed to then; the others were not asked for
	resources [delta.MaxDynamic]*AgentResource
}

// offersNow are the resources of the types that the client subscribed to.
func (st *stream) offersNow() (all offers) {
	all.asked = st.agentTypes.Load()
	for i := range st.srv.cfg.AgentTypes {
		if all.asked&(1<<i) != 0 {
			all.resources[i] = st.srv.cfg.AgentTypes[i].Resource(st.client, st.proxy)
		}
	}
	return all
}

// offer gives the newest resources to the state. Called with the lock held.
func (x *exchange) offer(all *offers) {
	for i := range all.resources {
		if all.asked&(1<<i) == 0 {
			continue
		}
		var newest manifest.Stack
		if r := all.resources[i]; r != nil {
			newest = r.stack
		}
		x.state.Offer(delta.Dynamic(i), newest)
	}
}

// agentType says which agent type a type is; false: it is none.
func agentType(t xds.Type) (i int, is bool) {
	i = int(t) - int(delta.Dynamic(0))
	return i, i >= 0
}

// reportAgent passes on what the state machine noticed of an agent type.
func (st *stream) reportAgent(i int, r *delta.Report) {
	if r.Kind == delta.Nacked {
		st.srv.clients.Warn("agent refused an agent resource", st.srv.cfg.AgentTypes[i].TypeURL, append(st.about(errors.New(r.Text)), "version", r.Version)...)
	}
}

// lateAgentType is the agent type whose resource is not acknowledged in time; empty: none is. Called with the lock held.
func (x *exchange) lateAgentType(now time.Time, limits limits) string {
	for i := range x.agentWaiting {
		if !x.state.InFlightResource(delta.Dynamic(i)) {
			continue // stock agents do not acknowledge a response without resources of their own types
		}
		if x.sender.due { // the client may not get to read it before it has what is due
			x.agentWaiting[i] = max(x.agentWaiting[i], now.UnixNano())
		}
		if now.Sub(time.Unix(0, x.agentWaiting[i])) > limits.ack {
			return limits.agents[i].TypeURL
		}
	}
	return ""
}

// waitingSince is where it is noted since when the oldest response of a type waits for its ACK. Called with the lock held.
func (x *exchange) waitingSince(t xds.Type) *int64 {
	i, is := agentType(t)
	if !is {
		return &x.waiting[t]
	}
	if x.agentWaiting == nil {
		x.agentWaiting = make([]int64, delta.MaxDynamic)
	}
	return &x.agentWaiting[i]
}

// AgentSubscriptionInfo is one agent type of one stream, for debugging.
type AgentSubscriptionInfo struct {
	TypeURL  string
	Version  string // held once what is in flight has arrived; empty: none
	Refused  string // a version that the client refused
	InFlight bool
}

// agentSubscriptionInfo is called with the lock held.
func (x *exchange) agentSubscriptionInfo(agents []AgentType) (all []AgentSubscriptionInfo) {
	for i := range agents {
		t := delta.Dynamic(i)
		if !x.state.Subscribed(t) {
			continue
		}
		info := AgentSubscriptionInfo{TypeURL: agents[i].TypeURL, Refused: x.state.Refused(t), InFlight: x.state.InFlight(t) > 0}
		for _, r := range x.state.Holding(t) {
			info.Version = r.Version
		}
		all = append(all, info)
	}
	return all
}
