package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// randomRun applies random edits to a planner by both paths, and compares it with plans from scratch.
type randomRun struct {
	mesh    *mesh
	planner *Planner
	handles []*Handle
	// other is the pool of the plans from scratch at every other comparison: the built resources must be equal, too.
	other   *pool.Pool
	snap    *mirror.Snapshot
	pending Pending
	last    string
	guests  []*Handle
	// apps are applications with gRPC's own xDS client, and proxies with a ProxyConfig. They are in a list of their own,
	// so that the random choices among handles do not depend on them.
	apps []*Handle
}

func newRandomRun(t testing.TB, seed uint64, table *[model.NumKinds][]effect) *randomRun {
	d := &randomRun{mesh: newMesh(t, seed), planner: New(Settings{}), other: &pool.Pool{}, snap: mirror.Empty()}
	d.planner.table = table
	for _, n := range nodes()[:4] {
		d.handles = append(d.handles, d.planner.Join(n))
	}
	if d.mesh.pulls != nil {
		for _, n := range fetchers() {
			d.apps = append(d.apps, d.planner.Join(n))
		}
	}
	return d
}

// step makes some edits. The paths are emptied in every second step.
func (d *randomRun) step(i int) {
	d.last = ""
	if i == 3 { // a proxy joins when no change is waiting (Loop.Join)
		for _, n := range nodes()[4:] {
			d.handles = append(d.handles, d.planner.Join(n))
		}
		if len(d.apps) > 0 {
			for _, n := range slices.Concat(apps()[1:], configured(d.mesh.t)[1:], bootstrapped(), zoned()) {
				d.apps = append(d.apps, d.planner.Join(n))
			}
		}
	}
	d.edit()
	if h := d.handles[d.mesh.r.IntN(len(d.handles))]; d.mesh.one(2) {
		d.planner.SubscribeSecrets(h, []string{d.mesh.pick(wanted...), d.mesh.pick(wanted...)}, []string{d.mesh.pick(wanted...)})
	}
	if i%4 == 1 { // not random, so that the random edits do not depend on it
		d.planner.AskNames(d.handles[i%len(d.handles)])
	}
}

// withApps lets applications and proxies with a ProxyConfig join, the first of each now and the others in step 3, and
// proxies with automatic addresses.
func (d *randomRun) withApps() *randomRun {
	d.mesh.auto = true
	for _, n := range resolvers() {
		d.handles = append(d.handles, d.planner.Join(n))
	}
	d.apps = append(d.apps, d.planner.Join(apps()[0]), d.planner.Join(configured(d.mesh.t)[0]))
	return d
}

// edit makes one or two edits, and the fast path plans its part of them.
func (d *randomRun) edit() {
	var puts []model.Record
	var dels []model.Key
	take := func(put model.Record, del model.Key) {
		if put != nil {
			puts = append(puts, put)
			d.last += fmt.Sprintf("put %v %v\n", put.Meta().Key, put.Body())
		} else {
			dels = append(dels, del)
			d.last += fmt.Sprintf("delete %v\n", del)
		}
	}
	for range 1 + d.mesh.r.IntN(2) {
		take(d.mesh.edit())
	}
	if d.mesh.more.IntN(3) == 0 {
		take(d.mesh.rights())
	}
	if d.mesh.more.IntN(3) == 0 {
		take(d.mesh.elsewhere())
	}
	if d.mesh.lives.IntN(4) == 0 {
		take(d.mesh.workload())
	}
	for _, also := range []struct {
		source *rand.Rand
		in     int
		make   func() (model.Record, model.Key)
	}{
		{d.mesh.nets, 4, d.mesh.gateways}, {d.mesh.tokens, 3, d.mesh.token}, {d.mesh.telemetries, 3, d.mesh.telemetry},
		{d.mesh.exts, 4, d.mesh.extensions}, {d.mesh.entrances, 2, d.mesh.entrance}, {d.mesh.pulls, 4, d.mesh.credentials},
		{d.mesh.join, 3, d.mesh.joined}, {d.mesh.local, 2, d.mesh.leading},
	} {
		if also.source != nil && also.source.IntN(also.in) == 0 {
			take(also.make())
		}
	}
	if len(d.apps) > 0 && d.mesh.clock%3 == 0 {
		take(d.mesh.bootstrap())
	}
	c := d.snap.Apply(d.snap.Revision()+1, puts, dels)
	d.snap = c.New
	_, rest := d.planner.PlanEndpoints(c, d.pending.Len() > 0)
	d.pending.Add(rest)
}

// drain plans all waiting edits; in half of the cases in the background, with more edits between two steps.
func (d *randomRun) drain() {
	for more := d.mesh.one(2); d.pending.Len() > 0; more = false {
		d.planner.Begin(mirror.Change{New: d.snap, Edits: d.pending.Take()})
		var left int
		if d.planner.replan.heavy = more || d.wide(); d.planner.replan.heavy {
			left = d.during()
		}
		d.planner.End()
		for range left {
			d.edit()
		}
		if d.pending.Len() == 0 {
			d.planner.PlanEndpoints(mirror.Change{New: d.snap}, false)
		}
	}
	d.visit()
	d.authorise()
	d.open()
}

