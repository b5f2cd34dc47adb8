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

// AgentType is a resource type for the agents beside Envoy, in addition to Envoy's types. Agents request such a type on
// the stream that they forward for Envoy, and do not forward the response to Envoy. A client has at most one resource
// of the type. After Server.AgentResourceChanged, the server pushes the resource if it has changed. In delta.State an
// AgentType is a dynamic type.
type AgentType struct {
	// TypeURL is the requested type. It must not be the URL of an xds.Type.
	TypeURL string
	// Resource returns the client's resource, or nil if the client has no resource of the type. Resource is called at
	// the subscription and before each response of a subscribed stream, by any goroutine. The call occupies the
	// stream's turn to send, so Resource must return in constant time. For equal content it should return the same
	// pointer, so that streams share the bytes.
	Resource func(Client, Proxy) *AgentResource
}

// AgentResource is an encoded resource of an agent type. It is immutable, and all streams that send it share it.
type AgentResource struct {
	Name    string
	Version string // hash of the body, in hexadecimal

	stack manifest.Stack // contains only this resource
}

// agentMarshal encodes equal messages as equal bytes.
var agentMarshal = proto.MarshalOptions{Deterministic: true}

// EncodeAgentResource returns a resource with the given name, whose body is an Any with the message m.
// EncodeAgentResource does not keep the message. It fails if the name is not UTF-8, or if the message does not marshal.
func EncodeAgentResource(name string, m proto.Message) (*AgentResource, error) {
	body := &anypb.Any{}
	if err := anypb.MarshalFrom(body, m, agentMarshal); err != nil {
		return nil, fmt.Errorf("encode agent resource %q: %w", name, err)
	}
	return encodeAgentResourceBody(name, body)
}

// encodeAgentResourceBody makes a resource of an encoded message. It fails if the name or the type URL is not UTF-8, or
// if the type URL is missing.
func encodeAgentResourceBody(name string, body *anypb.Any) (*AgentResource, error) {
	r, err := xds.EncodeAny(name, body)
	if err != nil {
		return nil, fmt.Errorf("agent resource: %w", err)
	}
	return &AgentResource{Name: name, Version: r.Version, stack: manifest.Stack{manifest.Scope: manifest.Of(r)}}, nil
}

// PlannedAgentResource returns the resource of a manifest, which must have at most one resource. It returns nil for a
// nil or empty manifest.
func PlannedAgentResource(m *manifest.Manifest) *AgentResource {
	for r := range m.All() {
		return &AgentResource{Name: r.Name, Version: r.Version, stack: manifest.Stack{manifest.Scope: m}}
	}
	return nil
}

// resource returns the resource in the stack.
func (r *AgentResource) resource() *xds.Resource { return r.stack[manifest.Scope].Get(r.Name) }

// Body returns a copy of the encoded message, for debugging and tests.
func (r *AgentResource) Body() *anypb.Any { return r.resource().Any() }

// AgentResourceChanged notifies the server that the resource of an agent type may have changed for any client. Every
// subscribed stream requests a turn to send. The call does not wait for sends. Its cost grows with the number of
// streams. Unknown types are ignored.
func (s *Server) AgentResourceChanged(typeURL string) {
	s.AgentResourceChangedFor(typeURL, func(_ Proxy, listens bool) bool { return listens })
}

// AgentResourceChangedFor notifies the server as AgentResourceChanged does, but only for the streams that the predicate
// selects. The predicate is called once for each joined stream. Its argument listens reports whether the stream has
// subscribed to the type and has not ended. A stream that subscribes during the call requests a turn in any case.
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

// subscribeAgentType records the subscription to the i-th agent type, before the request is processed. It reports
// whether the subscription is new.
func (st *stream) subscribeAgentType(i int) (first bool) {
	bit := uint32(1) << i
	return st.agentTypes.Or(bit)&bit == 0
}

// subscribed reports whether the stream has subscribed to the i-th agent type.
func (st *stream) subscribed(i int) bool { return st.agentTypes.Load()&(1<<i) != 0 }

// listens reports whether the stream has subscribed to the i-th agent type and has not ended.
func (st *stream) listens(i int) bool {
	if !st.subscribed(i) {
		return false
	}
	return !st.ended()
}

// offers contains a client's resources of agent types at one moment. They are collected before the stream's lock is
// acquired, because collecting them calls functions of other packages.
type offers struct {
	asked     uint32                           // a bit for each type to which the client had subscribed
	resources [delta.MaxDynamic]*AgentResource // collected only for the types in asked; nil without a resource
}

// offersNow collects the resources of the types to which the client has subscribed.
func (st *stream) offersNow() (all offers) {
	all.asked = st.agentTypes.Load()
	for i := range st.srv.cfg.AgentTypes {
		if all.asked&(1<<i) != 0 {
			all.resources[i] = st.srv.cfg.AgentTypes[i].Resource(st.client, st.proxy)
		}
	}
	return all
}

// offer passes the offered resources to the state, for each type to which the client had subscribed. The caller holds
// the lock.
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

// agentType returns the index of an agent type in Config.AgentTypes. It returns false for Envoy's types.
func agentType(t xds.Type) (i int, is bool) {
	i = int(t) - int(delta.Dynamic(0))
	return i, i >= 0
}

// reportAgent logs a NACK of a resource of the i-th agent type. Other reports have no effect.
func (st *stream) reportAgent(i int, r *delta.Report) {
	if r.Kind == delta.Nacked {
		st.srv.clients.Warn("agent refused a resource", st.srv.cfg.AgentTypes[i].TypeURL,
			append(st.about(errors.New(r.Text)), "version", r.Version)...)
	}
}

// lateAgentType returns the URL of an agent type whose resource was not acknowledged in time, or "". The caller holds
// the lock.
func (x *exchange) lateAgentType(now time.Time, limits limits) string {
	for i := range x.agentWaiting {
		if !x.state.InFlightResource(delta.Dynamic(i)) {
			continue // Istio's agents do not acknowledge a response of an agent type without resources
		}
		if x.sender.due { // the client reads in order, and must read the due response first
			x.agentWaiting[i] = max(x.agentWaiting[i], now.UnixNano())
		}
		if now.Sub(time.Unix(0, x.agentWaiting[i])) > limits.ack {
			return limits.agents[i].TypeURL
		}
	}
	return ""
}

// waitingSince returns a pointer to the time since which the oldest response of a type waits for its acknowledgement.
// The time is in Unix nanoseconds. The caller holds the lock.
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

// AgentSubscriptionInfo describes one agent type of one stream, for debugging.
type AgentSubscriptionInfo struct {
	TypeURL  string
	Version  string // version that the client has if it accepts the responses in flight; empty without a resource
	Refused  string // refused version, which is not sent again; empty without such a version
	InFlight bool   // the client has neither acknowledged nor refused a response yet
}

// agentSubscriptionInfo describes the agent types to which the client has subscribed, in the order of agents. The
// caller holds the lock.
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
