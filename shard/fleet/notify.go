package fleet

import (
	"context"
	"time"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/obs"
)

// notify notifies agents of new placements. Proxies that stay are notified at once. Proxies that move are notified at
// the pace of place.Moves, because each makes a new connection at its owner.
func (f *Fleet) notify(ctx context.Context) error {
	pace := place.NewMoves(place.MovesConfig{Off: f.cfg.Off.Moves})
	var waits obs.RunQueue
	tick := time.NewTicker(pace.StepEvery())
	defer tick.Stop()
	first := make(chan struct{})
	close(first) // the first placement is passed on like any other
	superseded, left := (<-chan struct{})(first), 0
	for {
		var ticks <-chan time.Time
		if left > 0 {
			ticks = tick.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-superseded:
			if left == 0 {
				waits.Since(.9) // discard the measurements before
			}
			placement := f.replica.Placement()
			superseded, left = placement.Superseded(), f.pass(placement, 0)
		case now := <-ticks:
			placement := f.replica.Placement()
			in := place.MovesInput{Now: now, Left: left, Streams: f.streams.Total(), Peers: placement.Peers(), Wait: waits.Since(.9)}
			if by := f.notifyBy.Load(); by != nil {
				in.By = *by
			}
			left = f.pass(placement, pace.Step(in))
		}
	}
}

// pass notifies agents of a placement, at most n of those whose proxies must move. left counts the moving ones that
// remain.
func (f *Fleet) pass(p *place.Placement, n int) (left int) {
	r := round{placement: p, n: n}
	f.server.AgentResourceChangedFor(agentapi.OwnerURL, func(v serve.Proxy, listens bool) bool {
		s, ok := seatOf(v)
		return ok && r.turn(s, listens)
	})
	return r.left
}

// round is the state of one pass.
type round struct {
	placement *place.Placement
	n, left   int // moves that are permitted still; moves that remain
}

// turn notifies an agent if the pace permits, and reports whether it did. An agent without subscription is not
// notified.
func (r *round) turn(s *seat, listens bool) bool {
	is, goes := s.update(r.placement)
	if goes = goes && listens; goes && r.n == 0 {
		r.left++
		return false
	}
	if goes {
		r.n--
	}
	s.notified.Store(r.placement)
	return is && listens
}

// notifiedOf returns the placement that the agent was notified by: the present one at its first request.
func (s *seat) notifiedOf(present *place.Placement) *place.Placement {
	s.notified.CompareAndSwap(nil, present)
	return s.notified.Load()
}

// update reports whether a placement gives another owner than the agent knows, and whether the proxy must move. An
// agent that knows none receives the newest with its first request.
func (s *seat) update(p *place.Placement) (is, goes bool) {
	before := s.notifiedOf(p)
	if before == p {
		return false, false
	}
	was, stayed := before.Owner(s.namespace, s.workload)
	address, self := p.Owner(s.namespace, s.workload)
	is = was != address || stayed != self
	return is, is && address != "" && !self
}
