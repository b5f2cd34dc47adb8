package api

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/shard/member"
)

// Intervals at which Sums counts. Each change of the sums is written to etcd.
const (
	countEvery  = 10 * time.Second
	repeatEvery = time.Minute // interval at which the time of unchanged sums is renewed
	// countShare limits counting to 1/countShare of the time of one core.
	countShare = 200
)

// Sums counts this replica's proxies by state, version and other properties (fleetapi.Sums), for the replica's record
// in etcd. The zero value is ready for use. Run is called once. Any goroutine may call Encoded.
type Sums struct {
	encoded atomic.Pointer[[]byte]
	last    fleetapi.Recorded // owned by Run
}

// Encoded returns the newest sums, as fleetapi.Recorded.Encode encodes them. It returns nil before Run has counted. The
// result must not be changed.
func (s *Sums) Encoded() []byte {
	if raw := s.encoded.Load(); raw != nil {
		return *raw
	}
	return nil
}

// Run counts the streams of p at once, and then 10 s after each count, or later if counting takes more than 50 ms. It
// blocks until ctx ends, and returns the error of ctx. replica is the name of this replica.
func (s *Sums) Run(ctx context.Context, p Proxies, replica string) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			began := time.Now()
			s.set(count(p, replica), began)
			tick.Reset(max(countEvery, countShare*time.Since(began)))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// count returns the sums over all streams.
func count(p Proxies, replica string) (sums fleetapi.Sums) {
	for _, s := range p.Streams(nil, "") {
		one := proxyOf(&s, replica)
		sums.Add(&one)
	}
	return sums
}

// set stores sums that were counted at the time now. Unchanged sums keep their earlier time for up to repeatEvery.
func (s *Sums) set(sums fleetapi.Sums, now time.Time) {
	next := fleetapi.Recorded{At: s.last.At, Sums: sums}
	raw := next.Encode()
	if s.encoded.Load() != nil && string(raw) == string(s.Encoded()) && now.Sub(s.last.At) < repeatEvery {
		return
	}
	next.At = now
	raw = next.Encode()
	s.last = next
	s.encoded.Store(&raw)
}

// Bounds of the records that Fleet keeps of replicas that stopped.
const (
	rememberFor = debug.LeftFor
	maxStopped  = 64
)

// Fleet stores the records of the fleet's replicas. For 10 minutes it also keeps the records of up to 64 replicas that
// stopped. A replica has stopped if a Set lacks its record, and its last record had sums and a state other than
// leaving. The zero value is ready for use. Any goroutine may call its methods.
type Fleet struct {
	mu      sync.Mutex // guards the fields below
	members []member.Record
	stopped map[string]stoppedReplica
}

// stoppedReplica is the last record of a replica that stopped.
type stoppedReplica struct {
	record member.Record
	at     time.Time // time of the Set that lacked its record
}

// Set replaces the records with members, the records at the time now. The caller must not change members afterwards.
func (f *Fleet) Set(members []member.Record, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(now)
	present := map[string]bool{}
	for _, m := range members {
		present[m.Name] = true
		delete(f.stopped, m.Name)
	}
	for _, m := range f.members {
		if !present[m.Name] && m.State != member.Leaving && len(m.Sums) > 0 && len(f.stopped) < maxStopped {
			if f.stopped == nil {
				f.stopped = map[string]stoppedReplica{}
			}
			f.stopped[m.Name] = stoppedReplica{m, now}
		}
	}
	f.members = members
}

// forget drops replicas that stopped long ago. The caller holds the lock.
func (f *Fleet) forget(now time.Time) {
	for name, s := range f.stopped {
		if now.Sub(s.at) > rememberFor {
			delete(f.stopped, name)
		}
	}
}

// Members returns the records of the last Set, without stopped replicas. It returns nil before Set. The result must not
// be changed.
func (f *Fleet) Members() []member.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members
}

// Recorded returns the sums in the records of present and stopped replicas, with the age of the sums at the time now.
// Present replicas come first, in the order of Set. The order of stopped replicas varies. Records without readable sums
// are omitted, and the result is nil if no record is left.
func (f *Fleet) Recorded(now time.Time) (all []fleetapi.RecordedSums) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(now)
	add := func(m member.Record, state string) {
		// A replica of another version may have a record without readable sums.
		if r, err := fleetapi.DecodeRecorded(m.Sums, m.Name); err == nil {
			all = append(all, fleetapi.RecordedSums{Replica: m.Name, State: state, Last: r.Since(now)})
		}
	}
	for _, m := range f.members {
		add(m, m.State.String())
	}
	for _, s := range f.stopped {
		add(s.record, fleetapi.Stopped)
	}
	return all
}

func sumsPart(a *API, _ context.Context, _ authz.Caller, _ url.Values) (any, error) {
	now := a.Now()
	if a.Fleet != nil {
		return a.Fleet.Recorded(now), nil
	}
	if a.Proxies == nil {
		return []fleetapi.RecordedSums{}, nil
	}
	own := fleetapi.Recorded{At: now, Sums: count(a.Proxies, a.Self)} // there is no other replica
	return []fleetapi.RecordedSums{{Replica: a.Self, State: member.Ready.String(), Last: own.Since(now)}}, nil
}

func mergeSums(a *API, _ url.Values, parts []fleetapi.From[[]fleetapi.RecordedSums], _ int,
) (answer fleetapi.Answer[fleetapi.RecordedSums], err error) {
	var all []fleetapi.RecordedSums
	for _, f := range parts {
		all = append(all, f.Part...)
	}
	return fleetapi.MergeRecorded(all), nil
}

// lastOf sets Last of missing replicas to the sums of their records. The caller of the request must be allowed to see
// everything.
func (a *API) lastOf(missing []fleetapi.Missing, now time.Time) {
	if a.Fleet == nil || len(missing) == 0 {
		return
	}
	recorded := a.Fleet.Recorded(now)
	for i := range missing {
		for _, r := range recorded {
			if r.Replica == missing[i].Replica {
				missing[i].Last = &r.Last
			}
		}
	}
}
