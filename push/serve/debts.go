package serve

import (
	"slices"
	"time"

	"navarch.io/navarch/push/ledger"
)

// pay ends the n oldest debts of a client that is up to date. The caller holds the lock.
func (x *exchange) pay(n int) {
	if n == 0 {
		return
	}
	standing := x.standing()
	x.debts.Pay(n, time.Now(), func(since int64) bool {
		return slices.ContainsFunc(standing, func(r Refusal) bool { return r.Revision >= since })
	})
}

// Owing is a stream whose client has not acknowledged a change.
type Owing struct {
	StreamInfo
	// Since is when the client was last up to date; zero: it connected with older resources, and has not been up to
	// date here.
	Since time.Time
	Turn  bool // its configuration waits for a turn in the rollout
}

// Owing returns the streams of the selected namespaces that owe one of the selected changes, and those that resumed and
// have not been up to date yet: their clients may hold what they had at another replica. It describes `most` streams,
// sorted by node; count is the number of all.
func (s *Server) Owing(of func(*ledger.Change) bool, sees func(namespace string) bool, most int) (described []Owing, count int) {
	owing := map[uint64]Owing{}
	for _, st := range s.all() {
		if !sees(st.proxy.Namespace()) || st.ended() {
			continue
		}
		since, owes := st.debts.Owes(of)
		if !owes {
			since = time.Time{}
		}
		if resumes := st.client.Holds && st.may.Load() == anyPlan; !owes && !resumes {
			continue
		}
		if count++; len(owing) < most {
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
