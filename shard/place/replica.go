package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/kv"
)

// ReplicaConfig configures a Replica. Store and Self are required.
type ReplicaConfig struct {
	Store *kv.Store
	Self  string       // name of this replica, as in its member record
	Log   *slog.Logger // nil: slog's default
}

// Replica follows three things in the store: the ring (which assigns proxies to replicas), the fleet (the records of
// all replicas) and the leader. Any goroutine may call its methods. Run may be called only once.
type Replica struct {
	cfg       ReplicaConfig
	placement atomic.Pointer[Placement]
	numbers   atomic.Pointer[Numbers]
	fleet     atomic.Pointer[[]member.Record]
	elected   atomic.Int64 // when the present leader was first seen, Unix ns; 0: no leader
}

// NewReplica returns a Replica without a ring. Until Run has read the ring, its Placement names no owners. It returns
// an error if the store or the name is missing.
func NewReplica(cfg ReplicaConfig) (*Replica, error) {
	if cfg.Store == nil || cfg.Self == "" {
		return nil, errors.New("placement: a store and the name of this replica are needed")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Replica{cfg: cfg}
	r.placement.Store(&Placement{self: cfg.Self, over: make(chan struct{})})
	r.numbers.Store(&Numbers{})
	return r, nil
}

// Placement returns the present placement; never nil.
func (r *Replica) Placement() *Placement { return r.placement.Load() }

// Ring returns the present ring. It is nil if there is no ring, or if Run has not read it yet.
func (r *Replica) Ring() *ring.Ring { return r.Placement().ring }

// Numbers returns the fleet's totals from the replicas' records, which are some seconds old. It returns zero Numbers
// until Run has read the fleet.
func (r *Replica) Numbers() Numbers { return *r.numbers.Load() }

// Counted reports whether Run has read the fleet.
func (r *Replica) Counted() bool { return r.fleet.Load() != nil }

// LeaderAge returns how long this replica has known the present leader, at the time now. It is 0 if no leader is known.
func (r *Replica) LeaderAge(now time.Time) time.Duration {
	since := r.elected.Load()
	if since == 0 {
		return 0
	}
	return max(now.Sub(time.Unix(0, since)), 0)
}

// Expected forecasts the namespaces in which this replica will own proxies after it has joined the ring. The namespaces
// are sorted by descending number of streams, then by name. Expected returns nil until Run has read the fleet, and if
// there are no such namespaces. The forecast assumes the present loads, and the full weight for this replica. It omits
// namespaces and workloads that no replica's record names. The forecast may be wrong.
func (r *Replica) Expected() []string {
	records := r.fleet.Load()
	if records == nil {
		return nil
	}
	var load ring.Load
	members := []ring.Member{{Name: r.cfg.Self, Weight: ring.FullWeight}}
	for _, m := range *records {
		load.Add(m.Load)
		if m.Name != r.cfg.Self && m.State == member.Ready {
			members = append(members, m.Member())
		}
	}
	next := ring.Assign(r.Ring(), members, load)
	var mine []string
	for name, n := range load.Namespaces {
		own := !next.Split(name) && owns(next, name, "", r.cfg.Self)
		for workload := range n.Workloads {
			own = own || owns(next, name, workload, r.cfg.Self)
		}
		if own {
			mine = append(mine, name)
		}
	}
	slices.SortFunc(mine, func(a, b string) int {
		return cmp.Or(load.Namespaces[b].Streams-load.Namespaces[a].Streams, cmp.Compare(a, b))
	})
	return mine
}

func owns(r *ring.Ring, namespace, workload, self string) bool {
	m, ok := ring.Owner(r, namespace, workload)
	return ok && m.Name == self
}

// Run follows the ring, the fleet and the leader until ctx ends, and returns the error of ctx. While etcd does not
// answer, the last known state stays in use. Run returns any other error only at its start, because of a programming
// error (kv.Store.Follow).
func (r *Replica) Run(ctx context.Context) error {
	fleets, err := member.Follow(ctx, r.cfg.Store, r.cfg.Log)
	if err != nil {
		return err
	}
	rings, err := r.cfg.Store.Follow(ctx, ringFolder)
	if err != nil {
		return err
	}
	leaders, err := r.cfg.Store.Follow(ctx, "leader/")
	if err != nil {
		return err
	}
	leading := int64(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case folder, open := <-rings:
			if open {
				r.publish(r.read(folder), r.Placement().fleet)
			}
		case fleet, open := <-fleets:
			if open {
				r.count(fleet.Members)
				r.publish(r.Ring(), presentOf(fleet.Members))
			}
		case folder, open := <-leaders:
			if oldest := oldestOf(folder); open && oldest != leading {
				leading = oldest
				r.elected.Store(0)
				if oldest != 0 {
					r.elected.Store(time.Now().UnixNano())
				}
			}
		}
	}
}

// oldestOf returns the revision of the oldest candidate, which is the leader. It returns 0 if there is no candidate.
func oldestOf(folder kv.Folder) (oldest int64) {
	for _, candidate := range folder.Blobs {
		if oldest == 0 || candidate.Revision < oldest {
			oldest = candidate.Revision
		}
	}
	return oldest
}

