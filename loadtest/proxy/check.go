package proxy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/push/xds"
)

// response is the state of a response that has not arrived completely.
type response struct {
	resources, added int
	of               xds.Type // type of the resources; unset without resources
	listed           bitset   // state of the world: the names in the response
	removed          []string
	unnamed          bitset   // removed clusters, which no listener or route may name
	wanted           []uint32 // endpoints of clusters that are new or changed
	dropped          bitset   // endpoints that a cluster no longer wants
	needs            bool     // routes or secrets that are named have changed
	reported         bool     // one violation a response is enough of some kinds
	probes           []*Probe
	refused          []string
	applied          map[uint32]*version // previous versions, by name index, while a resource may be refused; nil: no version
	seen             map[Ref]bool        // sampled proxies: names in this response
	agentTypes       []aResource
}

// aResource is a resource of an agent type.
type aResource struct {
	name string
	body []byte
}

// onResource processes one resource of a response.
func (c *session) onResource(r resource) error {
	s, m := c.sim, &c.msg
	t := xds.ParseURL(r.url)
	if t == xds.Unknown {
		m.agentTypes = append(m.agentTypes, aResource{strings.Clone(r.name), append([]byte(nil), r.body...)})
		return nil
	}
	m.resources, m.of = m.resources+1, t
	n := s.fleet.names
	rec := n.name(t, r.name)
	text := r.version
	if text == "" {
		text = unnamed + strconv.FormatUint(sum(r.body), 16)
	}
	v, first := n.acquire(rec, text, func() *facts { return s.fleet.read(t, rec.name, r.body) })
	if s.sotw {
		m.listed.add(rec.index)
	}
	if s.sampled {
		s.sample(m, t, rec, v, r)
	}
	if s.refuses(t, rec.name) {
		m.refused = append(m.refused, rec.name)
		s.dependencies[t].expect(rec.index)
		v.release()
		return nil
	}
	if !s.accepts(m, t, rec) {
		v.release()
		return nil
	}
	s.apply(m, rec, v, first, r.body)
	return nil
}

// read computes the facts of a body on the decoder's goroutines, which have deep stacks.
func (f *Fleet) read(t xds.Type, name string, body []byte) *facts {
	if t == xds.Route || t == xds.Endpoint || t == xds.Secret {
		return f.names.read(t, name, body)
	}
	var made *facts
	f.decoder.do(func() { made = f.names.read(t, name, body) })
	return made
}

func (s *sim) refuses(t xds.Type, name string) bool {
	for _, r := range s.shape.Refuse {
		if r.Type == t && r.Name == name {
			return true
		}
	}
	return false
}

// accepts reports whether the proxy accepts a resource of this name; Envoy ignores resources that it did not request.
func (s *sim) accepts(m *response, t xds.Type, rec *record) bool {
	if !s.asked[t] && !m.reported {
		m.reported = true
		s.violation(Unrequested, rec, "the type was not asked for on this stream")
	}
	if t.Wildcard() || s.subs[t].has(rec.index) {
		return true
	}
	switch {
	case s.gone[t].has(rec.index): // the proxy unsubscribed a moment ago
		s.dependencies[t].answer(rec.index)
	case t == xds.Endpoint:
		s.violation(EndpointBeforeCluster, rec, "no cluster that the proxy has wants these endpoints")
	default:
		s.violation(Unrequested, rec, "the name was not asked for")
	}
	return false
}

