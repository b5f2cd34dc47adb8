package serve

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/fanout"
)

// send uses a granted turn, and sends all responses that may be sent now. If urgent is true, it sends only changes that
// do not wait for configuration. The parameter plan is the newest plan that may be sent; 0 does not change the
// permitted plan. The function send does not block. Responses within the credit (the bytes that may be sent without an
// acknowledgement) fit into gRPC's write quota, and another goroutine sends larger responses. The result is the number
// of bytes that send itself has sent and that the client will acknowledge.
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

// sendSome sends responses until none is left. It stops at a response that may block, and returns it without sending
// it.
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

// sendRest sends the given response, and then responses until none is left. It may block.
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

// nextOutgoing returns the next response of the exchange, for the present state of quarantine, credentials and agent
// resources. If no response is left, it returns false, and the caller is no longer the sending goroutine.
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

// queued clears the marks that a turn serves, and reports to a hook how long the oldest of these marks has waited.
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

// push passes one response to gRPC. It returns how many bytes the client will acknowledge. The result written is false
// if the stream is broken.
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

// pushTimed does the same as push. If the write takes longer than Config.WriteTimeout, the stream is closed.
func (st *stream) pushTimed(o *outgoing, start time.Time) (bytes int, written bool) {
	defer st.timed(o.what()).Stop()
	return st.push(o, start)
}

// timed returns a timer that closes the stream after Config.WriteTimeout. The caller stops it after the write.
func (st *stream) timed(what string) *time.Timer {
	return time.AfterFunc(st.srv.cfg.WriteTimeout, func() {
		if st.kill(status.Errorf(codes.DeadlineExceeded, "the client does not read: %s not written in %v", what, st.srv.cfg.WriteTimeout)) {
			st.srv.cfg.Hooks.Timeout(true)
		}
	})
}

// check ends the stream if its client missed a deadline or must reconnect, and requests a turn when the time to resume
// is over.
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
