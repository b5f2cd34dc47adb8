package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
)

// stream is one ADS stream. The goroutine of the gRPC handler reads requests. A worker of the fan-out (fanout.Loop)
// sends responses. If a response may block, a goroutine of the stream sends it instead (send.go). The embedded exchange
// contains the state that several goroutines change.
type stream struct {
	srv        *Server
	id         uint64
	grpc       grpc.ServerStream
	sotw       bool
	hangUp     func() error // closes the connection; nil if Listen is not used
	client     Client
	places     bool          // the client understands the positions that the method newest returns
	place      *budget.Entry // budget entry of the caller's identity or address; nil until the method enter sets it
	opened     time.Time
	secrets    atomic.Bool   // the client has requested Secrets or extensions
	agentTypes atomic.Uint32 // a bit for each element of Config.AgentTypes that was requested

	// Only the goroutine that reads the stream uses the fields below.
	secretNames map[string]bool // Secrets to which the proxy is subscribed
	answered    nonces          // nonces of answers to tools, such as istioctl
	unread      []*answer       // answers that the client may not have read
	unserved    []string        // unknown types that were requested (a bounded list)
	step        string          // the present step, such as inCredential; log lines about a refusal name it
	early       bool            // an agent has joined, but has not moved its Envoy to this replica yet

	exchange
}

// serve handles one gRPC stream until the stream ends. The error is the gRPC status of the stream, or nil if the client
// left.
func (s *Server) serve(g grpc.ServerStream, sotw bool) error {
	st := &stream{srv: s, id: s.serial.Add(1), grpc: g, sotw: sotw, opened: time.Now()}
	st.may.Store(anyPlan)
	err := s.cfg.Crashes.Guard(func() error { return st.run(g.Context()) })
	cause := st.close()
	if g.Context().Err() != nil { // the client has disconnected
		st.unreadOver()
	}
	st.place.Leave()
	if errors.Is(cause, errSentAway) {
		return status.Error(codes.Unavailable, cause.Error())
	}
	if cause != nil {
		s.clients.Warn("stream closed", status.Code(cause).String(), st.about(cause)...)
		return cause
	}
	if errors.Is(err, io.EOF) || g.Context().Err() != nil {
		return nil // the client left
	}
	s.clients.Warn("stream refused", st.step+", "+status.Code(err).String(), st.about(err)...)
	return err
}

// run authenticates the caller, and then processes requests until the stream ends. The error is the reason for the end.
// io.EOF means that the client has closed its side.
func (st *stream) run(ctx context.Context) error {
	st.step = inCredential
	if err := st.authenticate(ctx); err != nil {
		return err
	}
	var req request
	for {
		st.step = inRequest
		if err := st.grpc.RecvMsg(&req); err != nil {
			return err
		}
		large := st.hold(req.bufs.Len())
		err := st.take(ctx, req.pieces()...)
		req.free()
		st.place.Hold(-large)
		if err != nil {
			return err
		}
	}
}

// take processes one encoded request, which consists of the given pieces. The error is the gRPC status with which the
// stream must end.
func (st *stream) take(ctx context.Context, raw ...[]byte) error {
	parse := delta.ParseDelta
	if st.sotw {
		parse = delta.ParseSotW
	}
	m, err := parse(raw...)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "%v", err)
	}
	if i, is := st.srv.answers[m.TypeURL]; is {
		return st.reply(ctx, i, m)
	}
	agent, isAgent := st.srv.agentTypes[m.TypeURL]
	if st.proxy == nil {
		st.early = isAgent && !st.sotw
		st.client.Holds = holds(m) || st.early
		if err := st.join(ctx, m.Node); err != nil {
			return err
		}
	}
	if isAgent {
		m.Type = delta.Dynamic(agent)
		return st.advance(m)
	}
	if m.TypeURL == healthURL {
		st.reportHealth(m)
		return nil
	}
	if m.Type == xds.Unknown {
		st.notServed(m.TypeURL)
		return nil
	}
	if st.early {
		st.early = false
		if err := st.proxy.Confirm(ctx); err != nil {
			return joinError(err)
		}
	}
	defer st.subscribeSecrets(ctx, m)()
	return st.advance(m)
}

