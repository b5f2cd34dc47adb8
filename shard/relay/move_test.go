package relay

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"google.golang.org/grpc/metadata"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/store/loopback"
)

// The minimum revision goes up with each new stream: the highest revision of the store, and the store.
func TestMinRevisionGoesUp(t *testing.T) {
	m := newMesh()
	m.set(t, typeCDS, "c", "c1", text("cluster"))
	a, b := m.replica(t), m.replica(t)
	r := runRelay(t, Config{Target: a.addr, Follow: true}, quick)
	c := newDeltaClient(t, r)
	c.accept()
	if md, _ := a.stream(0); len(md.Get("navarch-revision")) != 0 || len(md.Get("navarch-store")) != 0 {
		t.Errorf("the first stream said %v", md)
	}
	m.change(func() { m.revision = 40 })
	m.setOwner(b.addr)
	eventually(t, r, "moved", func(s Stats) bool { return s.Moves == 1 })
	if md, _ := b.stream(0); len(md.Get("navarch-revision")) != 1 || md.Get("navarch-revision")[0] != "42" || md.Get("navarch-store")[0] != "s1" {
		t.Errorf("the second stream said %v", md)
	}
	if s := r.Stats(); s.Revision != 42 || s.Store != "s1" {
		t.Errorf("stats: %+v", s)
	}
}

func TestMinRevision(t *testing.T) {
	var f minRevision
	for i, step := range []struct {
		store, revision string
		want            int64
	}{
		{"", "5", 5}, {"a", "", 5}, {"a", "7", 7}, {"a", "6", 7}, {"", "8", 8}, {"", "2026-11-21/4", 8}, {"b", "", 0}, {"b", "3", 3}, {"a", "9", 9}, {"a", "-1", 9},
	} {
		f.observe(step.store, step.revision)
		if got := f.get().Revision; got != step.want {
			t.Errorf("step %d: minimum revision %d, want %d", i, got, step.want)
		}
	}
}

// The place that the last replica stated is kept over responses without one, and lowered with the revision.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestMinRevisionHasThePlace(t *testing.T) {
	var f minRevision
	for i, step := range []struct{ store, version, want string }{
		{"a", "", ""}, {"a", "7 ab.1.2", "ab.1.2"}, {"a", "8", "ab.1.2"}, {"b", "", "ab.1.2"}, {"b", "2 ab.1.3", "ab.1.3"}, {"b", "other/1 x", "ab.1.3"},
	} {
		f.observe(step.store, step.version)
		if got := f.get().Place; got != step.want {
			t.Errorf("step %d: place %q, want %q", i, got, step.want)
		}
	}
	md := metadata.MD{}
	f.get().Encode(md)
	if got := md.Get("navarch-place"); len(got) != 1 || got[0] != "ab.1.3" {
		t.Errorf("the next stream says %q", got)
	}
	for i := range lowerTries {
		f.behind(time.Unix(int64(60*i), 0), 2, time.Minute)
	}
	if got := f.get(); got.Place != "" || got.Revision != 2 {
		t.Errorf("nobody has it: %+v", got)
	}
}

// Replicas behind the revision that a proxy has seen do not lower the minimum at once: for a time, and many attempts,
// another one is searched, and a replica that admits the proxy ends that. Then the newest of them may serve it.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestMinRevisionComesDown(t *testing.T) {
	began := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		behind []int64       // revisions of the replicas, one after the other
		every  time.Duration // between two tries
		let    int           // number of attempts after which a replica admits it; 0: none does
		want   int64
	}{
		"too few":       {[]int64{5, 5, 5, 5, 5, 5, 5}, time.Minute, 0, 9},
		"too early":     {[]int64{5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, time.Second, 0, 9},
		"let in":        {[]int64{5, 5, 5, 5, 5, 5, 5, 5}, time.Minute, 4, 9},
		"for long":      {[]int64{5, 5, 5, 5, 5, 5, 5, 5}, time.Minute, 0, 5},
		"the newest":    {[]int64{5, 7, 3, 5, 5, 5, 5, 5}, time.Minute, 0, 7},
		"never goes up": {[]int64{5, 70, 5, 5, 5, 5, 5, 5}, time.Minute, 0, 9},
	} {
		var f minRevision
		f.observe("a", "9")
		lowered := false
		for i, has := range c.behind {
			lowered = f.behind(began.Add(time.Duration(i)*c.every), has, time.Minute)
			if i+1 == c.let {
				f.observe("a", "")
			}
		}
		if got := f.get().Revision; got != c.want || lowered != (c.want < 9 || name == "never goes up") {
			t.Errorf("%s: minimum revision %d, lowered %v; want %d", name, got, lowered, c.want)
		}
	}
}

