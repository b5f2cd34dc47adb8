package serve

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
)

// withholding is a server with a quarantine on the test's clock, and with one view of the clusters good and bad.
type withholding struct {
	t    *testing.T
	p    *fakePlanner
	s    *Server
	q    *quarantine.Quarantine
	addr string
	now  atomic.Int64 // in nanoseconds since the epoch
	id   chan string
}

func newWithholding(t *testing.T, quorum int) *withholding {
	w := &withholding{t: t, p: newPlanner(cluster("good"), cluster("bad")), id: make(chan string, 10)}
	w.now.Store(int64(time.Hour))
	w.q = quarantine.New(quarantine.Config{Settings: quarantine.Settings{Quorum: quorum, Jitter: func() float64 { return 0 }},
		Now: func() time.Time { return time.Unix(0, w.now.Load()) }, Log: slog.New(slog.DiscardHandler)})
	// ResumeTime is also the interval of checking for retries.
	w.s, w.addr = start(t, Config{Planner: w.p, Quarantine: w.q, ResumeTime: 20 * time.Millisecond,
		Authenticate: func(context.Context) (attest.Caller, error) { return callerOf(<-w.id), nil }})
	return w
}

// join returns a proxy that requests clusters, the first response, and its resource names.
func (w *withholding) join(identity, envoy string) (*client, *discoveryv3.DeltaDiscoveryResponse, []string) {
	w.t.Helper()
	w.id <- identity
	c := dial(w.t, w.addr)
	node := &corev3.Node{Id: "test"}
	if envoy != "" {
		node.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: uint32(envoy[0])}}}
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL()})
	r := c.next()
	return c, r, namesOf(r)
}

func namesOf(r *discoveryv3.DeltaDiscoveryResponse) (names []string) {
	for _, res := range r.Resources {
		names = append(names, res.Name)
	}
	slices.Sort(names)
	return names
}

var both, onlyGood, onlyBad = []string{"bad", "good"}, []string{"good"}, []string{"bad"}

// refuse makes proxies join, refuse the bad cluster, and leave.
func (w *withholding) refuse(envoy string, identities ...string) {
	w.t.Helper()
	for _, identity := range identities {
		c, r, names := w.join(identity, envoy)
		if !slices.Equal(names, both) {
			w.t.Fatalf("%s was sent %v", identity, names)
		}
		c.nack(r, "Error adding/updating cluster(s) bad: why")
		if rest := c.next(); !slices.Equal(namesOf(rest), onlyGood) {
			w.t.Fatalf("the rest: %v", rest)
		}
		if err := c.CloseSend(); err != nil {
			w.t.Fatal(err)
		}
		c.end()
	}
}

// joinsWithout makes a proxy join, from which the bad cluster must be withheld, and acknowledge the rest.
func (w *withholding) joinsWithout(identity, envoy string) *client {
	w.t.Helper()
	c, r, names := w.join(identity, envoy)
	if !slices.Equal(names, onlyGood) {
		w.t.Fatalf("%s was sent %v", identity, names)
	}
	c.ack(r)
	return c
}

// joinsWith makes a proxy join and acknowledge all.
func (w *withholding) joinsWith(identity string) *client {
	w.t.Helper()
	c, r, _ := w.join(identity, "")
	c.ack(r)
	return c
}

func (w *withholding) key() quarantine.Key {
	bad := cluster("bad")
	return quarantine.Key{View: "view", Type: bad.Type, Name: bad.Name, Version: bad.Version}
}

// A version that several identities refused is withheld from others; repeated refusals of one identity withhold
// nothing.
func TestQuarantine(t *testing.T) {
	w := newWithholding(t, 2)
	w.refuse("", "spiffe://one", "spiffe://one", "spiffe://two")
	last := w.joinsWithout("spiffe://three", "")
	w.p.put(cluster("bad", func(c *clusterv3.Cluster) { c.AltStatName = "fixed" }))
	if r := last.next(); len(r.Resources) != 1 || r.Resources[0].Name != "bad" {
		t.Errorf("the fixed version: %v", r)
	}
}

