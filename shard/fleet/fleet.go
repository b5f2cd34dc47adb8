package fleet

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

// Config configures New. Store, Name, Revision and Log are required.
type Config struct {
	Store    *kv.Store
	Name     string        // name of this replica, unique in the mesh; usually the name of its Pod
	Address  string        // host:port that agents dial; empty: unknown
	Secure   bool          // the address speaks TLS
	Embedded bool          // etcd is in this process, so there are no other replicas
	Zone     string        // zone of this replica; may be empty
	Domain   string        // DNS suffix of services (svc.cluster.local) in the mesh
	Revision func() int64  // revision of the snapshot that this replica serves
	Sums     func() []byte // encoded counts of this replica's proxies (member.Config.Sums); may be nil
	Away     func() bool   // reports whether etcd does not answer; nil: etcd always answers
	// If this replica crashes, other replicas take over its shards after the time Lease, in whole seconds; 0: 10 s.
	// Ramp is the time in which the share of a new replica grows (member.Weight); 0: full share at once.
	Lease, Ramp time.Duration
	DrainAfter  time.Duration // time with far more streams than the share, before streams are closed; 0: 60 s
	Grace       time.Duration // longest duration of an orderly stop; 0: Depart does not wait
	MostJoins   float64       // maximum of new streams per second (PILOT_MAX_REQUESTS_PER_SECOND); 0: no fixed maximum
	Contained   bool          // a container limits the memory of this process
	Off         Loops         // control loops to turn off
	Log         *slog.Logger
}

// Loops states which control loops are turned off: Joins that of place.Admission, Moves that of place.Moves, and Drain
// that of place.Drain. The package comment of shard/place describes these loops.
type Loops struct{ Joins, Moves, Drain bool }

// Server is the part of the xDS server that a fleet uses (serve.Server). Its methods must be safe for concurrent use.
type Server interface {
	// AgentResourceChangedFor sends the resource of an agent type again, if it differs, to the streams for which the
	// function `of` returns true. The parameter listens tells the function whether the stream has subscribed to the
	// type.
	AgentResourceChangedFor(typeURL string, of func(v serve.Proxy, listens bool) bool)
	// SendAway closes up to n streams without a subscription to the type, and returns their number. If all is true,
	// streams with a subscription may be closed, too.
	SendAway(n int, typeURL string, all bool) int
	// Subscribed returns the number of all streams, and the number of streams with a subscription to the type.
	Subscribed(typeURL string) (streams, subscribed int)
	// Waiting returns the number of streams that wait for a push in a lane (an urgency of pushes). Lag returns the
	// longest time for which a stream has waited for a push in any lane.
	Waiting(lane fanout.Lane) int
	Lag(now time.Time) time.Duration
}

// Fleet is one replica of a fleet, with its member record, its placement, and the admission of new streams. If there is
// only one replica, it owns all proxies. A Fleet is safe for concurrent use, except for Serves.
type Fleet struct {
	cfg       Config
	log       *slog.Logger
	streams   member.Streams
	member    *member.Member
	replica   *place.Replica
	admission *place.Admission
	server    Server // set before any task runs
	warmed    atomic.Bool
	leaving   atomic.Bool
	notifyBy  atomic.Pointer[time.Time] // deadline for notifying all agents, while this replica leaves; nil: no deadline
	lastAway  time.Time                 // the last time at which etcd did not answer; owned by drain

	mu     sync.Mutex // a leaf lock: guards owners
	owners map[owner]*serve.AgentResource
}

var _ join.Fleet = (*Fleet)(nil)

// owner is the content of the agent resource.
type owner struct {
	address string
	self    bool
}

// errLeaving refuses proxies while this replica leaves.
var errLeaving = errors.New("this replica is being stopped")