// reportHealth passes an agent's report about a machine's workload to the planner. A request that is a NACK reports an
// unhealthy workload. The request gets no response.
func (st *stream) reportHealth(m delta.Message) {
	if r, is := st.proxy.(HealthReporter); is {
		r.ReportHealth(!m.Failed, m.Error)
	}
}

// holds reports whether the client already has resources. The parameter m is the client's first request. A delta
// request lists the client's resources. A request of the state-of-the-world protocol has their version.
func holds(m delta.Message) bool {
	if m.Initial != nil {
		for range m.Initial {
			return true
		}
	}
	return m.Version != ""
}

// join calls Planner.Join for the node of the first request, and adds the stream to the server. The error is a gRPC
// status.
func (st *stream) join(ctx context.Context, raw []byte) error {
	st.step = inJoin
	id, err := nodeID(raw)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "%v", err)
	}
	st.client.ID, st.client.Node, st.client.Envoy = id, raw, view.Envoy(raw)
	st.place.Node(id)
	if err := st.place.Join(); err != nil {
		return st.bounded(BoundJoins, err)
	}
	if err := st.refused(); err != nil { // Recheck does not find streams that have not joined
		return err
	}
	joined, err := st.srv.cfg.Planner.Join(ctx, st.client, st.moved)
	st.client.Node = nil // the bytes belong to the request
	if behind := (*BehindError)(nil); errors.As(err, &behind) {
		st.grpc.SetTrailer(agentapi.EncodeBehind(behind.Revision))
		return status.Error(codes.Unavailable, err.Error())
	}
	if err != nil {
		return joinError(err)
	}
	st.accept()
	st.proxy = joined
	cfg := delta.Config{SotW: st.sotw, Names: &st.srv.sets, Diffs: &st.srv.diffs, Paid: true, Dynamic: st.srv.dynamic}
	st.start(delta.New(cfg, joined.Set()))
	st.turn.Store(st.srv.loop.Join(joined.Namespace(), view.IsRouter(id), st.send)) // gateways may send first
	st.srv.add(st)
	st.recheck() // a Recheck between the check above and add did not find the stream
	return nil
}

// accept sends the gRPC headers before the first response, because a client that already has all resources gets no
// response. The headers prove that the client was admitted. An agent waits for the headers before it moves its Envoy to
// this replica.
func (st *stream) accept() {
	header := metadata.MD{}
	if st.srv.cfg.Store != nil {
		agentapi.EncodeStore(header, st.srv.cfg.Store())
	}
	_ = st.grpc.SendHeader(header) // a broken stream ends at the next read
}