// apply stores a version and checks the change to it. `first` means that no other proxy holds the version.
func (s *sim) apply(m *response, rec *record, v *version, first bool, body []byte) {
	t, index := rec.t, rec.index
	held := &s.held[t]
	id := held.get(index)
	var old *version
	if id != 0 {
		old = s.fleet.names.version(id)
	}
	due := s.dependencies[t].answer(index)
	s.waiting[t].drop(index)
	for _, p := range rec.watching() {
		if p.see(s.index, v.id, body) {
			m.probes = append(m.probes, p)
		}
	}
	s.references(rec, v)
	if old == v {
		v.release() // it was acquired twice
		if !due && !s.sotw {
			s.violation(Duplicate, rec, fmt.Sprintf("version %.40q, which the proxy has", v.text))
		}
		delete(s.prior[t], index)
		return
	}
	if old != nil {
		s.step(rec, old, v, first)
		old.release()
	} else {
		m.added++
	}
	held.put(index, v.id)
	if notify := s.fleet.cfg.OnVersion; notify != nil {
		notify(s.id, Ref{t, rec.name}, v.text)
	}
	if len(s.shape.Refuse) > 0 {
		if m.applied == nil {
			m.applied = map[uint32]*version{}
		}
		m.applied[index] = old
	} else {
		delete(s.prior[t], index)
	}
	m.note(t, old, v)
}

// note records which other resources a change requires.
func (m *response) note(t xds.Type, old, v *version) {
	was := &facts{}
	if old != nil {
		was = old.facts
	}
	if t == xds.Cluster {
		if v.facts.eds != 0 && (old == nil || was.sum != v.facts.sum) { // identical contents change nothing (1.7)
			m.wanted = append(m.wanted, v.facts.eds-1)
		}
		if was.eds != 0 && was.eds != v.facts.eds {
			m.dropped.add(was.eds - 1)
		}
	}
	if len(was.routes)+len(was.secrets)+len(v.facts.routes)+len(v.facts.secrets) > 0 {
		m.needs = true
	}
}

// references checks that the proxy has every cluster that a listener or route names (make before break).
func (s *sim) references(rec *record, v *version) {
	if v.facts.bad != "" {
		s.violation(InvalidContent, rec, v.facts.bad)
	}
	missing, example := 0, uint32(0)
	for _, c := range v.facts.clusters {
		if s.held[xds.Cluster].get(c) == 0 && !s.fleet.elsewhere(c) {
			missing, example = missing+1, c
		}
	}
	if missing > 0 {
		s.violation(MissingReference, rec, fmt.Sprintf("it names %d clusters that the proxy does not have, for example %s", missing,
			s.fleet.names.at(xds.Cluster, example).name))
	}
}

// elsewhere reports whether a cluster need not be sent: it is in the bootstrap, or deliberately does not exist.
func (f *Fleet) elsewhere(index uint32) bool {
	return f.bootstrap.has(index) || f.cfg.Dangling != nil && f.cfg.Dangling(f.names.at(xds.Cluster, index).name)
}

// remove processes one name of removed_resources.
func (s *sim) remove(t xds.Type, name string, m *response) {
	rec := s.fleet.names.name(t, name)
	index := rec.index
	id := s.held[t].get(index)
	due := s.dependencies[t].answer(index)
	waited := s.waiting[t].drop(index)
	for _, p := range rec.watching() {
		if p.see(s.index, 0, nil) {
			m.probes = append(m.probes, p)
		}
	}
	if id == 0 {
		switch {
		case waited && t == xds.Route: // 1.8: a waiting listener then waits for ever
			s.violation(Unanswered, rec, "the answer was a removal: Envoy waits for ever")
		case !due && !s.gone[t].has(index):
			s.violation(UnknownRemoval, rec, "the proxy does not have it")
		}
		return
	}
	v := s.fleet.names.version(id)
	if t == xds.Cluster {
		m.unnamed.add(index)
		if v.facts.eds != 0 {
			m.dropped.add(v.facts.eds - 1)
		}
	}
	if len(v.facts.routes)+len(v.facts.secrets) > 0 {
		m.needs = true
	}
	if len(s.shape.Refuse) > 0 && m.applied == nil {
		m.applied = map[uint32]*version{}
	}
	s.lose(t, index)
	s.gone[t].add(index)
}

// checkUnused reports the listeners and routes that name one of the removed clusters. Each held resource is read once,
// however many clusters a response removes.
func (s *sim) checkUnused(removed bitset) {
	if removed.empty() {
		return
	}
	for _, t := range []xds.Type{xds.Listener, xds.Route} {
		for index, id := range s.held[t].all() {
			for _, c := range s.fleet.names.version(id).facts.clusters {
				if removed.drop(c) && !s.fleet.elsewhere(c) {
					s.violation(RemovedInUse, s.fleet.names.at(xds.Cluster, c), fmt.Sprintf("%v %s still names it", t, s.fleet.names.at(t, index).name))
				}
			}
		}
	}
}

