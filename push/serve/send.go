package serve

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/fanout"
)

// send is a turn: it sends everything that may be sent now, or with urgent only what does not wait for configuration.
// It does not block: responses within the credit fit into gRPC's write quota, and the others are sent by another
// goroutine. It returns the number of bytes sent.
func (st *stream) send(urgent bool, plan int64) int {
	if !st.begin(urgent, plan) {
		return 0
	}
	st.queued(urgent)
	defer st.rescue()
	bytes, blocked := st.sendSome()
	if blocked != nil {
		go st.sendRest(blocked)
	}
	return bytes
}

// sendSome sends until nothing is left, or until a response may block, which it returns without sending it.
func (st *stream) sendSome() (bytes int, blocked *outgoing) {
	for {
		start := time.Now()
		out, ok := st.nextOutgoing(start)
		if !ok {
			return bytes, nil
		}
		if out.blocks {
			held := out
			return bytes, &held
		}
		sent, written := st.push(&out, start)
		if bytes += sent; !written {
			return bytes, nil
		}
	}
}

// sendRest sends the response that would have blocked, and the following ones until nothing is left.
func (st *stream) sendRest(first *outgoing) {
	bytes := 0
	defer func() { st.turn.Load().Sent(bytes) }()
	defer st.rescue()
	out, start := *first, time.Now()
	for ok := true; ok; out, ok = st.nextOutgoing(start) {
		sent, written := st.pushTimed(&out, start)
		if bytes += sent; !written {
			return
		}
		start = time.Now()
	}
}

// nextOutgoing requests the next response from the exchange, with the present state of quarantine and credentials.
// False means that nothing is left, and that the caller no longer sends.
func (st *stream) nextOutgoing(now time.Time) (out outgoing, ok bool) {
	for {
		w, offered := st.withheldNow(), st.offersNow()
		out, f, since := st.next(now, w, &offered)
		if !since.IsZero() {
			st.srv.cfg.Hooks.Converged(now.Sub(since))
		}
		if f != lookAgain {
			return out, f == something
		}
	}
}

// queued reports how long the oldest mark of this turn has waited.
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

// push passes one response to gRPC and returns how many of its bytes will be acknowledged; false: the stream is broken.
func (st *stream) push(o *outgoing, start time.Time) (bytes int, written bool) {
	r, msg := &o.reply, any(nil)
	switch {
	case o.answer != nil:
		msg = o.answer
	case st.sotw:
		msg = encodeSotW(r)
	default:
		msg = encodeDelta(r, st.newest())
	}
	began := time.Now()
	if err := st.grpc.SendMsg(msg); err != nil {
		st.stop()
		st.kill(err)
		return 0, false
	}
	hooks := &st.srv.cfg.Hooks
	if o.answer != nil {
		return 0, true // tools do not acknowledge
	}
	now := time.Now()
	hooks.Wrote(now.Sub(began))
	st.logSent(r)
	if _, agents := agentType(r.Type); !agents {
		hooks.Sent(r.Type, len(r.Set), len(r.Removed), r.Size)
		hooks.Pushed(r.Type, now.Sub(start))
	}
	return r.Size, true
}

// pushTimed is push for a response that may block. If it blocks for too long the stream is closed.
func (st *stream) pushTimed(o *outgoing, start time.Time) (bytes int, written bool) {
	defer st.timed(o.what()).Stop()
	return st.push(o, start)
}

// timed closes the stream if the present write takes too long.
func (st *stream) timed(what string) *time.Timer {
	return time.AfterFunc(st.srv.cfg.WriteTimeout, func() {
		if st.kill(status.Errorf(codes.DeadlineExceeded, "the client does not read: %s not written in %v", what, st.srv.cfg.WriteTimeout)) {
			st.srv.cfg.Hooks.Timeout(true)
		}
	})
}

// check checks a stream's deadlines.
func (st *stream) check(now time.Time) {
	defer st.rescue()
	late, resumed, idle, again := st.overdue(now, limits{st.srv.cfg.AckDeadline, st.srv.cfg.ResumeTime, st.srv.cfg.AgentTypes})
	if again {
		st.kill(errAgain)
	}
	if late != "" {
		if st.kill(status.Errorf(codes.DeadlineExceeded, "the client does not acknowledge: %s for %v", late, st.srv.cfg.AckDeadline)) {
			st.srv.cfg.Hooks.Timeout(false)
		}
	} else if resumed && !idle {
		st.mark(fanout.Answers, now)
	}
}
