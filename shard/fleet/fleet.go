// Package fleet makes a process one replica of a fleet. A fleet has the replicas of one mesh, which share its proxies
// by a ring of shards. The owner of a proxy is the replica that owns the proxy's shard. The package admits streams at a
// pace, notifies agents of their owners, keeps the number of streams in balance, and hands over when the process is
// stopped.
//
// Owns: this replica's record and placement, by shard/member and shard/place; the placement that each agent was
// notified of.
// Reads: the ring, the streams of push/serve.
// Never: decides who owns a shard (place.Lead), or when to move or close streams (place.Moves, place.Drain,
// place.Leaving).
//
// # One of a fleet
//
// A stream waits for place.Admission before it is planned, and counts in member.Streams until it has left its view.
// place.Drain decides when to send a stream away. After SIGTERM all loops run on during Fleet.Depart. Their context
// ends afterwards.
//
// The owner that an agent receives (navarch.io/owner) comes from one Placement, the newest that its stream was notified
// of. If the proxy stays, its agent is notified of a newer placement at once. If the proxy has to move, place.Moves
// sets the pace of notifications (notify.go):
//
//   - while goroutines do not wait for a processor, the pace rises to 100 a second to one replica, from all others
//     together;
//   - while they wait, the pace falls to 10 a second from each replica, or to a hundredth of its streams if that is
//     more;
//   - a replica that leaves notifies all its agents in the first half of the time in which it sends streams away.
//
// While replicas have two versions (obs.Version), a replica sends agents only to replicas of its own version, until it
// leaves. The ring may move a shard from a new replica to an old one, but the shard's proxies then stay. An agent whose
// replica crashes may reconnect to any other replica.
//
// A new replica is ready (prewarm.go) once prewarmed proxies have planned the namespaces that it will own, or after 20
// seconds of planning. Prewarmed proxies exist only in this process. For each Sidecar with a workload selector they
// plan a scope, too. They have the capabilities of this version's image. Workload selectors of EnvoyFilters, and other
// clusters, networks and capabilities, are not prewarmed. The prewarmed proxies stay until a minute after the ramp. One
// process with an embedded etcd runs the same parts and owns all shards.
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
	Sums     func() []byte // sums of this replica's proxies (member.Config); nil: the record has no sums
	Away     func() bool   // reports that etcd does not answer; nil: etcd always answers
	// Lease is the time of silence after which other replicas take over the shards of this one, in whole seconds; 0: 10
	// s. Ramp is the time in which the share of a new replica grows (member.Weight); 0: at once.
	Lease, Ramp time.Duration
	DrainAfter  time.Duration // streams are closed after this time well above the replica's share; 0: 60 s
	Grace       time.Duration // longest duration of an orderly stop; 0: Depart does not wait
	MostJoins   float64       // joins per second (PILOT_MAX_REQUESTS_PER_SECOND); 0: only the pace limits joins
	Contained   bool          // a container limits the memory of this process
	Off         Loops         // control loops that are off
	Log         *slog.Logger
}

// Loops names the control loops on the load of a machine that are off. The package comment of shard/place describes the
// loops.
type Loops struct{ Joins, Moves, Drain bool }

// Server is the part of the xDS server that a fleet uses (serve.Server). Its methods must be safe for concurrent use.
type Server interface {
	// AgentResourceChangedFor sends the resource of an agent type again, if it differs, to the streams for which `of`
	// returns true. listens reports whether a stream has subscribed to the type.
	AgentResourceChangedFor(typeURL string, of func(v serve.Proxy, listens bool) bool)
	// SendAway closes up to n streams without a subscription to the type, and returns their number. If all is true,
	// streams with a subscription may be closed, too.
	SendAway(n int, typeURL string, all bool) int
	// Subscribed returns the number of streams, and how many of them have subscribed to the type.
	Subscribed(typeURL string) (streams, subscribed int)
	// Waiting returns the number of streams that wait for their turn in a lane, and Lag the longest of these waits.
	Waiting(lane fanout.Lane) int
	Lag(now time.Time) time.Duration
}

