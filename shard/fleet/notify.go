package fleet

import (
	"context"
	"time"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/obs"
)

// notify notifies agents of new placements. Agents of proxies that stay are notified at once. Agents of proxies that
// move are notified at the pace of place.Moves, because each makes a new connection to the owner.
func (f *Fleet) notify(ctx context.Context) error {
	pace := place.NewMoves(place.MovesConfig{Off: f.cfg.Off.Moves})
	var waits obs.RunQueue
	tick := time.NewTicker(pace.StepEvery())
	defer tick.Stop()
	first := make(chan struct{})
	close(first) // agents are notified of the first placement too
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
				waits.Since(.9) // discard older measurements
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

// pass notifies agents of a placement, among them the agents of at most n proxies that have to move. left counts the
// moving proxies whose agents remain to be notified.
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
	n, left   int // moves that are still permitted; moves that remain for later
}

// turn records the placement for a stream, unless its move has to wait. It reports whether the agent must be sent the
// new owner, because the agent has subscribed and the owner differs.
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

// notifiedOf returns the recorded placement. Without one it records present.
func (s *seat) notifiedOf(present *place.Placement) *place.Placement {
	s.notified.CompareAndSwap(nil, present)
	return s.notified.Load()
}

// update compares a placement with the recorded one. is reports whether the owner differs. goes reports whether the
// owner differs and the proxy must move to another replica. A seat without a recorded placement records p, and both
// results are false.
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
