package fleet

import (
	"context"
	"time"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/obs"
)

// notify passes a new placement on to agents: at once where a proxy is to stay, and where it is to go elsewhere at the pace of
// place.Moves, because that is a new connection there.
func (f *Fleet) notify(ctx context.Context) error {
	pace := place.NewMoves(place.MovesConfig{Off: f.cfg.Off.Moves})
	var waits obs.RunQueue
	tick := time.NewTicker(pace.StepEvery())
	defer tick.Stop()
	first := make(chan struct{})
	close(first) // the first placement is passed on as any other
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
				waits.Since(.9) // what was before says nothing
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

// pass tells agents of a placement: of those whose proxies belong elsewhere by it, at most n; left is how many of these are
// still to be told.
func (f *Fleet) pass(p *place.Placement, n int) (left int) {
	r := round{placement: p, n: n}
	f.server.AgentResourceChangedFor(agentapi.OwnerURL, func(v serve.Proxy, listens bool) bool {
		s, ok := seatOf(v)
		return ok && r.turn(s, listens)
	})
	return r.left
}

// round is one pass.
type round struct {
	placement *place.Placement
	n, left   int // that may be sent elsewhere still; that are not, because of that
}

// turn says whether an agent is to be notified now. One that has not subscribed is not notified, now or later.
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

// notifiedOf is the placement that the agent is told of: the present one, where it asks for the first time.
func (s *seat) notifiedOf(present *place.Placement) *place.Placement {
	s.notified.CompareAndSwap(nil, present)
	return s.notified.Load()
}

// update says whether a placement has another owner than the one that the agent was told of, and whether the proxy has to go
// there. An agent that was told of none yet is not notified: it is told the newest when it asks.
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