// read decodes the ring in a folder. If the folder contains no valid ring, read returns the present ring.
func (r *Replica) read(folder kv.Folder) *ring.Ring {
	for _, blob := range folder.Blobs {
		if blob.Path != ringPath {
			continue
		}
		next, err := ring.Decode(blob.Raw)
		if err == nil {
			return next
		}
		r.cfg.Log.Error("the stored ring cannot be decoded; the previous ring stays in use", slog.Any("error", err))
	}
	return r.Ring()
}

// publish replaces the placement if the ring or the fleet has changed. It then closes the channel Superseded of the old
// placement.
func (r *Replica) publish(next *ring.Ring, fleet map[string]seat) {
	old := r.Placement()
	if old.ring.Version() == next.Version() && sameRing(old.ring, next) && sameSeats(old.fleet, fleet) {
		return
	}
	r.placement.Store(&Placement{ring: next, self: r.cfg.Self, fleet: fleet, over: make(chan struct{})})
	close(old.over)
}

func sameRing(a, b *ring.Ring) bool {
	return a == b || a != nil && b != nil && string(a.Encode()) == string(b.Encode())
}

// count computes the Numbers of a fleet.
func (r *Replica) count(fleet []member.Record) {
	var n Numbers
	weights, own, version := 0, 0, ""
	r.fleet.Store(&fleet)
	for _, m := range fleet {
		n.Streams += m.Load.Streams()
		if m.State != member.Ready {
			continue
		}
		if n.Ready > 0 && m.Version != version {
			n.Mixed = true
		}
		n.Ready, version = n.Ready+1, m.Version
		weights += int(m.Weight)
		if m.Name == r.cfg.Self {
			own = int(m.Weight)
		}
	}
	if weights > 0 {
		n.Share = float64(n.Streams) * float64(own) / float64(weights)
	}
	r.numbers.Store(&n)
}

// Numbers are the totals of the fleet.
type Numbers struct {
	Ready   int     // ready replicas, including this one if it is ready; 0 until Run has read the fleet
	Streams int     // streams of all replicas, ready or not, including streams that wait for admission
	Share   float64 // Streams times this replica's fraction of the ready replicas' weight; 0 while it is not ready
	Mixed   bool    // the ready replicas run different versions
}

// Mean returns Streams divided by Ready; without ready replicas it returns Streams.
func (n Numbers) Mean() float64 { return float64(n.Streams) / float64(max(n.Ready, 1)) }

// Placement maps proxies to their owners. It is immutable and safe for concurrent use.
type Placement struct {
	ring  *ring.Ring
	self  string
	fleet map[string]seat // present replicas by name
	over  chan struct{}
}

// seat is the part of a replica's record that a placement needs.
type seat struct {
	address string
	ready   bool
	version string
}

func presentOf(fleet []member.Record) map[string]seat {
	seats := make(map[string]seat, len(fleet))
	for _, m := range fleet {
		seats[m.Name] = seat{m.Address, m.State == member.Ready, m.Version}
	}
	return seats
}

func sameSeats(a, b map[string]seat) bool {
	if len(a) != len(b) {
		return false
	}
	for name, s := range a {
		if other, there := b[name]; !there || other != s {
			return false
		}
	}
	return true
}

// Owner returns the address (host:port) of the replica that owns a proxy. The result self reports whether this replica
// is the owner. The address may be empty even if self is true. If the address is empty and self is false, the proxy
// should stay at its present replica. There are four reasons for this result:
//
//   - The ring has no owner for the proxy.
//   - The record of the owner contains no address.
//   - The owner is absent or not ready. For example, it is leaving. Or it crashed, and the leader has not changed the
//     ring yet.
//   - This replica is ready, and the owner runs another version. So during an upgrade, a change of the ring does not
//     move a proxy back to the old version.
func (p *Placement) Owner(namespace, workload string) (address string, self bool) {
	m, ok := ring.Owner(p.ring, namespace, workload)
	if !ok {
		return "", false
	}
	s, there := p.fleet[m.Name]
	if m.Name == p.self {
		if there {
			return s.address, true
		}
		return m.Address, true
	}
	if here := p.fleet[p.self]; !there || !s.ready || here.ready && here.version != s.version {
		return "", false
	}
	return s.address, false
}

// Ring returns the ring of the placement. It is nil if there is no ring.
func (p *Placement) Ring() *ring.Ring { return p.ring }

// InRing reports whether this replica is a member of the ring. It is false if there is no ring.
func (p *Placement) InRing() bool {
	_, in := p.ring.Member(p.self)
	return in
}

// Peers returns the number of other ready replicas.
func (p *Placement) Peers() int {
	n := 0
	for name, s := range p.fleet {
		if s.ready && name != p.self {
			n++
		}
	}
	return n
}

// Superseded returns a channel that is closed when a newer placement replaces this one.
func (p *Placement) Superseded() <-chan struct{} { return p.over }

// String describes the placement, for logs and debug pages.
func (p *Placement) String() string {
	return fmt.Sprintf("ring %d of %d replicas, %d present", p.ring.Version(), len(p.ring.Members()), len(p.fleet))
}
