package serve

import (
	"slices"
	"time"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
)

// withheld describes the versions that must not be sent on a stream at one moment, whether or not its own client has
// refused them. It is computed before the stream's lock is acquired, because the computation calls functions of other
// packages.
type withheld struct {
	versions []quarantine.Key // versions that the quarantine withholds from the stream
	secrets  bool             // Secrets and credentials are withheld, because the caller's credential has expired
	secret   bool             // set by covers when it withholds a Secret or credential
	own      bool             // set by covers when it withholds a version that is withheld from this identity alone
}

// withheldNow returns the versions that must not be sent on the stream now. It returns nil if nothing is withheld,
// which is the usual case.
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

// covers returns a function that reports whether a version is withheld, for delta.State.Withhold. It returns nil if w
// is nil.
func (w *withheld) covers() func(*xds.Resource) bool {
	if w == nil {
		return nil
	}
	return func(r *xds.Resource) bool {
		// A new version of a Secret contains a private key that the client does not have, and a confidential extension
		// contains a credential.
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

// reporter returns the Reporter of this client's reports about a version. If the version is withheld from the client's
// identity alone, the Reporter is the client's credential. If not, it is the client's identity.
func (st *stream) reporter(k quarantine.Key) quarantine.Reporter {
	if k.Identity != "" {
		return quarantine.Reporter(st.credential())
	}
	return quarantine.ReporterOf(st.client.Identity, st.client.ID)
}

// credential returns the client's credential. The result is zero if the credential does not distinguish the client
// from other clients of its identity.
func (st *stream) credential() quarantine.Credential {
	return quarantine.CredentialOf(st.client.Identity, st.client.Caller.Credential())
}

// reportOn returns a report of the client about a version, without an outcome.
func (st *stream) reportOn(k quarantine.Key, now time.Time) quarantine.Report {
	return quarantine.Report{Key: k, Reporter: st.reporter(k), By: st.client.Identity, Credential: st.credential(), Envoy: st.client.Envoy,
		At: now, Namespace: st.proxy.Namespace()}
}

// withholds reports whether the quarantine withholds a version from the stream. The key k must cover the client's
// identity.
func (st *stream) withholds(k quarantine.Key) bool {
	return st.srv.cfg.Quarantine.Withholds(k, st.client.Envoy, st.id)
}

// lacks reports whether a version must still be sent to the client. It must be sent if the newest set contains the
// version, and if the client subscribes to the resource and has not refused the version. A version that the client has,
// or that is in flight, need not be sent.
func (x *exchange) lacks(k quarantine.Key) (is bool) {
	if x.isToHave(k) {
		x.locked(func() { is = !x.closed && x.state.Lacks(k.Type, k.Name, k.Version) })
	}
	return is
}

// addRetry records that this client is sent a withheld version, as a retry. It returns false if the stream has ended.
func (x *exchange) addRetry(k quarantine.Key) (open bool) {
	x.locked(func() { x.retries, open = append(x.retries, k), !x.closed })
	return open
}

// isToHave reports whether the newest set of the stream's view contains a version.
func (x *exchange) isToHave(k quarantine.Key) bool {
	want := x.proxy.Set().Types[k.Type].Get(k.Name)
	return want != nil && want.Version == k.Version
}

// acknowledgedRetries removes and returns the retries that the client has acknowledged. It also removes retries that
// the client refused, and retries of versions that the newest set does not contain. The caller holds the lock.
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

// retry sends withheld versions of resources again. For each version of Envoy with a due retry, one proxy gets the
// resource. retry also sends released versions to some of the streams that lack them. Server.watch calls retry.
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

// retryOne sends a withheld version as a retry. For each version of Envoy with a due retry, it chooses the most
// suitable stream.
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
		if !st.addRetry(k) {
			q.Leave(st.id)
			continue
		}
		st.mark(fanout.Config, time.Now())
	}
}

// A released version is sent to firstResumed streams, then to twice as many, and so on. If the version is refused
// again, few clients have received it.
const (
	firstResumed = 8
	mostResumed  = 1 << 20 // more than the streams of a replica: a call of resume with this number marks all of them
)

// resume marks streams that lack a released version, so that the version is sent on them soon. The first call for a
// version marks at most firstResumed streams, and each further call at most twice as many as the call before. When no
// stream lacks the version, or when the number has reached mostResumed, resume forgets the version.
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