// A proxy whose replica is gone is not served by one that is behind, until many attempts found no other.
func TestNobodyHasTheMinRevision(t *testing.T) {
	fresh, old := newMesh(), newMesh()
	old.set(t, typeCDS, "c", "c1", text("cluster"))
	fresh.set(t, typeCDS, "c", "c2", text("changed"))
	a, b := old.replica(t), fresh.replica(t)
	a.behind = 4
	old.setOwner(b.addr)
	fresh.change(func() { fresh.revision = 40 })
	r := runRelay(t, Config{Target: a.addr, Follow: true}, func(r *Relay) { quick(r); r.timing.lower = 0 })
	c := newDeltaClient(t, r)
	c.accept()
	if c.accept(); c.held["c"] != "c2" {
		t.Fatalf("at its owner it got %v", c.held)
	}
	before, _ := a.count()
	b.stop()
	if c.accept(); c.held["c"] != "c1" {
		t.Errorf("got %v", c.held)
	}
	for n := range lowerTries + 1 {
		want := "41"
		if n == lowerTries {
			want = "4"
		}
		if md, _ := a.stream(before + n); len(md.Get("navarch-revision")) != 1 || md.Get("navarch-revision")[0] != want {
			t.Errorf("try %d said %v, want %s", n, md, want)
		}
	}
}

// An owner that is away, or refuses, costs nothing but tries, which are counted; the stream stays.
func TestOwnerThatCannotBeReached(t *testing.T) {
	m := newMesh()
	m.set(t, typeCDS, "c", "c1", text("cluster"))
	a, b := m.replica(t), m.replica(t)
	b.refuse = status.Error(codes.Unavailable, "not ready")
	for name, owner := range map[string]string{"away": loopback.For(t), "refuses": b.addr} {
		t.Run(name, func(t *testing.T) {
			m.setOwner(owner)
			r := runRelay(t, Config{Target: a.addr, Follow: true}, quick)
			c := newDeltaClient(t, r)
			c.accept()
			s := eventually(t, r, "failed moves", func(s Stats) bool { return s.MovesFailed > 2 })
			if s.Moves != 0 || s.Failures != 0 || s.LastError != "" || s.Owner != owner {
				t.Errorf("stats: %+v", s)
			}
			m.set(t, typeCDS, "c", "c-"+name, text(name))
			if c.accept(); c.held["c"] != "c-"+name {
				t.Errorf("got %v", c.held)
			}
		})
	}
}

// An upstream that ends is replaced; Envoy's stream continues, and receives the changes of that time, including
// removals.
func TestUpstreamIsReplaced(t *testing.T) {
	m := newMesh()
	m.set(t, typeCDS, "kept", "k1", text("kept"))
	m.set(t, typeCDS, "gone", "g1", text("gone"))
	a, b := m.replica(t), m.replica(t)
	m.setOwner(b.addr)
	r := runRelay(t, Config{Target: a.addr, Follow: true}, quick)
	c := newDeltaClient(t, r)
	c.accept()
	eventually(t, r, "moved", func(s Stats) bool { return s.Moves == 1 })
	m.change(func() { m.owner = ""; delete(m.resources[typeCDS], "gone") })
	c.receive() // and b stops before it is acknowledged
	b.stop()
	got := c.accept()
	if len(got.Resources) != 0 || len(got.RemovedResources) != 1 || got.RemovedResources[0] != "gone" {
		t.Errorf("after the end of an upstream: %v", got)
	}
	first := a.seen(1, typeCDS, func(of []*discoveryv3.DeltaDiscoveryRequest) bool { return len(of) > 1 })
	if v := first[0].InitialResourceVersions; first[0].Node.GetId() != "n" || len(v) != 2 || v["kept"] != "k1" || v["gone"] != inDoubt {
		t.Errorf("said %v", first[0])
	}
	m.set(t, typeCDS, "new", "n1", text("new"))
	if c.accept(); len(c.held) != 2 || c.held["new"] != "n1" {
		t.Errorf("holds %v", c.held)
	}
	if s := r.Stats(); s.Resumes != 1 || s.StreamsOpened != 1 || s.Upstream != a.addr {
		t.Errorf("stats: %+v", s)
	}
}