// checkResponse checks properties of a response as a whole.
func (s *sim) checkResponse(t xds.Type, system string) {
	revision, err := strconv.ParseUint(system, 10, 64)
	if err != nil {
		return // another server's form of version, which has no order
	}
	if revision < s.revision[t] {
		s.violationOf(RevisionBack, t, "", fmt.Sprintf("system_version_info %d after %d", revision, s.revision[t]))
		return
	}
	s.revision[t] = revision
}

// onRemoved stores one name of removed_resources until the end of the response, where the type is known.
func (c *session) onRemoved(name string) error {
	c.msg.removed = append(c.msg.removed, strings.Clone(name))
	return nil
}

// sample validates the contents of a resource, for sampled proxies.
func (s *sim) sample(m *response, t xds.Type, rec *record, v *version, r resource) {
	key := Ref{t, rec.name}
	if m.seen[key] {
		s.violation(DuplicateInResponse, rec, "twice in one response")
	}
	if m.seen == nil {
		m.seen = map[Ref]bool{}
	}
	m.seen[key] = true
	if v.facts.sum != sum(r.body) {
		s.violation(VersionReused, rec, fmt.Sprintf("version %.40q was seen with other contents", v.text))
	} else if v.facts.valid.Load() {
		return // these bytes were validated before
	}
	var problem string
	s.fleet.decoder.do(func() { problem = validate(t, rec.name, r.body) })
	if problem != "" {
		s.violation(InvalidContent, rec, problem)
		return
	}
	v.facts.valid.Store(true)
}

// step checks the order of versions. A change from a newer version to one that the whole fleet had left is suspicious.
// If most of the fleet follows within the window, the contents were reverted; otherwise the proxy was sent an old
// version. Versions are hashes without an order, so this is the best check from outside. RevisionBack is exact for
// servers that send a revision.
func (s *sim) step(rec *record, old, v *version, first bool) {
	if !first || v.serial.Load() > old.serial.Load() {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if v.serial.Load() > old.serial.Load() {
		return
	}
	rec.serial++
	v.serial.Store(rec.serial)
	holders := old.holders.Load() - 1 // without this proxy
	if holders == 0 {
		return // no other proxy holds the newer version
	}
	s.fleet.suspects.add(suspect{proxy: s.id.String(), rec: rec, old: old, now: v, holders: holders, at: time.Now()})
}

// suspect is a step back that may be a revert.
type suspect struct {
	proxy    string
	rec      *record
	old, now *version
	holders  int32
	at       time.Time
}

// suspects are the steps back whose window is open.
type suspects struct {
	mu  sync.Mutex
	all []suspect
}

// add opens a window. An open window for the same version is closed without a result. Alternating contents, such as an
// endpoint that comes and goes, change again before the window ends, and the count of proxies with the other version
// starts again.
func (q *suspects) add(x suspect) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = slices.DeleteFunc(q.all, func(y suspect) bool { return y.old == x.old })
	x.old.low.Store(x.holders)
	q.all = append(q.all, x)
}

// judge evaluates the windows that have ended. The change was a revert if at least half of the holders of the newer
// version left it; otherwise it is a violation.
func (q *suspects) judge(f *Fleet, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.all) > 0 && now.Sub(q.all[0].at) >= f.cfg.RevertWindow {
		x := q.all[0]
		q.all = q.all[1:]
		if 2*x.old.low.Load() > x.holders {
			f.count.violation(VersionBack, Example{Proxy: x.proxy, Type: x.rec.t.String(), Name: x.rec.name,
				Detail: fmt.Sprintf("from %.40q to the older %.40q, while %d others keep the newer", x.old.text, x.now.text, x.old.low.Load())})
		}
	}
}
