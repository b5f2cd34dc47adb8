package serve

import (
	"slices"
	"time"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
)

// withheld lists the versions that a stream must not be sent at one moment although it did not refuse them itself. It
// is computed before the stream's lock is acquired, because that calls other packages.
type withheld struct {
	versions []quarantine.Key // of the stream's view
	secrets  bool             // all versions of Secrets that the client does not have, because the caller's credential has ended
	secret   bool             // the last check withheld a Secret or credential
	own      bool             // the last check withheld a version that is withheld from the client's identity alone
}

// withheldNow returns the versions that a stream must not be sent now. It is nearly always nil: nothing is withheld.
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

// covers returns the argument of delta.State.Withhold.
func (w *withheld) covers() func(*xds.Resource) bool {
	if w == nil {
		return nil
	}
	return func(r *xds.Resource) bool {
		// A Secret contains a private key that the client did not have, a confidential extension a credential.
		if w.secrets && (r.Type == xds.Secret || r.Confidential) {
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

// reporter identifies the client for the quarantine of a version: by credential if the version is withheld from its
// identity alone, otherwise by identity.
func (st *stream) reporter(k quarantine.Key) quarantine.Reporter {
	if k.Identity != "" {
		return quarantine.Reporter(st.credential())
	}
	return quarantine.ReporterOf(st.client.Identity, st.client.ID)
}

// credential returns the client's credential; zero if nothing distinguishes it from others of its identity.
func (st *stream) credential() quarantine.Credential {
	return quarantine.CredentialOf(st.client.Identity, st.client.Caller.Credential())
}

// reportOn returns the client's report about a version.
func (st *stream) reportOn(k quarantine.Key, now time.Time) quarantine.Report {
	return quarantine.Report{Key: k, Reporter: st.reporter(k), By: st.client.Identity, Credential: st.credential(), Envoy: st.client.Envoy,
		At: now, Namespace: st.proxy.Namespace()}
}

// withholds reports whether the quarantine withholds a version from the stream, which k covers.
func (st *stream) withholds(k quarantine.Key) bool {
	return st.srv.cfg.Quarantine.Withholds(k, st.client.Envoy, st.id)
}

// lacks reports whether the client's set has a version that it neither holds nor has refused.
func (x *exchange) lacks(k quarantine.Key) (is bool) {
	if x.isToHave(k) {
		x.locked(func() { is = !x.closed && x.state.Lacks(k.Type, k.Name, k.Version) })
	}
	return is
}

// retriesOne permits that only this client is sent a withheld version; false: the stream has ended.
func (x *exchange) retriesOne(k quarantine.Key) (open bool) {
	x.locked(func() { x.retries, open = append(x.retries, k), !x.closed })
	return open
}

// isToHave reports whether the newest set of the stream's view has a version.
func (x *exchange) isToHave(k quarantine.Key) bool {
	want := x.proxy.Set().Types[k.Type].Get(k.Name)
	return want != nil && want.Version == k.Version
}

// acknowledgedRetries removes and returns the retries that the client has acknowledged, and forgets those that it
// refused or that are no longer in its set. The caller holds the lock.
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

// retry sends withheld versions that are due to one proxy each, and released versions to the streams that lack them.
// watch calls it.
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

// byView returns all streams by their present view.
func (s *Server) byView() map[string][]*stream {
	streams := map[string][]*stream{}
	for _, st := range s.all() {
		id := st.proxy.ID()
		streams[id] = append(streams[id], st)
	}
	return streams
}

// retryOne sends a due version to the most suitable stream, one for each version of Envoy.
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

// A released version goes to firstResumed streams first, and then each time to twice as many, so that few receive it if
// it is refused again.
const (
	firstResumed = 8
	mostResumed  = 1 << 20 // more streams than a replica has: all have been woken by then
)

// resume marks streams that lack a released version: firstResumed of them in the first call for a version, twice as
// many in each further call, until no stream lacks it.
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