// Fleet is one replica of a fleet, with its record, its view of the ring, and the admission of new streams. A single
// replica owns everything and sends no proxies elsewhere. A Fleet is safe for concurrent use, except for Serves.
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

// New returns a replica, not ready yet. Serves must be called before the Tasks run, and before Depart and Gauges.
// Errors: Store, Revision or Name is missing, or Name, Address, Zone or Lease is invalid.
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

// Tasks returns the loops of this replica, which the caller must run. The replica serves m's snapshots through planner.
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

// AgentType returns the resource type with the owner of an agent's proxy. A proxy that no Fleet counts (Join) has no
// such resource.
func (f *Fleet) AgentType() serve.AgentType {
	return serve.AgentType{TypeURL: agentapi.OwnerURL, Resource: func(c serve.Client, v serve.Proxy) *serve.AgentResource {
		s, ok := seatOf(v)
		if !ok {
			return nil
		}
		return f.answer(s.notifiedOf(f.replica.Placement()), c.Secure, s.namespace, s.workload)
	}}
}

// answer returns the owner of a proxy, encoded. A replica has one address, either plain or TLS. An agent on the other
// kind of connection could not use this address. Such an agent receives no address, so its proxy stays.
func (f *Fleet) answer(p *place.Placement, secure bool, namespace, workload string) *serve.AgentResource {
	address, self := p.Owner(namespace, workload)
	if secure != f.cfg.Secure {
		address = ""
	}
	return f.resource(owner{address, self})
}

// maxOwners bounds the cache of encoded owners.
const maxOwners = 4096

// resource returns the encoded resource of an owner, which all receivers share; nil: the owner cannot be encoded.
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

// seat is one stream of this replica.
type seat struct {
	namespace, workload string
	leave               func()
	notified            atomic.Pointer[place.Placement] // newest that the agent knows or need not know; nil: not yet recorded
}

// Join implements join.Fleet. It counts a stream of a workload until Leave of the result is called.
func (f *Fleet) Join(namespace, workload string) join.Seat {
	return &seat{namespace: namespace, workload: workload, leave: f.streams.Join(namespace, workload)}
}

// Leave implements join.Seat. It ends the count of the stream.
func (s *seat) Leave() { s.leave() }

// seatOf returns the seat of a proxy; false: no Fleet admitted the proxy.
func seatOf(v serve.Proxy) (*seat, bool) {
	joined, ok := v.(*join.Proxy)
	if !ok {
		return nil, false
	}
	s, ok := joined.Seat.(*seat)
	return s, ok
}

// Above implements join.Fleet. It returns an error while this build does not read the level (format version) of the
// stored configuration, otherwise nil.
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

// Ready returns an error with the reason why this replica should receive no new streams; nil: it is ready. The reason
// is that the replica leaves, has not planned the views of expected proxies yet, or does not read the level of the
// stored configuration.
func (f *Fleet) Ready() error {
	switch {
	case f.leaving.Load():
		return errLeaving
	case !f.warmed.Load():
		return errors.New("the views of expected proxies are being planned")
	}
	return f.member.Above()
}

// drain closes streams of stock agents, a few per second, while this replica has much more than its share.
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

// drainInput returns the input of place.Drain. It inspects single streams only if this replica has more than its share.
// While etcd does not answer, neither the leader nor the streams of other replicas are known. The share is then
// outdated, and closed streams would come back. The leader's age therefore counts from the end of the outage. During
// the outage it is 0, so that no stream is closed.
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

// Depart performs the orderly stop, and returns at the end of the stop or when ctx ends. The other replicas take over
// the shards, and the streams are sent to these replicas over the grace period. The caller ends the remaining streams.
// If there is no other ready replica, or no stream, Depart returns as soon as the ring no longer names this replica.
// This usually takes milliseconds, and at most the Notice of place.Leaving. Without a leader it does not wait for the
// ring.
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
		if !handedOver { // the next placement may hand over
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