// joinError returns the gRPC status for an error of Planner.Join or Proxy.Confirm.
func joinError(err error) error {
	if errors.Is(err, ErrNotReady) {
		return status.Errorf(codes.Unavailable, "%v", err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	if _, is := status.FromError(err); is {
		return err
	}
	return status.Errorf(codes.InvalidArgument, "node: %v", err)
}

// moved requests a turn (a permission to send) after a change of the proxy's set. The parameter l is the urgency of the
// change. For a new plan of configuration, the stream's turn is part of the plan's progressive delivery. If the
// planning of the proxy has failed, moved ends the stream. The Planner calls moved.
func (st *stream) moved(l fanout.Lane) {
	defer st.rescue()
	turn := st.turn.Load()
	if turn == nil {
		return // the stream has not joined; its first turn uses the newest set in any case
	}
	if e, is := st.proxy.(Ender); is && e.Err() != nil {
		st.kill(status.Error(codes.Internal, e.Err().Error()))
		return
	}
	now := time.Now()
	st.movedAt.CompareAndSwap(0, now.UnixNano())
	set := st.proxy.Set()
	st.trackRefusals(set)
	st.debts.Owe(st.srv.cfg.Ledger.Debt(st.proxy.Namespace()), now)
	if plan := set.Plan; l == fanout.Config && plan > st.may.Load() {
		st.tryPlan(plan, now)
	} else {
		st.mark(l, now)
	}
}

// advance passes a request to the state machine (delta.State) and reports the results. It requests a turn if there may
// be something to send. The error is the gRPC status with which the stream must end.
func (st *stream) advance(m delta.Message) error {
	now, turn := time.Now(), st.turn.Load()
	agent, isAgent := agentType(m.Type)
	first := isAgent && st.subscribeAgentType(agent)
	if first { // the client's list of held resources is compared with the present resource
		offers := st.offersNow()
		st.open(m.Type, &offers)
	}
	st.payFor(m)
	a, open := st.requested(m, now)
	if !open {
		return status.Error(codes.Aborted, "the stream was closed")
	}
	if a.surplus > 0 {
		st.place.Spend(-a.surplus)
	}
	if a.acked > 0 {
		turn.Acked(a.acked)
	}
	if !a.moved.IsZero() {
		st.srv.cfg.Hooks.Converged(now.Sub(a.moved))
	}
	if a.leftOut > 0 {
		st.leftOut(m, a.leftOut)
	}
	for i := range a.reports {
		st.report(&a.reports[i], now, a.since)
	}
	// The loop above reports refusals before this call, because the call lets the progressive delivery go on to other
	// streams. A report may make the quarantine withhold a version, and the delivery must not send this version again.
	if a.refused > 0 {
		turn.Refused(a.refused, cmp.Or(st.client.Identity, "node:"+st.client.ID))
	}
	for _, k := range a.accepted {
		answer := st.reportOn(k, now)
		answer.Accepted = true
		st.srv.cfg.Quarantine.Report(st.id, answer)
	}
	if !a.idle || first { // the agent resource may have changed between offersNow and the subscription
		st.mark(fanout.Answers, now)
	}
	return nil
}

// payFor charges the memory that the stream keeps because of a request to the budget of the caller's identity.
func (st *stream) payFor(m delta.Message) {
	if m.Subscribe == nil && m.Initial == nil {
		return
	}
	if cost := st.cost(m); cost > 0 {
		st.grant(st.place.Spend(cost))
	}
}

// report passes a report of the state machine to the hooks, the log and the quarantine. The parameter since is the time
// of the acknowledged response, in Unix nanoseconds. Only the reading goroutine calls report.
func (st *stream) report(r *delta.Report, now time.Time, since int64) {
	if i, is := agentType(r.Type); is {
		st.reportAgent(i, r)
		return
	}
	hooks := &st.srv.cfg.Hooks
	switch r.Kind {
	case delta.Acked:
		took := now.Sub(time.Unix(0, since))
		hooks.Acked(r.Type, st.client.ID, r.Revision, took)
		st.logAcked(r, took)
	case delta.Expired:
		hooks.Expired(r.Type)
	case delta.Nacked:
		refusal := Refusal{Node: st.client.ID, Namespace: st.proxy.Namespace(), Identity: st.client.Identity, View: st.proxy.ID(), Type: r.Type,
			Name: r.Name, Version: r.Version, Envoy: st.client.Envoy, Good: r.Good, Text: r.Text, Revision: r.Revision, At: now}
		if blame := st.srv.cfg.Blame; blame != nil && r.Name != "" && st.place.Blame() {
			refusal.Objects = blame(st.proxy, r.Type, r.Name, r.Text)
		}
		st.logRefusal(refusal)
		if r.Name != "" {
			answer := st.reportOn(quarantine.Key{View: refusal.View, Type: r.Type, Name: r.Name, Version: r.Version}, now)
			answer.Text, answer.Objects = r.Text, refusal.Objects
			st.srv.cfg.Quarantine.Report(st.id, answer)
		}
		hooks.Refused(st.keep(refusal))
	}
}

// close ends the stream and removes it from the server. Nothing more is sent. If this side closed the stream, close
// returns the cause, and otherwise nil.
func (st *stream) close() error {
	st.end(nil)
	cause, joined := st.ending()
	if joined {
		st.debts.Leave()
		st.turn.Load().Leave()
		st.srv.drop(st)
		st.srv.cfg.Quarantine.Leave(st.id)
		st.srv.cfg.Hooks.Left(st.client, st.proxy)
		st.proxy.Leave()
	}
	return cause
}

// kill ends the stream for the given cause, and closes the connection. The closing interrupts a read and a blocked
// write. If the stream has already ended, kill does nothing and returns false.
func (st *stream) kill(cause error) bool {
	first := st.end(cause)
	if first && st.hangUp != nil {
		_ = st.hangUp() // the connection may be closed already
	}
	return first
}
