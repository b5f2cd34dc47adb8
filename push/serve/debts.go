package serve

import (
	"slices"
	"time"

	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/manifest"
)

// pay records that the client is up to date with the n oldest changes that it had not acknowledged. If the client
// refused a part of a change, the change counts as refused. The caller holds the lock.
func (x *exchange) pay(n int) {
	if n == 0 {
		return
	}
	standing := x.standing()
	x.debts.Pay(n, time.Now(), func(since int64) bool {
		return slices.ContainsFunc(standing, func(r Refusal) bool { return r.Since >= since })
	})
}

// trackRefusals compares the client's refusals with a newly published set. If a refused version returns with the set,
// it is not sent again. The change that brought the version back then counts as refused, and Since of the refusal
// becomes the revision of the set. The caller calls trackRefusals for each published set, before the stream owes the
// set's change.
func (x *exchange) trackRefusals(set *manifest.Set) {
	if !x.nacks.Load() {
		return
	}
	x.locked(func() {
		for i := range x.refusals {
			r := &x.refusals[i]
			is := r.isIn(set)
			if is && r.absent {
				r.Since = set.Revision
			}
			r.absent = !is
		}
	})
}

// isIn reports whether a set contains the refused version.
func (r *Refusal) isIn(set *manifest.Set) bool {
	want := set.Types[r.Type].Get(r.Name)
	return want != nil && want.Version == r.Version
}

// Owing describes a stream whose client has not acknowledged a change.
type Owing struct {
	StreamInfo
	// Since is the time since which the client is behind. It is the time of the first change after the client was up to
	// date, or of a later acknowledgement of a part of the changes. Since is zero if the client connected with older
	// resources and has not been up to date on this stream.
	Since time.Time
	Turn  bool // the client's configuration waits for a turn in the rollout
}

// Owing finds the streams whose clients have not acknowledged a change for which the function matches returns true. It
// also finds the streams whose clients connected with older resources and have not been up to date yet. It considers
// only proxies in namespaces for which the function visible returns true. The result count is the number of found
// streams. The result described contains at most limit of these streams, chosen arbitrarily and sorted by node ID. It
// has fewer elements if streams end meanwhile, and is nil if count is 0.
func (s *Server) Owing(matches func(*ledger.Change) bool, visible func(namespace string) bool, limit int) (described []Owing, count int) {
	owing := map[uint64]Owing{}
	for _, st := range s.all() {
		if !visible(st.proxy.Namespace()) || st.ended() {
			continue
		}
		since, owes := st.debts.Owes(matches)
		resumes := st.client.Holds && st.may.Load() == anyPlan
		if !owes && !resumes {
			continue
		}
		if resumes { // the client has not been up to date on this stream
			since = time.Time{}
		}
		if count++; len(owing) < limit {
			owing[st.id] = Owing{Since: since, Turn: st.proxy.Set().Plan > st.may.Load()}
		}
	}
	if count == 0 {
		return nil, 0
	}
	for _, info := range s.inspect(func(st *stream) bool { _, is := owing[st.id]; return is }) {
		o := owing[info.ID]
		o.StreamInfo = info
		described = append(described, o)
	}
	return described, count
}
