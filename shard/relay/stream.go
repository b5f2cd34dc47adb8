package relay

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/agentapi"
)

const (
	service     = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	methodDelta = service + "DeltaAggregatedResources"
	methodSotW  = service + "StreamAggregatedResources"
)

// carry serves one ADS stream of Envoy, until the stream ends.
func (r *Relay) carry(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	if method != methodDelta && method != methodSotW {
		return status.Errorf(codes.Unimplemented, "the agent relays ADS only, not %s", method)
	}
	id := r.stats.begin()
	defer r.stats.finish()
	if method == methodSotW {
		return r.sotw(down, id)
	}
	return r.delta(down, id)
}

// loop serves one delta stream of Envoy. It owns the stream's session (a state machine of events and effects). It
// passes messages between the goroutines that read and write. A slow receiver delays only its sender, because the next
// message is read only after the previous one was passed on.
type loop struct {
	r     *Relay
	id    uint64
	ctx   context.Context
	down  grpc.ServerStream
	s     *session
	conns map[uint32]*upstream

	fromEnvoy     chan event
	toEnvoy       chan outgoing
	outgoing      *outgoing // the message that toEnvoy has not accepted yet; nil without such a message
	answers       chan event
	reportChanged <-chan struct{} // closed when the agent's report changes
	finished      bool
	err           error
}

type outgoing struct {
	data mem.BufferSlice
	row  *stream
}

func (r *Relay) delta(down grpc.ServerStream, id uint64) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	l := &loop{
		r: r, id: id, ctx: ctx, down: down, conns: map[uint32]*upstream{},
		s:         r.session(),
		fromEnvoy: make(chan event), toEnvoy: make(chan outgoing), answers: make(chan event),
	}
	l.reportChanged = r.report.next()
	go l.read()
	go l.write(cancel)
	l.step(started{})
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !l.finished {
		timer.Reset(l.sleep())
		l.wait(timer.C)
	}
	for _, u := range l.conns {
		u.cancel()
	}
	if l.outgoing != nil {
		l.outgoing.data.Free()
	}
	return l.err
}

func (r *Relay) session() *session {
	s := &session{
		target: r.cfg.Target, follow: r.cfg.Follow, own: map[string]bool{}, t: r.timing,
		pace: movePace{random: rand.Float64, base: r.timing.between, max: r.timing.longest}, known: r.stats.ownerAddr(),
	}
	for _, t := range r.takers {
		s.own[t.sub.Type] = true
	}
	if s.follow {
		s.own[agentapi.OwnerURL] = true
	}
	return s
}

func (l *loop) sleep() time.Duration {
	now := time.Now()
	if at := l.s.wake(now); !at.IsZero() {
		return max(0, at.Sub(now))
	}
	return time.Hour
}

// wait waits for the next event and handles it. If a channel must not be used now, its variable in the select is nil.
func (l *loop) wait(timer <-chan time.Time) {
	live, next := l.conn(l.s.live), l.conn(l.s.next)
	var envoy, liveIn, nextIn chan event
	var toEnvoy chan outgoing
	var message outgoing
	if l.outgoing != nil {
		toEnvoy, message = l.toEnvoy, *l.outgoing
	} else {
		nextIn = next.in
		liveIn = live.in
	}
	if l.s.reads() && len(live.queue) == 0 {
		envoy = l.fromEnvoy
	}
	liveOut, liveData := live.head()
	nextOut, nextData := next.head()
	select {
	case e := <-envoy:
		l.step(e)
	case e := <-liveIn:
		l.heard(live, e)
	case e := <-nextIn:
		l.heard(next, e)
	case e := <-l.answers:
		l.step(e)
	case <-l.reportChanged:
		l.reportChanged = l.r.report.next()
		if l.s.live.ready && l.s.live.said { // otherwise the first request is followed by the report
			l.sendReport(l.s.live.id)
		}
	case toEnvoy <- message:
		l.outgoing = nil
	case liveOut <- liveData:
		live.queue = live.queue[1:]
	case nextOut <- nextData:
		next.queue = next.queue[1:]
	case <-timer:
		l.step(tick{})
	case <-l.ctx.Done():
		l.end(status.FromContextError(l.ctx.Err()).Err()) // Envoy ended the stream; the control plane did not fail
	}
	live.endIfDrained()
}

// none stands for a missing upstream connection. Its channels are nil, so select ignores them.
var none = &upstream{}

func (l *loop) conn(of *connState) *upstream {
	if of != nil {
		if u := l.conns[of.id]; u != nil {
			return u
		}
	}
	return none
}

// head returns the first message of the queue, and the channel to which it is to be sent. Both are nil if the queue is
// empty or the connection is closed for sending.
func (u *upstream) head() (chan<- mem.BufferSlice, mem.BufferSlice) {
	if len(u.queue) == 0 || u.closed {
		return nil, nil
	}
	return u.out, u.queue[0]
}

func (u *upstream) endIfDrained() {
	if u.ended && !u.closed && len(u.queue) == 0 {
		u.closed = true
		close(u.out)
	}
}

