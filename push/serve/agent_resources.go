package serve

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
)

// AgentResourceChanged says that clients may have another resource of an agent type: every stream that subscribed to it takes a turn,
// in the lane of configuration. It never blocks; the work is one mark for each of them. A type that is not served is
// nobody's.
func (s *Server) AgentResourceChanged(typeURL string) {
	s.AgentResourceChangedFor(typeURL, func(_ View, listens bool) bool { return listens })
}

// AgentResourceChangedFor is AgentResourceChanged of those streams of which `of` says so. It is asked once of each stream, listens: it has
// subscribed; where a stream subscribes meanwhile it takes a turn whatever `of` has said.
func (s *Server) AgentResourceChangedFor(typeURL string, of func(v View, listens bool) bool) {
	i, is := s.agentTypes[typeURL]
	if !is {
		return
	}
	now := time.Now()
	for _, st := range s.all() {
		listens := st.listens(i)
		if of(st.view, listens) || !listens && st.listens(i) {
			st.mark(st.turn.Load(), fanout.Config, now)
		}
	}
}

func (st *stream) listens(i int) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.agentSubscriptions != nil && st.agentSubscriptions[i] != nil && !st.closed
}

// advanceAgentSubscription gives a request to the state of an agent type, and asks for a turn where there is something to answer.
func (st *stream) advanceAgentSubscription(i int, m delta.Message) error {
	now := time.Now()
	agentType := &st.srv.cfg.AgentTypes[i]
	var refusal, refused string
	var acked int
	var due, idle, closed bool
	var moved time.Time
	st.locked(func() {
		if closed = st.closed; closed {
			return
		}
		if st.agentSubscriptions == nil {
			st.agentSubscriptions = make([]*agentSubscription, len(st.srv.cfg.AgentTypes))
		}
		if st.agentSubscriptions[i] == nil {
			st.agentSubscriptions[i] = &agentSubscription{sotw: st.sotw}
		}
		s := st.agentSubscriptions[i]
		res := agentType.Resource(st.client, st.view)
		refusal, acked = s.request(m, res)
		refused = s.refused
		st.state.Charge(-acked)
		_, _, due = s.due(res)
		if idle = st.state.Idle(); idle {
			moved = st.converged()
		}
	})
	if closed {
		return status.Error(codes.Aborted, "the stream was closed")
	}
	if refusal != "" {
		st.srv.clients.Warn("agent refused an agent resource", agentType.TypeURL, append(st.about(errors.New(refusal)), "version", refused)...)
	}
	turn := st.turn.Load()
	if acked > 0 {
		turn.Acked(acked)
	}
	if !moved.IsZero() {
		st.srv.cfg.Hooks.Converged(now.Sub(moved))
	}
	switch {
	case !idle:
		st.mark(turn, fanout.Answers, now)
	case due:
		st.mark(turn, fanout.Config, now)
	}
	return nil
}

// nextNotice takes the next response of the agent resources: within the credit that all responses of a stream share, so that sending
// it does not block. Called with the lock held.
func (st *stream) nextNotice(revision int64, now time.Time) (n notice, ok bool) {
	for i, s := range st.agentSubscriptions {
		if s == nil || s.nonce != 0 || st.state.Unacked() >= delta.Credit {
			continue
		}
		agentType := &st.srv.cfg.AgentTypes[i]
		if n, ok = s.next(agentType.TypeURL, revision, agentType.Resource(st.client, st.view), now); ok {
			st.state.Charge(n.size)
			return n, true
		}
	}
	return notice{}, false
}

// lateAgentSubscription is the agent type whose response is not acknowledged in time; empty: none is. Called with the lock held.
func (st *stream) lateAgentSubscription(now time.Time) string {
	for i, s := range st.agentSubscriptions {
		if s == nil || s.nonce == 0 || !s.set {
			continue // stock agents do not acknowledge a response without resources of their own types
		}
		if st.sendingDue { // the client may not get to read it before it has what it is owed
			s.since = max(s.since, now.UnixNano())
		}
		if now.Sub(time.Unix(0, s.since)) > st.srv.cfg.AckDeadline {
			return st.srv.cfg.AgentTypes[i].TypeURL
		}
	}
	return ""
}

// AgentSubscriptionInfo is one agent type of one stream, for debugging.
type AgentSubscriptionInfo struct {
	TypeURL  string
	Version  string // held once what is in flight has arrived; empty: none
	Refused  string // a version that the client refused
	InFlight bool
}

// agentSubscriptionInfo is called with the lock held.
func (st *stream) agentSubscriptionInfo() (all []AgentSubscriptionInfo) {
	for i, s := range st.agentSubscriptions {
		if s != nil {
			all = append(all, AgentSubscriptionInfo{st.srv.cfg.AgentTypes[i].TypeURL, s.holds.version, s.refused, s.nonce != 0})
		}
	}
	return all
}