// A version that was refused by proxies that have left is listed, and after the pause is sent to one of two new
// proxies; when this one has acknowledged it, the other receives it too.
func TestWithheldIsRetried(t *testing.T) {
	w := newWithholding(t, 3)
	w.refuse("", "spiffe://one", "spiffe://two", "spiffe://three")
	if all := w.s.Withheld(); len(all) != 1 || all[0].Name != "bad" || all[0].RefusedBy != 3 || all[0].Text == "" {
		t.Fatalf("where no proxy of the view is left: %+v", all)
	}
	clients := []*client{w.joinsWithout("spiffe://four", ""), w.joinsWithout("spiffe://five", "")}
	for _, i := range w.s.Inspect() {
		if len(i.Withheld) != 1 || i.Withheld[0].Name != "bad" || i.Withheld[0].Good != "" || i.Withheld[0].RefusedBy != 3 {
			t.Errorf("of a newcomer it says %+v", i.Withheld)
		}
	}
	eventually(t, "nothing else gives them a turn", func() bool {
		return !slices.ContainsFunc(w.s.all(), func(st *stream) bool {
			st.mu.Lock()
			defer st.mu.Unlock()
			return !st.resumeOver
		})
	})
	w.now.Add(int64(quarantine.DefaultPause))
	type sent struct {
		c *client
		r *discoveryv3.DeltaDiscoveryResponse
	}
	got := make(chan sent, len(clients))
	for _, c := range clients {
		go func() {
			if r, err := c.Recv(); err == nil {
				got <- sent{c, r}
			}
		}()
	}
	first := <-got
	if !slices.Equal(namesOf(first.r), onlyBad) {
		t.Fatalf("the retry: %v", first.r)
	}
	if w.q.Due(w.key(), "") || len(got) > 0 {
		t.Fatal("both are sent it at once")
	}
	first.c.ack(first.r)
	if second := <-got; second.c == first.c || !slices.Equal(namesOf(second.r), onlyBad) {
		t.Errorf("after the release: %v", second.r)
	}
	if all := w.s.Withheld(); len(all) > 0 {
		t.Errorf("still withheld: %+v", all)
	}
	if _, _, names := w.join("spiffe://six", ""); !slices.Equal(names, both) {
		t.Errorf("who joins later is sent %v", names)
	}
}

// A refused retry leaves the version withheld and the proxy's other resources unchanged. A retry whose stream ends
// delays the next one.
func TestRetryThatFails(t *testing.T) {
	w := newWithholding(t, 2)
	w.refuse("", "spiffe://one", "spiffe://two")
	c := w.joinsWithout("spiffe://three", "")
	w.now.Add(int64(quarantine.DefaultPause))
	c.nack(c.next(), "Error adding/updating cluster(s) bad: why not")
	due := func(by int, pause time.Duration) {
		t.Helper()
		eventually(t, "the next retry is put off", func() bool {
			all := w.q.Withheld()
			return len(all) == 1 && all[0].RefusedBy == by && all[0].Next.Equal(time.Unix(0, w.now.Load()).Add(pause))
		})
	}
	due(3, 2*quarantine.DefaultPause)
	// The stream records the refusal after the quarantine does.
	eventually(t, "the stream says what its proxy refused, and holds", func() bool {
		i := w.s.Inspect()
		if len(i) != 1 || len(i[0].Refusals) != 1 {
			return false
		}
		held, _ := w.s.Dump(i[0].ID)
		return len(held[xds.Cluster]) == 1
	})
	gone := w.joinsWithout("spiffe://four", "")
	w.now.Add(int64(2 * quarantine.DefaultPause))
	gone.next()
	if err := gone.CloseSend(); err != nil {
		t.Fatal(err)
	}
	gone.end()
	due(3, 4*quarantine.DefaultPause)
}

// A version that proxies of one version of Envoy refused is sent to one proxy of another version of Envoy at once, and
// to all of these after its acknowledgement.
func TestRetryByAnotherEnvoy(t *testing.T) {
	w := newWithholding(t, 2)
	w.refuse("A", "spiffe://one", "spiffe://two")
	w.joinsWithout("spiffe://three", "A")
	other, r, names := w.join("spiffe://three", "B")
	if other.ack(r); slices.Equal(names, onlyGood) { // the retry runs concurrently, often after the first response
		r = other.next()
		names = append(namesOf(r), "good")
		other.ack(r)
	}
	if !slices.Equal(names, both) {
		t.Fatalf("sent %v", names)
	}
	eventually(t, "the version is released for the other Envoy", func() bool { return !w.q.Withholds(w.key(), "1.66.0", 99) })
	if _, _, names := w.join("spiffe://four", "B"); !slices.Equal(names, both) {
		t.Errorf("another of that Envoy is sent %v", names)
	}
	if all := w.s.Withheld(); len(all) != 1 || !slices.Equal(all[0].Envoys, []string{"1.65.0"}) {
		t.Errorf("withheld: %+v", all)
	}
	w.joinsWithout("spiffe://five", "A")
}

// A stream uses its current view: an EnvoyFilter changes the view of connected proxies.
func TestViewThatChanges(t *testing.T) {
	w := newWithholding(t, 2)
	c := w.joinsWith("spiffe://one")
	filtered := "view with a filter"
	w.p.id.Store(&filtered)
	worse := stat("worse", "")
	key := quarantine.Key{View: filtered, Type: worse.Type, Name: worse.Name, Version: worse.Version}
	for _, who := range []string{"spiffe://two", "spiffe://three"} {
		w.q.Report(0, quarantine.Report{Key: key, Reporter: quarantine.ReporterOf(who, "")})
	}
	w.p.put(worse, cluster("next"))
	if r := c.next(); !slices.Equal(namesOf(r), []string{"next"}) {
		t.Errorf("sent %v", namesOf(r))
	}
}