// New returns a replica that is not ready yet. Serves must be called before the Tasks run, and before Depart and
// Gauges. Errors: Store, Revision or Name is missing, or Name, Address, Zone or Lease is invalid.
func New(c Config) (*Fleet, error) {
	f := &Fleet{cfg: c, log: c.Log, owners: map[owner]*serve.AgentResource{}}
	var err error
	f.replica, err = place.NewReplica(place.ReplicaConfig{Store: c.Store, Self: c.Name, Log: c.Log})
	if err != nil {
		return nil, err
	}
	if c.Address == "" && !c.Embedded {
		c.Log.Info("the address of this replica is not published to agents: set --advertise-address or POD_IP")
	}
	ramp := c.Ramp
	if ramp == 0 {
		ramp = -1
	}
	f.member, err = member.New(member.Config{
		Store: c.Store, Name: c.Name, Address: c.Address, Zone: c.Zone, Version: obs.Version, Level: model.Level, Lease: c.Lease, Ramp: ramp,
		Streams: &f.streams, Revision: c.Revision, Ring: f.replica.Ring, Sums: c.Sums, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	f.admission = place.NewAdmission(place.AdmissionConfig{
		Pace:   place.PaceConfig{Cores: float64(runtime.GOMAXPROCS(0)), Most: c.MostJoins, Contained: c.Contained},
		Waited: joined,
		Off:    c.Off.Joins,
	})
	return f, nil
}

// Serves sets the server of the streams. The server is made after the Fleet, since it is configured with AgentType.
func (f *Fleet) Serves(server Server) { f.server = server }

// joined counts a stream's admission by its result.
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

// Tasks returns the tasks of this replica, each of which the caller must run in a goroutine. The replica serves the
// snapshots of m, and planner computes the configuration.
func (f *Fleet) Tasks(m *mirror.Mirror, planner *plan.Loop) []loop.Task {
	return []loop.Task{
		{Name: "member", Run: f.member.Run},
		{Name: "placement", Run: f.replica.Run},
		{Name: "admission", Run: f.admission.Run},
		{Name: "warm", Run: func(ctx context.Context) error { return f.warm(ctx, m, planner) }},
		{Name: "drain", Run: f.drain},
		{Name: "notify", Run: f.notify},
	}
}

// AgentType returns the type of the resource that tells an agent the owner of its proxy. Only proxies that Join has
// counted have this resource.
func (f *Fleet) AgentType() serve.AgentType {
	return serve.AgentType{TypeURL: agentapi.OwnerURL, Resource: func(c serve.Client, v serve.Proxy) *serve.AgentResource {
		s, ok := seatOf(v)
		if !ok {
			return nil
		}
		return f.answer(s.notifiedOf(f.replica.Placement()), c.Secure, s.namespace, s.workload)
	}}
}

// answer returns the encoded owner of a proxy. secure states whether the agent's connection uses TLS. All replicas have
// addresses of one kind, plain or TLS (Config.Secure). An agent on a connection of the other kind receives no address,
// so its proxy stays.
func (f *Fleet) answer(p *place.Placement, secure bool, namespace, workload string) *serve.AgentResource {
	address, self := p.Owner(namespace, workload)
	if secure != f.cfg.Secure {
		address = ""
	}
	return f.resource(owner{address, self})
}

// maxOwners bounds the cache of encoded owners.
const maxOwners = 4096

// resource returns the encoded resource of an owner, which all receivers share. The result is nil if the owner cannot
// be encoded.
func (f *Fleet) resource(o owner) *serve.AgentResource {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.owners[o]; r != nil {
		return r
	}
	r, err := serve.EncodeAgentResource(agentapi.OwnerName, agentapi.Owner{Address: o.address, Self: o.self}.Encode())
	if err != nil {
		f.log.Error("the address of an owner cannot be encoded: agents are not told of this owner", obs.KeyAddress, o.address, obs.KeyError, err)
		return nil
	}
	if len(f.owners) >= maxOwners {
		clear(f.owners)
	}
	f.owners[o] = r
	return r
}

// seat is one stream of this replica, and implements join.Seat.
type seat struct {
	namespace, workload string
	leave               func()
	notified            atomic.Pointer[place.Placement] // newest placement recorded by round.turn or notifiedOf; nil: not recorded yet
}

// Join implements join.Fleet. It counts a stream of a workload until Leave of the result is called.
func (f *Fleet) Join(namespace, workload string) join.Seat {
	return &seat{namespace: namespace, workload: workload, leave: f.streams.Join(namespace, workload)}
}

// Leave implements join.Seat. It ends the count of the stream.
func (s *seat) Leave() { s.leave() }

// seatOf returns the seat of a proxy. The second result is false if no Fleet admitted the proxy.
func seatOf(v serve.Proxy) (*seat, bool) {
	joined, ok := v.(*join.Proxy)
	if !ok {
		return nil, false
	}
	s, ok := joined.Seat.(*seat)
	return s, ok
}

// Above implements join.Fleet. It returns an error while the level (format version) of the stored configuration is too
// new for this build. Otherwise it returns nil.
func (f *Fleet) Above() error { return f.member.Above() }

// Admit implements join.Fleet. It blocks until a stream is admitted. Errors are gRPC statuses. Unavailable: this
// replica leaves. ResourceExhausted: the wait would be too long, too many joins wait, or memory is full. Canceled or
// DeadlineExceeded: ctx ended.
func (f *Fleet) Admit(ctx context.Context, c serve.Client, node view.Node) error {
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

// Ready returns nil if this replica can receive new streams, and otherwise an error with the reason. There are three
// reasons: the replica is being stopped, it still plans the configuration of expected proxies, or the stored
// configuration is too new for this build (Above).
func (f *Fleet) Ready() error {
	switch {
	case f.leaving.Load():
		return errLeaving
	case !f.warmed.Load():
		return errors.New("the views of expected proxies are being planned")
	}
	return f.member.Above()
}

// drain closes a few streams per second while this replica has far more streams than its share. It closes only streams
// whose agents have not subscribed to their owner.
func (f *Fleet) drain(ctx context.Context) error {
	decide := place.NewDrain(place.DrainConfig{After: f.cfg.DrainAfter, Calm: f.cfg.DrainAfter / 2, Off: f.cfg.Off.Drain})
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

// drainInput returns the input of place.Drain. It asks the server about the streams only if this replica has more
// streams than its share. While etcd does not answer, neither the leader nor the streams of other replicas are known.
// The share is then outdated, and closed streams would come back. LeaderAge therefore counts from the end of the
// outage. During the outage LeaderAge is 0, so that no stream is closed.
func (f *Fleet) drainInput(now time.Time) place.DrainInput {
	numbers := f.replica.Numbers()
	if f.cfg.Away != nil && f.cfg.Away() {
		f.lastAway = now
	}
	in := place.DrainInput{Now: now, Streams: f.streams.Total(),
		Share: numbers.Share, Peers: f.replica.Placement().Peers(), Mixed: numbers.Mixed,
		LeaderAge: min(f.replica.LeaderAge(now), now.Sub(f.lastAway)), Random: rand.Float64()}
	if in.Peers == 0 || float64(in.Streams) <= in.Share {
		return in
	}
	streams, follow := f.server.Subscribed(agentapi.OwnerURL)
	in.Movable = streams - follow
	waiting := f.server.Waiting(fanout.Endpoints) + f.server.Waiting(fanout.Answers) + f.server.Waiting(fanout.Config)
	in.Storm = waiting > max(64, in.Streams/20) || f.admission.State().Waiting > 0
	return in
}

// Depart performs the orderly stop of this replica, and returns when the stop or ctx ends. The other replicas take over
// the shards. Depart closes the streams bit by bit over the time Config.Grace, and their agents connect to the other
// replicas. The caller must end the streams that remain. If there is no other ready replica, or no stream, Depart waits
// only until the ring no longer names this replica. The wait usually takes milliseconds, and at most
// place.Leaving.Notice. If no leader is known, Depart does not wait for the ring.
func (f *Fleet) Depart(ctx context.Context) {
	f.leaving.Store(true)
	f.member.Leave()
	leaving := place.Leaving{Began: time.Now(), Grace: f.cfg.Grace}
	tick := time.NewTicker(leaving.StepEvery())
	defer tick.Stop()
	for {
		placement, handedOver := f.replica.Placement(), false
		select {
		case <-f.member.LeavingRecorded():
			handedOver = !placement.InRing()
		default:
		}
		_, follow := f.server.Subscribed(agentapi.OwnerURL)
		step := leaving.Step(place.LeavingInput{Now: time.Now(), Streams: f.streams.Total(),
			Follow: follow, Peers: placement.Peers(), HandedOver: handedOver,
			Led: f.replica.LeaderAge(time.Now()) > 0})
		if !step.NotifyBy.IsZero() {
			f.notifyBy.Store(&step.NotifyBy)
		}
		obs.SentAway.WithLabelValues("leaving").Add(float64(f.server.SendAway(step.Close, agentapi.OwnerURL, step.All)))
		if step.GoAway {
			return
		}
		var changed <-chan struct{}
		if !handedOver { // the next placement may be one without this replica
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

// Gauges sets the metrics of the fleet to their values at now.
func (f *Fleet) Gauges(now time.Time) {
	placement, numbers, admission := f.replica.Placement(), f.replica.Numbers(), f.admission.State()
	s := place.SignalsOf(place.Measures{
		Streams: f.streams.Total(), Misplaced: f.streams.Misplaced(placement.Ring(), f.cfg.Name), Numbers: numbers,
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