// authorise gives the planner the answers for the identities that it wants, from the bindings of the snapshot, and for
// no others.
func (d *randomRun) authorise() {
	asked := d.planner.secrets.Doubted()
	for who, id := range d.planner.identities {
		if id.Undecided() {
			asked = append(asked, who)
		}
	}
	for _, who := range asked {
		d.planner.Authorised(who, d.right(who))
	}
}

func (d *randomRun) right(who view.Identity) access.Standing {
	answer := access.Granted(d.snap, who)
	return access.Standing{Known: true, Allowed: answer.Allowed, Why: answer.Why}
}

// during plans the scopes step by step, some steps in each turn, with edits in between. It checks that the sets of
// proxies do not change meanwhile, except for their endpoints. The number of edits and the edits do not depend on the
// steps, so that recorded histories (strikes) stay valid when steps change: it returns the number of edits that it
// could not make.
func (d *randomRun) during() (left int) {
	left = d.mesh.r.IntN(3)
	revision, before := d.planner.Revision(), map[*Handle]*manifest.Set{}
	for _, h := range slices.Concat(d.handles, d.apps) {
		before[h] = h.Set()
	}
	d.last += "in the background\n"
	over := func() bool { return d.mesh.turns.IntN(4) == 0 }
	for more := true; more; more = d.planner.Step(over) {
		if left > 0 && d.mesh.turns.IntN(2) == 0 {
			d.edit()
			left--
		}
		for h, set := range before {
			for t := range xds.NumTypes {
				if now := h.Set(); t != xds.Endpoint && now.Types[t] != set.Types[t] || now.Revision > revision {
					panic(fmt.Sprintf("%ss of %s, or the revision, changed before all was planned\n%s", t.Noun(), h.Node.Name, d.last))
				}
			}
		}
	}
	return left
}

// open opens the Secrets that the planner wants opened; Secrets that no proxy requests are never opened.
func (d *randomRun) open() {
	for _, r := range d.planner.secrets.Sealed() {
		key := "the key of " + string(r.Spec.Mac)
		if len(r.Spec.Registries) > 0 {
			key = fmt.Sprintf(`{"auths": {"index.docker.io": {"auth": %q}}}`, key)
		} else if !d.planner.secrets.Subscribed(r.Key.Namespace) {
			panic("nobody subscribes to " + r.Key.String())
		}
		d.planner.Opened(r, model.PrivateKey(key))
	}
}

// visit lets proxies join and leave, so that scopes are cloned from others during a history, and clones end.
func (d *randomRun) visit() {
	if d.mesh.one(2) {
		n := node(d.mesh.pick("a", "b", "c", "istio-system"), "guest", d.mesh.pick("app=s0", "app=s9"))
		if !d.mesh.one(3) {
			n.Caps |= xds.CapIdentity
		}
		h := d.planner.Join(n)
		d.handles, d.guests = append(d.handles, h), append(d.guests, h)
	}
	if len(d.guests) > 0 && (len(d.guests) > 3 || d.mesh.one(4)) {
		leaves := d.mesh.r.IntN(len(d.guests))
		gone := d.guests[leaves]
		d.planner.Leave(gone)
		d.guests = slices.Delete(d.guests, leaves, leaves+1)
		d.handles = slices.DeleteFunc(d.handles, func(h *Handle) bool { return h == gone })
	}
}

// differs returns the differences between the planner and plans from scratch; empty if both are equal.
func (d *randomRun) differs(i int) string {
	hosts := hostIndex{}
	for _, s := range d.planner.scopes {
		s.hosts.Names(func(h string) { hosts.set(h, s, true) })
	}
	if diff := cmp.Diff(hosts, d.planner.index, cmp.Comparer(func(a, b *scope) bool { return a == b })); diff != "" {
		return "the scopes that have a host, (- indeed, + by the index)" + diff
	}
	if have, counted := overlays(d.planner), d.planner.Stats().Overlays; counted != have {
		return fmt.Sprintf("%d views have an overlay, %d are counted", have, counted)
	}
	from := d.planner.input.Pool
	if i%2 == 0 {
		from = d.other
	}
	w := input.New(d.snap, from, "")
	for _, h := range slices.Concat(d.handles, d.apps) {
		subscribed := d.planner.secrets.Copy(h.View().Secrets)
		subscribed.Right = d.right(subscribed.Who)
		v := viewFrom(w, *h.Node)
		if v.Secrets != h.View().Secrets {
			return fmt.Sprintf("%s/%s: has Secrets of %+v, and is %+v", h.Node.Namespace, h.Node.Name, h.View().Secrets, v.Secrets)
		}
		have := h.Set()
		want := fresh(w, v, subscribed, h.names || have.Names != nil) // another proxy of the view may request names
		for _, name := range wanted {
			if want.Types[xds.Secret].Pending(name) {
				return fmt.Sprintf("%s/%s: secret %s is not opened, and nobody is told to open it", h.Node.Namespace, h.Node.Name, name)
			}
		}
		for _, e := range v.Workload.Extensions.All() {
			if want.Types[xds.Extension].Pending(extension.Name(e.Key)) {
				return fmt.Sprintf("%s/%s: the credential of %v is not opened, and nobody is told to open it", h.Node.Namespace, h.Node.Name, e.Key)
			}
		}
		if a, b := have.Names.Get(""), want.Names.Get(""); a != b && (a == nil || b == nil || a.Version != b.Version) {
			return fmt.Sprintf("%s/%s: name table (- incremental, + from scratch)\n%s", h.Node.Namespace, h.Node.Name, cmp.Diff(namesIn(a), namesIn(b)))
		}
		if a, b := have.Bootstrap, want.Bootstrap; a != b && (a == nil || b == nil || a.Version != b.Version) {
			return fmt.Sprintf("%s/%s: bootstrap: incremental %v, from scratch %v", h.Node.Namespace, h.Node.Name, a, b)
		}
		for t := range xds.NumTypes {
			for _, delta := range manifest.Diff(have.Types[t], want.Types[t]) {
				if from == d.other && delta.Old != nil && delta.New != nil && string(delta.Old.Body()) == string(delta.New.Body()) {
					continue
				}
				return fmt.Sprintf("%s/%s: %s %s %s", h.Node.Namespace, h.Node.Name, t.Noun(), delta.Name, show(delta.Old, delta.New))
			}
		}
	}
	return ""
}

