package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/obs"
)

// stream is one ADS stream. Its handler's goroutine reads; a worker of the fan-out, or a goroutine lent to it, sends.
type stream struct {
	srv      *Server
	id       uint64
	grpc     grpc.ServerStream
	world    bool
	hangUp   func() error // nil: the listener was not made by Listen
	client   Client
	view     View
	opened   time.Time
	turn     atomic.Pointer[fanout.Stream]
	markedAt [fanout.NumLanes]atomic.Int64 // since when it waits for a turn in a lane; unix nanoseconds, 0: it does not
	asked    map[string]bool               // Secrets that the view was told of; the reading goroutine's
	early    bool                          // it is an agent's that was let in before its Envoy moves; the same
	movedAt  atomic.Int64                  // when the view moved first since the client was up to date; unix nanoseconds, 0: it is
	may      atomic.Int64                  // the newest plan (manifest.Set.Plan) that it may be sent; anyPlan until it is up to date once

	mu       sync.Mutex // guards what follows; never held while sending
	state    *delta.State
	sending  bool // somebody is between Next and the end of SendMsg
	whole    bool // a turn for all came while somebody sent what is urgent
	pushed   bool // something was sent since the client was up to date
	trial    trialOf
	owing    bool      // what is being sent may block
	closed   bool      // nobody sends afterwards
	spoke    time.Time // when Envoy did first: an agent may ask for asides before; zero: not yet
	settled  bool
	cause    error               // why it was closed from here
	waiting  [xds.NumTypes]int64 // since when the oldest response waits for its ACK; unix nanoseconds
	refusals []Refusal           // newest last, a few
	reports  []delta.Report      // reused
	heavy    bool                // an answer went out that may not be written yet, so that the next send may block; the sender's
	answers  []*answer           // that wait to be sent, oldest first; a few
	sides    []*side             // as Config.Asides; nil: it asked for none
}

// maxRefusals is how many refusals are kept for debugging, a stream.
const maxRefusals = 16

// serve is the gRPC handler.
func (s *Server) serve(g grpc.ServerStream, world bool) error {
	st := &stream{srv: s, id: s.serial.Add(1), grpc: g, world: world, opened: time.Now()}
	st.may.Store(anyPlan)
	err := st.run(g.Context())
	cause := st.close()
	if errors.Is(cause, errSentAway) {
		return status.Error(codes.Unavailable, cause.Error())
	}
	if cause != nil {
		s.cfg.Log.Warn("stream closed", "node", st.client.ID, "peer", st.client.Addr, "error", cause)
		return cause
	}
	if errors.Is(err, io.EOF) || g.Context().Err() != nil {
		return nil // the client went
	}
	s.cfg.Log.Warn("stream refused", "node", st.client.ID, "peer", st.client.Addr, "error", err)
	s.cfg.Hooks.Rejected(err)
	return err
}

func (st *stream) run(ctx context.Context) error {
	if err := st.authenticate(ctx); err != nil {
		return err
	}
	var req request
	for {
		if err := st.grpc.RecvMsg(&req); err != nil {
			return err
		}
		err := st.take(ctx, req.pieces()...)
		req.free()
		if err != nil {
			return err
		}
	}
}

func (st *stream) authenticate(ctx context.Context) error {
	identity, err := st.srv.cfg.Authenticate(ctx)
	switch {
	case errors.Is(err, attest.ErrUnavailable): // not the credential's fault: it may be accepted later
		return status.Errorf(codes.Unavailable, "not authenticated: %v", err)
	case err != nil:
		return status.Errorf(codes.Unauthenticated, "not authenticated: %v", err)
	}
	st.client.Identity = identity
	st.client.Floor = floorOf(ctx)
	p, ok := peer.FromContext(ctx)
	if ok {
		_, st.client.Secure = p.AuthInfo.(credentials.TLSInfo)
	}
	if ok && p.Addr != nil {
		st.client.Addr = p.Addr.String()
		if a, ok := p.Addr.(*address); ok {
			st.hangUp = a.close
		}
	}
	return nil
}