// State that only Envoy can restate: a stream with a resource that expires ends with its upstream.
func TestStreamThatCannotBeRestatedEnds(t *testing.T) {
	m := newMesh()
	m.set(t, typeCDS, "c", "c1", text("cluster"))
	m.change(func() { m.resources[typeCDS]["c"].Ttl = durationpb.New(time.Minute) })
	a, b := m.replica(t), m.replica(t)
	m.setOwner(b.addr)
	r := runRelay(t, Config{Target: a.addr, Follow: true}, quick)
	c := newDeltaClient(t, r)
	c.accept()
	eventually(t, r, "owner", func(s Stats) bool { return s.Owner == b.addr })
	m.set(t, typeCDS, "c", "c2", text("cluster"))
	c.accept()
	a.stop()
	if err := c.RecvMsg(&discoveryv3.DeltaDiscoveryResponse{}); status.Code(err) != codes.Unavailable {
		t.Errorf("ended with %v", err)
	}
	if s := r.Stats(); s.Moves != 0 || s.Resumes != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// The owner is dialled by its address and must prove the name of the control plane.
func TestOwnerProvesTheMeshsName(t *testing.T) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	server := func(name string) (grpc.ServerOption, *x509.Certificate) {
		tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		cert, _ := x509.ParseCertificate(der)
		return grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})), cert
	}
	good, goodCert := server("localhost")
	bad, badCert := server("other")
	pool := x509.NewCertPool()
	pool.AddCert(goodCert)
	pool.AddCert(badCert)
	m := newMesh()
	m.set(t, typeCDS, "c", "c1", text("cluster"))
	a, b, other := m.replica(t, good), m.replica(t, good), m.replica(t, bad)
	m.setOwner(other.addr)
	_, port, _ := net.SplitHostPort(a.addr)
	for name, serverName := range map[string]string{"of the target": "", "of the credentials": "localhost"} {
		t.Run(name, func(t *testing.T) {
			m.setOwner(other.addr)
			r := runRelay(t, Config{Target: "localhost:" + port, Follow: true, Credentials: func() (credentials.TransportCredentials, error) {
				return credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: serverName}), nil
			}}, quick)
			newDeltaClient(t, r).accept()
			s := eventually(t, r, "refused", func(s Stats) bool { return s.MovesFailed > 0 })
			if s.Moves != 0 {
				t.Errorf("moved to a server of another name: %+v", s)
			}
			m.setOwner(b.addr)
			eventually(t, r, "moved", func(s Stats) bool { return s.Moves == 1 && s.Upstream == b.addr })
		})
	}
}

func TestParseOwner(t *testing.T) {
	fields := func(m map[string]any) *discoveryv3.DeltaDiscoveryResponse {
		s, err := structpb.NewStruct(m)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := anypb.New(s)
		return &discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{{Name: agentapi.OwnerName, Resource: body}}}
	}
	other, _ := anypb.New(text("x"))
	for name, c := range map[string]struct {
		in   *discoveryv3.DeltaDiscoveryResponse
		want agentapi.Owner
		is   bool
		err  string
	}{
		"other":    {fields(map[string]any{"address": "10.0.0.1:15012"}), agentapi.Owner{Address: "10.0.0.1:15012"}, true, ""},
		"self":     {fields(map[string]any{"address": "[::1]:15012", "self": true}), agentapi.Owner{Address: "[::1]:15012", Self: true}, true, ""},
		"stay":     {fields(map[string]any{"address": ""}), agentapi.Owner{}, true, ""},
		"nothing":  {fields(nil), agentapi.Owner{}, true, ""},
		"removed":  {&discoveryv3.DeltaDiscoveryResponse{RemovedResources: []string{agentapi.OwnerName}}, agentapi.Owner{}, false, ""},
		"no port":  {fields(map[string]any{"address": "10.0.0.1"}), agentapi.Owner{}, false, "want host:port"},
		"scheme":   {fields(map[string]any{"address": "unix:///run/x:1"}), agentapi.Owner{}, false, "want host:port"},
		"no host":  {fields(map[string]any{"address": ":15012"}), agentapi.Owner{}, false, "want host:port"},
		"no owner": {&discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{{Name: agentapi.OwnerName, Resource: other}}}, agentapi.Owner{}, false, "mismatched message type"},
	} {
		got, is, err := parseOwner(encoded(c.in).Materialize())
		if got != c.want || is != c.is || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v, %v", name, got, is, err)
		}
	}
}

// Moves and tries are spaced more and more, and forgotten after a while.
func TestMovePace(t *testing.T) {
	now := time.Unix(0, 0)
	p := movePace{random: func() float64 { return 0 }, base: time.Second, max: 10 * time.Second}
	for i, want := range []time.Duration{500, 1000, 2000, 4000, 5000, 5000} {
		if p.space(now); p.next.Sub(now) != want*time.Millisecond {
			t.Errorf("%d: waits %v", i, p.next.Sub(now))
		}
		now = p.next
	}
	now = now.Add(moveForget + time.Second)
	if p.space(now); p.next.Sub(now) != 500*time.Millisecond {
		t.Errorf("after a while: waits %v", p.next.Sub(now))
	}
}