// matchesFreshIn runs this many random histories of this many steps, and compares at each step that `every` divides.
func matchesFreshIn(t *testing.T, seeds, steps, every int) {
	const runs = 4
	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			for seed := run; seed < seeds; seed += runs {
				matchesFresh(t, uint64(seed), steps, every)
			}
		})
	}
}

// matchesFresh compares a planner in the middle of a random history with one that starts from the same state, at each
// step that `every` divides.
func matchesFresh(t *testing.T, seed uint64, steps, every int) {
	t.Helper()
	d := newRandomRun(t, seed, &affects).withApps()
	for i := range steps {
		d.step(i)
		if i%3 == 2 {
			continue // the configuration path waits for more edits
		}
		d.drain()
		if i%every != 0 {
			continue
		}
		if diff := d.differs(i); diff != "" {
			t.Fatalf("seed %d step %d: %s\nafter\n%s", seed, i, diff, d.last)
		}
		for _, h := range d.handles {
			wellFormed(t, h.Set())
		}
		for _, h := range d.apps {
			if wellFormed(t, h.Set()); h.Node.Kind == view.Proxyless {
				takenByGRPC(t, h.Set())
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d step %d after\n%s", seed, i, d.last)
		}
	}
}

// wellFormed checks for errors that Envoy would refuse or wait for: each referenced resource is in the set, and the
// domains of a route configuration are unique.
func wellFormed(t *testing.T, set *manifest.Set) {
	t.Helper()
	for _, kind := range []xds.Type{xds.Cluster, xds.Listener} {
		for r := range set.Types[kind].All() {
			for _, ref := range r.Needs {
				if set.Types[ref.Type].Get(ref.Name) == nil {
					t.Errorf("%s %s needs %s %s, which is not there", kind.Noun(), r.Name, ref.Type.Noun(), ref.Name)
				}
			}
		}
	}
	for r := range set.Types[xds.Route].All() {
		seen := map[string]string{}
		for _, vh := range routesOfSet(t, set, r.Name).VirtualHosts {
			for _, d := range vh.Domains {
				if seen[d] != "" {
					t.Errorf("route %s: %s and %s have the domain %s", r.Name, seen[d], vh.Name, d)
				}
				seen[d] = vh.Name
			}
		}
	}
}

func show(a, b *xds.Resource) string {
	if a == nil || b == nil {
		return fmt.Sprintf("incremental %v, from scratch %v", a != nil, b != nil)
	}
	read := func(r *xds.Resource) proto.Message {
		m := [...]proto.Message{&clusterv3.Cluster{}, &endpointv3.ClusterLoadAssignment{}, &listenerv3.Listener{}, &routev3.RouteConfiguration{}, &tlsv3.Secret{}, &corev3.TypedExtensionConfig{}}[r.Type]
		if err := proto.Unmarshal(r.Body(), m); err != nil {
			panic(err)
		}
		return m
	}
	return "(- incremental, + from scratch)\n" + cmp.Diff(read(a), read(b), protocmp.Transform())
}

// digest returns all that a scope has planned, published or not, as text.
func digest(s *scope) string {
	var out []string
	line := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	s.hosts.Describe(line)
	s.front.Describe(line)
	for t := range xds.NumTypes {
		for r := range s.layer.Manifest(t).All() {
			line("resource %v %s %s", t, r.Name, r.Version)
		}
	}
	for _, p := range input.Sorted(input.Problems{"": s.problems}, s.hosts.Problems(), s.front.Problems()) {
		line("problem %v", p)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
