package fleet

import (
	"context"
	"time"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/obs"
)

// notify notifies agents of new placements. A placement maps each proxy to its owner, the replica that should serve it.
// Agents of proxies that stay at this replica are notified at once. Agents of proxies that must move are notified at
// the pace of place.Moves, because each of them makes a new connection to the owner.
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

// pass notifies agents of the placement p. At most n of the notified agents have proxies that must move. left is the
// number of moving proxies whose agents are not notified yet.
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
	n, left   int // n: moves that are still permitted; left: moves that are postponed
}

// turn records the placement for the stream s, unless the move of its proxy is postponed. listens states whether the
// agent has subscribed to its owner. The result is true if the owner must be sent to the agent. It must be sent if the
// placement was recorded, the owner differs, and the agent has subscribed.
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

// notifiedOf returns the placement that is recorded for the stream. If there is no recorded placement, it records and
// returns present.
func (s *seat) notifiedOf(present *place.Placement) *place.Placement {
	s.notified.CompareAndSwap(nil, present)
	return s.notified.Load()
}

// update compares the placement p with the recorded one. The first result reports whether the owner differs. The second
// result reports whether the owner differs and the proxy must move to another replica. If there is no recorded
// placement, update records p, and both results are false.
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