// take handles one encoded request, in pieces.
func (st *stream) take(ctx context.Context, raw ...[]byte) error {
	parse := delta.ParseDelta
	if st.world {
		parse = delta.ParseWorld
	}
	m, err := parse(raw...)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "%v", err)
	}
	if i, is := st.srv.answers[m.TypeURL]; is {
		return st.reply(ctx, i, m)
	}
	if st.view == nil {
		_, aside := st.srv.asides[m.TypeURL]
		st.early = aside && !st.world
		st.client.Holds = holds(m) || st.early
		if err := st.join(ctx, m.Node); err != nil {
			return err
		}
	}
	if i, is := st.srv.asides[m.TypeURL]; is {
		return st.advanceSide(i, m)
	}
	if m.Type == xds.Unknown {
		// Agents also subscribe to types of their own (NDS, PCDS, HealthInformation) and do without an answer.
		st.srv.cfg.Log.Debug("type not served", "node", st.client.ID, "type", fmt.Sprintf("%.200q", m.TypeURL))
		return nil
	}
	if st.early {
		st.early = false
		if err := st.view.Confirm(ctx); err != nil {
			return joinError(err)
		}
	}
	defer st.ask(ctx, m)()
	return st.advance(m)
}

// holds says whether a first request tells of anything that its sender has.
func holds(m delta.Message) bool {
	if m.Initial != nil {
		for range m.Initial {
			return true
		}
	}
	return m.Version != ""
}

// join finds out who the client is, and its view.
func (st *stream) join(ctx context.Context, raw []byte) error {
	id, err := nodeID(raw)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "%v", err)
	}
	st.client.ID, st.client.Node = id, raw
	joined, err := st.srv.cfg.Planner.Join(ctx, st.client, st.moved)
	st.client.Node = nil // the bytes are the request's
	if behind := (*BehindError)(nil); errors.As(err, &behind) {
		st.grpc.SetTrailer(metadata.Pairs(BehindTrailer, strconv.FormatInt(behind.Revision, 10)))
		return status.Error(codes.Unavailable, err.Error())
	}
	if err != nil {
		return joinError(err)
	}
	st.accept()
	st.view = joined
	cfg := delta.Config{World: st.world, Names: &st.srv.sets, Diff: st.srv.diff.between}
	of, verdicts := joined.ID(), st.srv.cfg.Verdicts
	cfg.Refused = func(r *xds.Resource) bool { return verdicts.Refused(of, r) }
	st.mu.Lock()
	st.state = delta.New(cfg, joined.Set())
	st.mu.Unlock()
	st.turn.Store(st.srv.loop.Join(joined.Namespace(), view.IsRouter(id), st.send)) // gateways are sent to first
	st.srv.add(st)
	return nil
}

// accept sends the headers now, and not with the first response: a proxy that holds everything is sent none, and an agent
// that moves its Envoy here switches when it knows that it was let in.
func (st *stream) accept() {
	header := metadata.MD{}
	if st.srv.cfg.Store != nil {
		if store := st.srv.cfg.Store(); store != "" {
			header.Set(StoreHeader, store)
		}
	}
	_ = st.grpc.SendHeader(header) // a stream that is broken ends at the next read
}

// nodeID is the id of a first request's node; nil: it has none.
func nodeID(raw []byte) (string, error) {
	if raw == nil {
		return "", errors.New("the first request of a stream has no node")
	}
	id, err := view.ID(raw)
	if err == nil && id == "" {
		err = errors.New("node.id: is empty")
	}
	return id, err
}

// joinError is what a client is told when it has no view.
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

// moved is called by the plan loop.
func (st *stream) moved(l fanout.Lane) {
	turn := st.turn.Load()
	if turn == nil {
		return // not joined yet: the first turn takes the newest set anyway
	}
	now := time.Now()
	st.movedAt.CompareAndSwap(0, now.UnixNano())
	if plan := st.view.Set().Plan; l == fanout.Config && plan > st.may.Load() {
		st.try(turn, plan, now)
	} else {
		st.mark(turn, l, now)
	}
}

