package serve

import (
	"slices"
	"time"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
)

// withheld is what a stream must not be sent although it did not refuse it itself, as of one moment. It is found out before the stream's
// lock is taken, because it calls others.
type withheld struct {
	versions []quarantine.Key // of the stream's view
	secrets  bool             // all versions of Secrets that the client does not have: the caller's credential has ended
	secret   bool             // one of these was to be sent
	own      bool             // one of versions that are withheld from the client's identity alone was to be sent
}

// withheldNow is what a stream must not be sent now; nil, as almost always: nothing.
func (st *stream) withheldNow() *withheld {
	var w withheld
	if q := st.srv.cfg.Quarantine; q.Active() {
		w.versions = q.WithheldFrom(st.proxy.ID(), st.client.Identity, st.client.Envoy, st.id)
	}
	if st.secrets.Load() {
		may, _ := st.credentialAllows()
		w.secrets = !may
	}
	if len(w.versions) == 0 && !w.secrets {
		return nil
	}
	return &withheld{versions: w.versions, secrets: w.secrets}
}

// covers is what delta.State.Withhold is given.
func (w *withheld) covers() func(*xds.Resource) bool {
	if w == nil {
		return nil
	}
	return func(r *xds.Resource) bool {
		if w.secrets && (r.Type == xds.Secret || r.Confidential) { // a private key that the client did not have (issue 12, item 3), or a credential
			w.secret = true
			return true
		}
		i := slices.IndexFunc(w.versions, func(k quarantine.Key) bool {
			return k.Type == r.Type && k.Name == r.Name && k.Version == r.Version
		})
		if i < 0 {
			return false
		}
		w.own = w.own || w.versions[i].Identity != ""
		return true
	}
}

// reporter is who the client is to the quarantine, where it is about a version for all, or for those of its identity.
func (st *stream) reporter(k quarantine.Key) quarantine.Reporter {
	if k.Identity != "" {
		return quarantine.Reporter(st.credential())
	}
	return quarantine.ReporterOf(st.client.Identity, st.client.ID)
}

// credential is what the client has shown; zero: nothing that tells it from others of its identity.
func (st *stream) credential() quarantine.Credential {
	return quarantine.CredentialOf(st.client.Identity, st.client.Caller.Credential())
}

// reportOn is a report of the client on a version.
func (st *stream) reportOn(k quarantine.Key, now time.Time) quarantine.Report {
	return quarantine.Report{Key: k, Reporter: st.reporter(k), By: st.client.Identity, Credential: st.credential(), Envoy: st.client.Envoy, At: now, Namespace: st.proxy.Namespace()}
}

// withholds says whether the quarantine withholds a version from the stream, which k covers.
func (st *stream) withholds(k quarantine.Key) bool {
	return st.srv.cfg.Quarantine.Withholds(k, st.client.Envoy, st.id)
}

// lacks says whether the client is to have a version and neither holds it nor has refused it.
func (x *exchange) lacks(k quarantine.Key) (is bool) {
	if x.isToHave(k) {
		x.locked(func() { is = !x.closed && x.state.Lacks(k.Type, k.Name, k.Version) })
	}
	return is
}

// retriesOne is the event that the client is sent a withheld version as the only one; false: the stream has ended.
func (x *exchange) retriesOne(k quarantine.Key) (open bool) {
	x.locked(func() { x.retries, open = append(x.retries, k), !x.closed })
	return open
}

// isToHave says whether the newest set of the stream's view has a version.
func (x *exchange) isToHave(k quarantine.Key) bool {
	want := x.proxy.Set().Types[k.Type].Get(k.Name)
	return want != nil && want.Version == k.Version
}

// acknowledgedRetries removes and returns, with the lock held, the retries that the client has acknowledged, and forgets those that it
// refused or is not to have any more.
func (x *exchange) acknowledgedRetries() (accepted []quarantine.Key) {
	if len(x.retries) == 0 {
		return nil
	}
	x.retries = slices.DeleteFunc(x.retries, func(k quarantine.Key) bool {
		if x.state.Acknowledged(k.Type, k.Name) == k.Version {
			accepted = append(accepted, k)
			return true
		}
		return x.state.Quarantined(k.Type, k.Name) == k.Version || !x.isToHave(k)
	})
	return accepted
}

// retry sends withheld versions that are due to one proxy each, and versions that were released to those who lack them. watch
// calls it.
func (s *Server) retry() {
	q := s.cfg.Quarantine
	q.Tick()
	for _, k := range q.Resumed() {
		s.resuming[k] = 0
	}
	if !q.Active() && len(s.resuming) == 0 {
		return
	}
	streams := s.byView()
	for _, w := range q.Withheld() {
		s.retryOne(w.Key, streams[w.View])
	}
	for k := range s.resuming {
		s.resume(k, streams[k.View])
	}
}

// byView is all streams by the view that they have now.
func (s *Server) byView() map[string][]*stream {
	streams := map[string][]*stream{}
	for _, st := range s.all() {
		id := st.proxy.ID()
		streams[id] = append(streams[id], st)
	}
	return streams
}

// retryOne sends a version, where it is due, to the stream that suits best, one for each version of Envoy.
func (s *Server) retryOne(k quarantine.Key, streams []*stream) {
	q := s.cfg.Quarantine
	due := map[string]bool{} // by version of Envoy
	best := map[string]*stream{}
	rank := map[string]int{}
	for _, st := range streams {
		if !k.Covers(st.client.Identity) {
			continue
		}
		envoy := st.client.Envoy
		is, asked := due[envoy]
		if !asked {
			is = q.Due(k, envoy)
			due[envoy] = is
		}
		if !is || rank[envoy] == quarantine.Best {
			continue
		}
		if suits := q.Suits(k, envoy, st.reporter(k)); suits > rank[envoy] && st.lacks(k) {
			best[envoy], rank[envoy] = st, suits
		}
	}
	for envoy, st := range best {
		if !q.Begin(k, envoy, st.reporter(k), st.id) {
			continue
		}
		if !st.retriesOne(k) {
			q.Leave(st.id)
			continue
		}
		st.mark(fanout.Config, time.Now())
	}
}

// A released version goes to firstResumed streams at once, and then to twice as many each time, so that few are sent it where it
// is refused after all.
const (
	firstResumed = 8
	mostResumed  = 1 << 20 // more streams than a replica has: all have been woken by then
)

func (s *Server) resume(k quarantine.Key, streams []*stream) {
	room := max(firstResumed, 2*s.resuming[k])
	s.resuming[k] = room
	woken := 0
	for _, st := range streams {
		if woken == room {
			break
		}
		if k.Covers(st.client.Identity) && !st.withholds(k) && !st.withholds(k.Of(st.client.Identity)) && st.lacks(k) {
			st.mark(fanout.Config, time.Now())
			woken++
		}
	}
	if woken == 0 || room >= mostResumed {
		delete(s.resuming, k)
	}
}