// heard updates the statistics for an event of an upstream connection, and passes the event to the session.
func (l *loop) heard(u *upstream, e event) {
	switch e := e.(type) {
	case fromConn:
		if e.err == nil {
			l.r.minRevision.observe(u.store, e.head.revision)
		}
		if l.s.own[e.head.typeURL] {
			u.row.heard(e.data.Len())
		}
	case connEnded:
		if l.s.is(l.s.live, u.id) { // a failed move is counted in Stats.MovesFailed instead
			l.r.lost(u.row.address, e.err)
			if u.behind {
				l.r.turnedAway(u.revision)
			}
		}
		defer l.drop(u.id)
	}
	l.step(e)
}

func (l *loop) step(e event) {
	for _, e := range l.s.step(time.Now(), e) {
		l.do(e)
	}
}

func (l *loop) do(e effect) {
	switch e := e.(type) {
	case dial:
		l.conns[e.conn] = l.r.open(l.ctx, e, l.id)
	case drop:
		l.drop(e.conn)
	case sendUp:
		l.queue(e.conn, e.data)
	case endUp:
		l.conns[e.conn].ended = true
	case ask:
		for _, t := range l.r.takers {
			l.queue(e.conn, t.ask())
		}
		l.sendReport(e.conn)
	case sendDown:
		l.outgoing = &outgoing{e.data, l.conns[e.conn].row}
	case take:
		l.take(e)
	case notice:
		l.r.notice(e)
	case refusal:
		l.refused(e)
	case finish:
		if !l.s.once {
			l.end(l.r.unavailable(e.err))
		} else {
			l.end(ending(e.err))
		}
	}
}

// take passes a response to the taker (a subscription of the agent) for the response's type. It does not wait for the
// taker's answer, because a taker serves all streams.
func (l *loop) take(e take) {
	i := slices.IndexFunc(l.r.takers, func(t *taker) bool { return t.sub.Type == e.url })
	l.r.takers[i].submit(e.data, func(err error) {
		go func() {
			select {
			case l.answers <- taken{e.conn, e.url, e.nonce, err}:
			case <-l.ctx.Done():
			}
		}()
	})
}

// sendReport sends the newest agent report (Relay.Report) on a connection, if there is a report.
func (l *loop) sendReport(conn uint32) {
	if data := l.r.report.message(); data != nil {
		l.queue(conn, data)
	}
}

func (l *loop) queue(conn uint32, data mem.BufferSlice) {
	u := l.conns[conn]
	u.queue = append(u.queue, data)
}

func (l *loop) drop(conn uint32) {
	u := l.conns[conn]
	if u == nil {
		return
	}
	u.cancel()
	for _, data := range u.queue {
		data.Free()
	}
	delete(l.conns, conn)
}

func (l *loop) end(err error) { l.finished, l.err = true, err }

// read passes Envoy's requests to the loop.
func (l *loop) read() {
	for {
		var e event
		var f frame
		if err := l.down.RecvMsg(&f); errors.Is(err, io.EOF) {
			e = envoyEnds{}
		} else if err != nil {
			return // Envoy has ended the stream, so the context has ended or will end
		} else {
			head, err := scanRequest(f.data)
			e = fromEnvoy{f.data, head, err}
		}
		select {
		case l.fromEnvoy <- e:
		case <-l.ctx.Done():
			return
		}
		if _, last := e.(envoyEnds); last {
			return
		}
	}
}

// write sends responses to Envoy. If sending fails, it cancels the stream.
func (l *loop) write(cancel context.CancelFunc) {
	for {
		select {
		case m := <-l.toEnvoy:
			n := m.data.Len()
			if l.down.SendMsg(&frame{m.data}) != nil {
				cancel()
				return
			}
			m.row.received(n)
		case <-l.ctx.Done():
			return
		}
	}
}

// ending returns the gRPC status for Envoy's stream after the upstream connection ended with err.
func ending(err error) error {
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the control plane ended the stream")
	}
	if errors.Is(err, errUntrusted) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return err
}

func (r *Relay) unavailable(err error) error {
	return status.Errorf(codes.Unavailable, "control plane %s: %v", r.cfg.Target, err)
}

// lost counts and logs the failure of an upstream connection. Only the first failure after a success is a warning,
// because the agent dials again and again.
func (r *Relay) lost(addr string, err error) {
	if r.stats.failed(err) {
		r.cfg.Log.Warn("lost the control plane, Envoy keeps its configuration", "address", addr, "error", err)
		return
	}
	r.cfg.Log.Debug("control plane still away", "address", addr, "error", err)
}

// turnedAway records that a replica refused the stream, because its revision is behind the minimum revision. If the
// refusal lowers the minimum revision, turnedAway logs a warning.
func (r *Relay) turnedAway(revision int64) {
	if r.minRevision.behind(time.Now(), revision, r.timing.lower) {
		r.cfg.Log.Warn("no replica has Envoy's newest revision, an older one is accepted now", "revision", r.minRevision.get().Revision)
	}
}

// notice counts an action of a session, and logs moves.
func (r *Relay) notice(n notice) {
	switch n.what {
	case moved:
		r.stats.moves.Add(1)
		r.cfg.Log.Info("moved to the owner", "address", n.addr)
	case moveFailed:
		r.stats.movesFailed.Add(1)
		r.cfg.Log.Info("the move to the owner failed; staying with the present replica", "address", n.addr, "error", n.err)
	case resumed:
		r.stats.resumes.Add(1)
	case owned:
		r.stats.owned(n.addr, n.self)
	}
}

// hold waits for the duration d. If ctx ends first, it returns the gRPC status for the context's error.
func hold(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