// mark asks for a turn.
func (st *stream) mark(turn *fanout.Stream, l fanout.Lane, now time.Time) {
	st.markedAt[l].CompareAndSwap(0, now.UnixNano())
	turn.Mark(l)
}

// advance gives a request to the state machine, and asks for a turn where there is something to answer.
func (st *stream) advance(m delta.Message) error {
	now := time.Now()
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return status.Error(codes.Aborted, "the stream was closed")
	}
	if st.spoke.IsZero() {
		st.spoke = now
	}
	before := st.state.Unacked()
	st.reports = st.state.Request(m.Request, st.reports[:0])
	reports := st.reports
	acked := before - st.state.Unacked()
	since := st.waiting[m.Type]
	if acked > 0 {
		st.waiting[m.Type] = now.UnixNano() // of the next one in flight
	}
	turn := st.turn.Load()
	if slices.ContainsFunc(reports, func(r delta.Report) bool { return r.Kind == delta.Nacked }) {
		st.refused(turn)
	}
	st.took(turn)
	idle := st.state.Idle()
	var moved time.Time
	if idle {
		moved = st.converged()
	}
	st.mu.Unlock()

	if acked > 0 {
		turn.Acked(acked)
	}
	if !moved.IsZero() {
		st.srv.cfg.Hooks.Converged(now.Sub(moved))
	}
	for i := range reports {
		st.report(&reports[i], now, since)
	}
	if !idle {
		st.mark(turn, fanout.Answers, now)
	}
	return nil
}

// report passes on what the state machine noticed; only the reading goroutine calls it.
func (st *stream) report(r *delta.Report, now time.Time, since int64) {
	hooks := &st.srv.cfg.Hooks
	switch r.Kind {
	case delta.Acked:
		hooks.Acked(r.Type, st.client.ID, r.Revision, now.Sub(time.Unix(0, since)))
	case delta.Expired:
		hooks.Expired(r.Type)
	case delta.Nacked:
		refusal := Refusal{Node: st.client.ID, Identity: st.client.Identity, View: st.view.ID(), Type: r.Type,
			Name: r.Name, Version: r.Version, Good: r.Good, Text: r.Text, Revision: r.Revision, At: now}
		if blame := st.srv.cfg.Blame; blame != nil && r.Name != "" {
			refusal.Objects = blame(st.view, r.Type, r.Name, r.Text)
		}
		st.srv.cfg.Log.Warn("proxy refused configuration", obs.KeyProxy, refusal.Node, obs.KeyType, r.Type.String(), obs.KeyName, r.Name,
			"objects", refusal.Objects, "version", r.Version, "stands", r.Good, obs.KeyRevision, r.Revision, obs.KeyError, r.Text)
		if r.Name != "" {
			st.srv.cfg.Verdicts.Refuse(refusal)
		}
		st.mu.Lock()
		if len(st.refusals) == maxRefusals {
			st.refusals = append(st.refusals[:0], st.refusals[1:]...)
		}
		st.refusals = append(st.refusals, refusal)
		st.mu.Unlock()
		hooks.Refused(refusal)
	}
}

// close marks the stream closed, so that nobody sends afterwards, and says why it was closed if that was done from here.
func (st *stream) close() error {
	st.mu.Lock()
	st.closed = true
	cause, joined := st.cause, st.state != nil
	st.mu.Unlock()
	if joined {
		st.turn.Load().Leave()
		st.srv.drop(st)
		st.view.Leave()
	}
	return cause
}

// kill closes a stream from outside: its connection is closed, which ends a read and a blocked write. false: it was closed
// before.
func (st *stream) kill(cause error) bool {
	st.mu.Lock()
	first := !st.closed
	if first {
		st.closed, st.cause = true, cause
	}
	st.mu.Unlock()
	if first && st.hangUp != nil {
		_ = st.hangUp() // it may be closed already
	}
	return first
}
