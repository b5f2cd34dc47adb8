package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/join"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// fleet is this replica among the others: its record, its view of the ring, and the door that new streams come through.
// Alone, it owns everything, and nobody is sent anywhere.
type fleet struct {
	config    *config
	log       *slog.Logger
	streams   member.Streams
	member    *member.Member
	replica   *place.Replica
	admission *place.Admission
	server    *serve.Server // set before anything runs
	secure    bool          // the address that agents are told speaks TLS
	warmed    atomic.Bool
	leaving   atomic.Bool
	changed   chan struct{}             // holds one: there is another placement
	notifyBy  atomic.Pointer[time.Time] // of a replica that leaves: all agents are to know their owners by then

	mu     sync.Mutex // a leaf: guards owners
	owners map[owner]*serve.AgentResource
}

// owner is what the aside says.
type owner struct {
	address string
	self    bool
}

// errLeaving is what a proxy is told that comes to a replica which goes.
var errLeaving = errors.New("this replica is being stopped")

// newFleet makes the parts; changed is told when agents may have another owner.
func newFleet(c *config, store *kv.Store, m *mirror.Mirror, log *slog.Logger) (*fleet, error) {
	f := &fleet{config: c, log: log, owners: map[owner]*serve.AgentResource{}, changed: make(chan struct{}, 1)}
	var err error
	f.replica, err = place.NewReplica(place.ReplicaConfig{Store: store, Self: c.processName(), Log: log,
		Changed: func(*place.Placement) { f.placed() }})
	if err != nil {
		return nil, err
	}
	address, secure := c.advertised()
	f.secure = secure
	if address == "" && c.dataDir == "" {
		log.Info("agents are not told of this replica: --advertise-address is needed, or POD_IP")
	}
	ramp := c.ramp
	if ramp == 0 {
		ramp = -1
	}
	f.member, err = member.New(member.Config{
		Store: store, Name: c.processName(), Address: address, Zone: c.zone, Version: obs.Version, Level: model.Level, Lease: c.replicaLease, Ramp: ramp,
		Streams: &f.streams, Revision: func() int64 { return m.Status().Revision }, Ring: f.replica.Ring, Log: log,
	})
	if err != nil {
		return nil, err
	}
	f.admission = place.NewAdmission(place.AdmissionConfig{
		Pace:   place.PaceConfig{Cores: float64(runtime.GOMAXPROCS(0)), Most: c.env.maxRequests, Contained: c.contained},
		Waited: joined,
	})
	return f, nil
}

// joined counts a stream that came.
func joined(_ time.Duration, err error) {
	result := "admitted"
	switch status.Code(err) {
	case codes.OK:
	case codes.ResourceExhausted:
		result = "refused"
	default:
		result = "gone"
	}
	obs.Joins.WithLabelValues(result).Inc()
}

func (f *fleet) tasks(m *mirror.Mirror, planner *plan.Loop) []loop.Task {
	return []loop.Task{
		{Name: "member", Run: f.member.Run},
		{Name: "placement", Run: f.replica.Run},
		{Name: "admission", Run: f.admission.Run},
		{Name: "warm", Run: func(ctx context.Context) error { return f.warm(ctx, m, planner) }},
		{Name: "drain", Run: f.drain},
		{Name: "tell", Run: f.notify},
	}
}

// agentType is what agents are told: the owner of the proxy that they are of.
func (f *fleet) agentType() serve.AgentType {
	return serve.AgentType{TypeURL: agentapi.OwnerURL, Resource: func(c serve.Client, v serve.View) *serve.AgentResource {
		s, ok := seatOf(v)
		if !ok {
			return nil
		}
		return f.answer(s.notifiedOf(f.replica.Placement()), c.Secure, s.namespace, s.workload)
	}}
}

// answer is the owner of a proxy. Replicas have one address each: an agent that came by the other kind of connection could
// not use it, and is told to stay.
func (f *fleet) answer(p *place.Placement, secure bool, namespace, workload string) *serve.AgentResource {
	address, self := p.Owner(namespace, workload)
	if secure != f.secure {
		address = ""
	}
	return f.resource(owner{address, self})
}

// maxOwners bounds what is remembered of addresses that were; what is forgotten is encoded again.
const maxOwners = 4096

// resource is one answer, encoded once for all that get it.
func (f *fleet) resource(o owner) *serve.AgentResource {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.owners[o]; r != nil {
		return r
	}
	r, err := serve.EncodeAgentResource(agentapi.OwnerName, agentapi.Owner{Address: o.address, Self: o.self}.Encode())
	if err != nil {
		f.log.Error("an owner that cannot be told", obs.KeyAddress, o.address, obs.KeyError, err)
		return nil
	}
	if len(f.owners) >= maxOwners {
		clear(f.owners)
	}
	f.owners[o] = r
	return r
}

// seat is one stream of this replica.
type seat struct {
	namespace, workload string
	leave               func()
	notified            atomic.Pointer[place.Placement] // by which its agent is told of its owner; nil: it has not asked
}

// Join implements join.Fleet.
func (f *fleet) Join(namespace, workload string) join.Seat {
	return &seat{namespace: namespace, workload: workload, leave: f.streams.Join(namespace, workload)}
}

