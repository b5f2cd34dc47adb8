package serve

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/xds"
)

// send is a turn: all that may be sent now goes out, or all that is urgent. It does not block: what is within the credit
// fits into gRPC's write quota; for the rest a goroutine is lent to the stream. It returns the number of bytes sent. plan is
// the newest plan that the stream may be sent from now on; 0: as before.
func (st *stream) send(urgent bool, plan int64) int {
	st.mu.Lock()
	if plan > 0 {
		st.may.Store(max(st.may.Load(), plan))
		st.rollout.turn = true
	}
	if st.sending || st.closed {
		st.whole = st.whole || !urgent
		st.mu.Unlock()
		return 0 // whoever sends looks again before it stops
	}
	st.sending = true
	st.mu.Unlock()
	st.queued(urgent)
	defer st.rescue()
	return st.pump(false, urgent)
}

// queued tells how long the oldest of what has its turn now has waited.
func (st *stream) queued(urgent bool) {
	oldest := int64(0)
	for l := range st.markedAt {
		if urgent && fanout.Lane(l) == fanout.Config {
			continue
		}
		if at := st.markedAt[l].Swap(0); at != 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	if oldest != 0 {
		st.srv.cfg.Hooks.Queued(time.Since(time.Unix(0, oldest)))
	}
}

// pump sends until there is nothing more to send, or nothing urgent. lent: it may block.
func (st *stream) pump(lent, urgent bool) (total int) {
	for {
		start := time.Now()
		out, ok, since := st.next(start, urgent)
		if !since.IsZero() {
			st.srv.cfg.Hooks.Converged(start.Sub(since))
		}
		if !ok {
			return total
		}
		if (out.reply.Due || out.answer != nil || st.heavy) && !lent {
			st.lend(out, start, urgent)
			return total
		}
		bytes, written := st.push(&out, start, lent)
		if !written {
			return total
		}
		total += bytes
	}
}

// lend goes on in a goroutine of its own, which may block.
func (st *stream) lend(out outgoing, start time.Time, urgent bool) {
	go func() {
		bytes := 0
		defer func() { st.turn.Load().Sent(bytes) }()
		defer st.rescue()
		sent, written := st.push(&out, start, true)
		if bytes = sent; written {
			bytes += st.pump(true, urgent)
		}
	}()
}

// outgoing is one response: to a question, or of a type that is subscribed to.
type outgoing struct {
	reply  delta.Reply
	answer *answer
}

func (o *outgoing) what() string {
	if o.answer != nil {
		return o.answer.url
	}
	return typeName(o.reply.Type, o.reply.URL)
}

// next takes the next response from the state machines; where there is none, the stream is no longer being sent to. since
// is when the view moved, where the client turns out to have all of that acknowledged.
func (st *stream) next(now time.Time, urgent bool) (out outgoing, ok bool, since time.Time) {
	w, offers := st.withheldNow(), st.offersNow()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sendingDue = false
	if st.closed {
		st.sending = false
		return out, false, since
	}
	st.state.Withhold(w.covers())
	st.offer(&offers)
	if out.answer = st.nextAnswer(); out.answer != nil {
		return out, true, since
	}
	set := st.view.Set()
	st.state.Target(set)
	if urgent = urgent && !st.whole || !st.begins(set, now); urgent {
		out.reply, ok = st.state.Urgent()
	} else {
		out.reply, ok = st.state.Next()
	}
	st.keysHeld = st.keysHeld || w != nil && w.secret
	if !ok {
		st.sending, st.whole = false, false
		if urgent {
			return out, false, since // the turn for all is to come
		}
		for l := range st.markedAt {
			st.markedAt[l].Store(0) // what a mark meant while somebody sent has gone out
		}
		st.took(st.turn.Load())
		return out, false, st.converged()
	}
	reply := &out.reply
	st.sendingDue = reply.Due
	if st.state.InFlight(reply.Type) == 1 {
		*st.waitingSince(reply.Type) = now.UnixNano()
	}
	if _, agents := agentType(reply.Type); !agents {
		st.pushed = true
		st.rollout.sent = st.rollout.sent || !urgent && reply.Type != xds.Endpoint
	}
	return out, true, since
}

// converged is called, with the lock held, where nothing is left to send. Once all of that is acknowledged the client is up
// to date: it says when its view moved first since it was the last time. Zero: the client is not up to date, or the view
// did not move, or that changed nothing for this client. An acknowledgement may come between a move of the view and the turn
// that takes it up: then the client has the old set, and is not up to date before it has the new one.
func (st *stream) converged() (since time.Time) {
	set := st.view.Set()
	if st.state.Unacked() != 0 || !st.state.Aims(set) {
		return since
	}
	st.grown(set)
	if at := st.movedAt.Swap(0); at != 0 && st.pushed {
		since = time.Unix(0, at)
	}
	st.pushed = false
	return since
}

// push hands one response to gRPC and returns how many of its bytes will be acknowledged; false: the stream is broken.
func (st *stream) push(o *outgoing, start time.Time, lent bool) (bytes int, written bool) {
	r, msg := &o.reply, any(nil)
	switch {
	case o.answer != nil:
		msg = o.answer.message
	case st.sotw:
		msg = encodeStateOfTheWorld(r)
	default:
		msg = encodeDelta(r)
	}
	if lent {
		defer st.timed(o.what()).Stop()
	}
	began := time.Now()
	if err := st.grpc.SendMsg(msg); err != nil {
		st.mu.Lock()
		st.sending, st.sendingDue = false, false
		st.mu.Unlock()
		st.kill(err)
		return 0, false
	}
	hooks := &st.srv.cfg.Hooks
	if st.heavy = o.answer != nil; st.heavy {
		return 0, true // tools do not acknowledge
	}
	now := time.Now()
	hooks.Wrote(now.Sub(began))
	if _, agents := agentType(r.Type); !agents {
		hooks.Sent(r.Type, len(r.Set), len(r.Removed), r.Size)
		hooks.Pushed(r.Type, now.Sub(start))
	}
	return r.Size, true
}

// timed closes the stream where what is being written is not for too long.
func (st *stream) timed(what string) *time.Timer {
	return time.AfterFunc(st.srv.cfg.WriteTimeout, func() {
		if st.kill(status.Errorf(codes.DeadlineExceeded, "the client does not read: %s not written in %v", what, st.srv.cfg.WriteTimeout)) {
			st.srv.cfg.Hooks.Timeout(true)
		}
	})
}

// check looks at a stream's deadlines.
func (st *stream) check(now time.Time) {
	defer st.rescue()
	late, settle, idle, again := st.overdue(now)
	if again {
		st.kill(errAgain)
	}
	if late != "" {
		if st.kill(status.Errorf(codes.DeadlineExceeded, "the client does not acknowledge: %s for %v", late, st.srv.cfg.AckDeadline)) {
			st.srv.cfg.Hooks.Timeout(false)
		}
	} else if settle && !idle {
		st.mark(st.turn.Load(), fanout.Answers, now)
	}
}

// overdue says what the client has not acknowledged in time (empty: nothing), whether it was settled just now, whether there is
// nothing to be sent, and whether it is to come again. Of a stream that was closed: none of this.
func (st *stream) overdue(now time.Time) (late string, settle, idle, again bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return "", false, true, false
	}
	settle = !st.resumeOver && !st.spoke.IsZero() && now.Sub(st.spoke) > st.srv.cfg.ResumeTime
	if settle {
		st.resumeOver = true
		st.state.EndResume()
	}
	for t := range xds.NumTypes {
		if st.sendingDue { // the client cannot acknowledge before it has what it is owed
			st.waiting[t] = max(st.waiting[t], now.UnixNano())
		}
		if st.state.InFlight(t) > 0 && now.Sub(time.Unix(0, st.waiting[t])) > st.srv.cfg.AckDeadline {
			late = t.String()
		}
	}
	if late == "" {
		late = st.lateAgentType(now)
	}
	if settle {
		st.grown(st.view.Set())
	}
	return late, settle, st.state.Idle(), st.state.Again()
}