// Leave implements join.Seat.
func (s *seat) Leave() { s.leave() }

// seatOf is the seat of a view; false: it was not let in by a fleet.
func seatOf(v serve.View) (*seat, bool) {
	joined, ok := v.(*join.View)
	if !ok {
		return nil, false
	}
	s, ok := joined.Seat.(*seat)
	return s, ok
}

// Above implements join.Fleet.
func (f *fleet) Above() error { return f.member.Above() }

// Admit implements join.Fleet: it makes a stream wait for its turn. Its errors are gRPC statuses.
func (f *fleet) Admit(ctx context.Context, c serve.Client, node view.Node) error {
	if f.leaving.Load() {
		return status.Error(codes.Unavailable, errLeaving.Error())
	}
	cost := place.CostFull
	if c.Holds {
		cost = place.CostHolds
	}
	defer f.streams.Wait(node.Namespace, node.Workload)()
	return f.admission.Wait(ctx, cost)
}

// ready is nil where stock proxies may be sent here.
func (f *fleet) ready() error {
	switch {
	case f.leaving.Load():
		return errLeaving
	case !f.warmed.Load():
		return errors.New("the views of the proxies that will come are being planned")
	}
	return f.member.Above()
}

// drain keeps the balance: streams of proxies that do not follow the ring by themselves are closed, a few a second, while
// this replica has much more than its share. Each is decided about when it is closed.
func (f *fleet) drain(ctx context.Context) error {
	decide := place.NewDrain(place.DrainConfig{After: f.config.drainAfter, Calm: f.config.drainAfter / 2})
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			closing, again := decide.Step(f.drainInput(time.Now()))
			if closing && !f.leaving.Load() {
				obs.SentAway.WithLabelValues("imbalance").Add(float64(f.server.SendAway(1, agentapi.OwnerURL, false)))
			}
			timer.Reset(again)
		}
	}
}

// drainInput looks at the streams one by one only where there are too many.
func (f *fleet) drainInput(now time.Time) place.DrainInput {
	numbers := f.replica.Numbers()
	in := place.DrainInput{Now: now, Streams: f.streams.Total(), Share: numbers.Share, Peers: f.replica.Placement().Peers(), Mixed: numbers.Mixed,
		LeaderAge: f.replica.LeaderAge(now), Random: rand.Float64()}
	if in.Peers == 0 || float64(in.Streams) <= in.Share {
		return in
	}
	streams, follow := f.server.Subscribed(agentapi.OwnerURL)
	in.Movable = streams - follow
	waiting := f.server.Waiting(fanout.Endpoints) + f.server.Waiting(fanout.Answers) + f.server.Waiting(fanout.Config)
	in.Storm = waiting > max(64, in.Streams/20) || f.admission.State().Waiting > 0
	return in
}

// depart is the orderly way out: the others take over, the streams are sent to them over the grace period, and what is left
// is ended by who called. With nobody to take over, or nothing to be taken over, it returns when the ring is without this
// replica: within milliseconds, and at once where nobody leads.
func (f *fleet) depart(ctx context.Context) {
	f.leaving.Store(true)
	f.member.Leave()
	leaving := place.Leaving{Began: time.Now(), Grace: f.config.shutdown}
	tick := time.NewTicker(leaving.StepEvery())
	defer tick.Stop()
	for {
		placement, told := f.replica.Placement(), false
		select {
		case <-f.member.Told():
			told = !placement.InRing()
		default:
		}
		_, follow := f.server.Subscribed(agentapi.OwnerURL)
		step := leaving.Step(place.LeavingInput{Now: time.Now(), Streams: f.streams.Total(), Follow: follow, Peers: placement.Peers(), Told: told,
			Led: f.replica.LeaderAge(time.Now()) > 0})
		if !step.TellBy.IsZero() {
			f.notifyBy.Store(&step.TellBy)
		}
		obs.SentAway.WithLabelValues("leaving").Add(float64(f.server.SendAway(step.Close, agentapi.OwnerURL, step.All)))
		if step.GoAway {
			return
		}
		var changed <-chan struct{}
		if !told { // what it waits for
			changed = placement.Superseded()
		}
		select {
		case <-tick.C:
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// gauges sets the metrics that are read off the fleet, as of now.
func (f *fleet) gauges(now time.Time) {
	placement, numbers, admission := f.replica.Placement(), f.replica.Numbers(), f.admission.State()
	s := place.SignalsOf(place.Measures{
		Streams: f.streams.Total(), Misplaced: f.streams.Misplaced(placement.Ring(), f.config.processName()), Numbers: numbers,
		PushLag: f.server.Lag(now), Admission: admission,
	})
	obs.FleetProxies.Set(s.Fleet)
	obs.FleetReady.Set(float64(numbers.Ready))
	obs.Imbalance.Set(s.Imbalance)
	obs.Misplaced.Set(s.Misplaced)
	obs.PushLag.Set(s.PushLag)
	obs.JoinDelay.Set(s.QueueDelay)
	obs.JoinRate.Set(admission.Rate)
	obs.JoinsWaiting.Set(float64(admission.Waiting))
	obs.RingVersion.Set(float64(placement.Ring().Version()))
}
