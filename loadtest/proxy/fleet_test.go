package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// TestFirstConnect compares the order of requests with that of a real Envoy (reference 1.1).
func TestFirstConnect(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 1, Config{IstioVersion: "1.31.0"}, s)
	s.settled()
	var got []string
	s.mu.Lock()
	for _, r := range s.requests {
		line := xds.ParseURL(r.TypeUrl).String()
		if r.Node != nil {
			line += " node"
		}
		if len(r.ResourceNamesSubscribe) > 0 {
			slices.Sort(r.ResourceNamesSubscribe)
			line += " " + strings.Join(r.ResourceNamesSubscribe, ",")
		}
		if r.ResponseNonce != "" {
			line += " ack"
		}
		got = append(got, line)
	}
	s.mu.Unlock()
	want := []string{"CDS node", "EDS a,b", "EDS ack", "CDS ack", "LDS", "RDS 80", "LDS ack", "RDS ack"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	clean(t, f)
}

// TestResumeClaimsWhatIsHeld checks the requests of a reconnect: every type in the order of first use, claims without
// CDS and LDS names, and no answer is needed (reference 1.4, 1.5).
func TestResumeClaimsWhatIsHeld(t *testing.T) {
	for _, forge := range []bool{false, true} {
		s := serve(t, nil)
		f := fleet(t, 1, Config{}, s)
		s.settled()
		s.mu.Lock()
		s.requests = nil
		s.mu.Unlock()
		before := f.Stats()
		f.Reconnect(All, Reconnect{Forge: forge})
		eventually(t, "it has resumed", func() bool { return f.Stats().Resume.Count() == 1 })
		eventually(t, "the server has read what it asks for", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.requests) >= 4
		})
		s.settled()
		var got []string
		s.mu.Lock()
		for _, r := range s.requests[:4] {
			claims := []string{}
			for n, v := range r.InitialResourceVersions {
				claims = append(claims, n+"="+v)
			}
			slices.Sort(claims)
			slices.Sort(r.ResourceNamesSubscribe)
			got = append(got, fmt.Sprint(xds.ParseURL(r.TypeUrl), r.ResourceNamesSubscribe, claims, r.Node != nil))
		}
		s.mu.Unlock()
		want := []string{"CDS [] [a=1 b=1] true", "EDS [a b] [a=1 b=1] false", "LDS [] [in=1] false", "RDS [80] [80=1] false"}
		if forge {
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "=1", "=forged")
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\nwant %q", got, want)
		}
		if d := f.Stats().Since(before).Total(); d.Responses != 0 && !forge || forge && d.Resources != 6 {
			t.Errorf("forge %v: %+v", forge, d)
		}
	}
}

// TestEmptyVersions uses a server without versions (like istiod): content replaces them, and "" is claimed.
func TestEmptyVersions(t *testing.T) {
	s := serve(t, nil)
	for ty := range s.sotw {
		for _, r := range s.sotw[ty] {
			r.Version = ""
		}
	}
	f := fleet(t, 2, Config{}, s)
	s.set(xds.Endpoint, "a", "", endpoints("a", 2))
	s.say(xds.Endpoint, []string{"a"}, nil)
	s.settled()
	clean(t, f)
	f.Reconnect(First(1), Reconnect{})
	eventually(t, "claims are empty", func() bool {
		return s.count(func(r *discoveryv3.DeltaDiscoveryRequest) bool {
			v, ok := r.InitialResourceVersions["a"]
			return ok && v == ""
		}) == 2 // CDS and EDS
	})
}

// TestProbe measures a change: from the stated moment, per proxy, once.
func TestProbe(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 40, Config{}, s)
	p := f.Watch(Change{Type: xds.Endpoint, Name: "a", Marker: "marker-7"})
	committed := time.Now().Add(-time.Second) // scheduled a second ago
	p.Committed(committed)
	s.set(xds.Endpoint, "a", "2", endpoints("a", 2)) // another change than the watched one
	s.say(xds.Endpoint, []string{"a"}, nil)
	other := f.Watch(Change{Type: xds.Endpoint, Name: "b"})
	s.set(xds.Cluster, "b", "2", cluster("b", 2)) // its endpoints are sent again, although no proxy waits for them
	s.say(xds.Cluster, []string{"b"}, nil)
	s.say(xds.Endpoint, []string{"b"}, nil)
	eventually(t, "all is acknowledged", func() bool { return f.Stats().Types["EDS"].Acks == 120 && f.Stats().Types["CDS"].Acks == 80 })
	for _, early := range []*Probe{p, other} {
		if early.mu.Lock(); len(early.received)+len(early.acked) > 0 {
			t.Errorf("%v: %d have it already", early.change, len(early.received))
		}
		early.mu.Unlock()
	}
	marked := endpoints("a", 3)
	marked.Endpoints[0].Locality = locality("marker-7")
	s.set(xds.Endpoint, "a", "3", marked)
	s.say(xds.Endpoint, []string{"a"}, nil)
	o := p.Wait(t.Context())
	sum := o.Ack.Summary()
	if o.Expected != 40 || o.Received != 40 || o.Acked != 40 || sum.Count != 40 ||
		sum.Min < 1000 || sum.Last > 1000+float64(patience/time.Millisecond) {
		t.Errorf("%+v %v", o, sum)
	}
	if o.Receive.Max() > o.Ack.Max() {
		t.Errorf("received after %v, acknowledged after %v", o.Receive.Max(), o.Ack.Max())
	}

	p = f.Watch(Change{Type: xds.Cluster, Name: "new", New: true, Among: func(id Identity) bool { return id.Name != "p3" }})
	s.set(xds.Cluster, "new", "1", cluster("new", 1))
	s.set(xds.Endpoint, "new", "1", endpoints("new", 1))
	s.say(xds.Cluster, []string{"new"}, nil, "p1", "p2", "p3")
	s.settled()
	eventually(t, "three have it", func() bool { return f.Stats().Types["CDS"].Acks == 83 })
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if o = p.Wait(ctx); o.Expected != 39 || o.Acked != 2 || len(o.Missing) != maxMissing {
		t.Errorf("%+v", o)
	}
	if p = f.Watch(Change{Type: xds.Cluster, Name: "nobody has it"}); p.Wait(t.Context()).Expected != 0 {
		t.Error("somebody is expected")
	}
	clean(t, f)
}

// TestCDSAckWaitsForEndpoints: Envoy withholds the ACK of clusters until they are warm (reference 1.7).
func TestCDSAckWaitsForEndpoints(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 1, Config{}, s)
	s.settled()
	s.set(xds.Cluster, "a", "2", cluster("a", 2))
	s.say(xds.Cluster, []string{"a"}, nil)
	s.set(xds.Route, "80", "2", route("80", "a"))
	s.say(xds.Route, []string{"80"}, nil) // other types are processed meanwhile
	eventually(t, "the route is acknowledged", func() bool { return f.Stats().Types["RDS"].Acks == 2 })
	if n := f.Stats().Types["CDS"].Acks; n != 1 {
		t.Errorf("%d CDS ACKs before the endpoints", n)
	}
	s.say(xds.Endpoint, []string{"a"}, nil)
	s.settled()
	clean(t, f)
}

// TestNACK refuses one of two clusters: the other is applied and not claimed later, and may be sent again.
func TestNACK(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 1, Config{Behaviour: func(int, Identity) Behaviour {
		return Behaviour{Refuse: []Ref{{xds.Endpoint, "b"}}}
	}, WarmTimeout: 50 * time.Millisecond}, s)
	nacks := func(r *discoveryv3.DeltaDiscoveryRequest) bool {
		return r.ErrorDetail.GetCode() == 13 && strings.Contains(r.ErrorDetail.Message, "b: refused")
	}
	eventually(t, "a NACK has come", func() bool { return s.count(nacks) == 1 })
	s.say(xds.Endpoint, []string{"a"}, nil) // alone, so that it is recorded
	eventually(t, "it is acknowledged", func() bool { return f.Stats().Types["EDS"].Acks == 1 })
	if st := f.Stats(); st.Types["EDS"].Nacks != 1 || st.Found[Duplicate].Count != 0 {
		t.Errorf("%+v", st)
	}
	s.set(xds.Endpoint, "a", "2", endpoints("a", 2))
	s.set(xds.Endpoint, "b", "2", endpoints("b", 2))
	s.say(xds.Endpoint, []string{"a", "b"}, nil)
	eventually(t, "another NACK", func() bool { return s.count(nacks) == 2 })
	f.Reconnect(All, Reconnect{})
	eventually(t, "the claim is of what was recorded", func() bool {
		return s.count(func(r *discoveryv3.DeltaDiscoveryRequest) bool {
			_, b := r.InitialResourceVersions["b"]
			return r.TypeUrl == xds.Endpoint.URL() && r.InitialResourceVersions["a"] == "1" && !b
		}) == 1
	})
}

// TestMisbehaviour makes proxies slow, silent and wrong; the others must not be affected, and each behaviour must have
// its effect.
func TestMisbehaviour(t *testing.T) {
	s := serve(t, nil)
	shapes := []Behaviour{{}, {HalfOpen: AfterConnect}, {HalfOpen: AfterHandshake}, {HalfOpen: AfterHeaders},
		{ReadRate: 2000}, {AckDelay: 30 * time.Millisecond},
		{DuplicateSubscriptions: true}, {StopReading: true}}
	f := fleet(t, 0, Config{Behaviour: func(i int, _ Identity) Behaviour { return shapes[i] }}, s)
	start := time.Now()
	f.Add(identities(len(shapes))...)
	join(t, f, 5)
	if time.Since(start) < 100*time.Millisecond {
		t.Errorf("the slow reader took %v", time.Since(start))
	}
	twice := s.count(func(r *discoveryv3.DeltaDiscoveryRequest) bool {
		return slices.Contains(r.ResourceNamesSubscribe, "80")
	})
	if twice != 6 {
		t.Errorf("%d subscriptions to the route; want one of each that speaks, and one more", twice)
	}
	if at := f.Stats(); at.AckAfter.Max() < 30*time.Millisecond || at.Dials != 8 || at.Streams != 5 {
		t.Errorf("%v %+v", at.AckAfter.Max(), at)
	}
	f.SetBehaviour(All, Behaviour{})
	eventually(t, "all but the half-open ones are joined", func() bool { return f.Stats().Joined == 5 })
	if n := f.Remove(func(i int, _ Identity) bool { return i < 4 }); n != 4 {
		t.Errorf("removed %d", n)
	}
	eventually(t, "they are gone", func() bool { st := f.Stats(); return st.Proxies == 4 && st.Joined == 4 && st.Connected == 4 })
}

// TestVanish leaves the old connection open; the server still sees its stream when the new one is there.
func TestVanish(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 1, Config{}, s)
	f.Reconnect(All, Reconnect{Vanish: true, Cold: true, Now: true})
	eventually(t, "it is joined again", func() bool { return f.Stats().Join.Count() == 2 })
	s.mu.Lock()
	n := len(s.streams)
	s.mu.Unlock()
	if n != 2 {
		t.Errorf("%d streams; want the silent one and the new one", n)
	}
}

// TestMalformed sends each kind of malformed request; the server may end that stream, and the fleet reports the status.
func TestMalformed(t *testing.T) {
	for kind := NotProtobuf; kind <= SecondCDS; kind++ {
		s := serve(t, nil)
		f := fleet(t, 2, Config{Behaviour: func(i int, _ Identity) Behaviour {
			if i == 0 {
				return Behaviour{Malformed: kind}
			}
			return Behaviour{}
		}}, s)
		if kind == NotProtobuf || kind == HugeMessage || kind == NotUTF8 {
			eventually(t, fmt.Sprintf("malformed request %d ends the stream", kind), func() bool { return len(f.Stats().Ended) > 0 })
		}
		if st := f.Stats(); st.Violated() != 0 {
			t.Errorf("%d: %+v", kind, st.Found)
		}
		f.Close()
	}
}

// TestFollow moves proxies to the owner that the server names, make before break, and sends the highest revision.
func TestFollow(t *testing.T) {
	a, b := serve(t, nil), serve(t, nil)
	a.revision, b.revision = "41", "41"
	owner, err := structpb.NewStruct(map[string]any{"address": b.addr})
	if err != nil {
		t.Fatal(err)
	}
	self, err := structpb.NewStruct(map[string]any{"self": true})
	if err != nil {
		t.Fatal(err)
	}
	a.agentTypes[ownerURL], b.agentTypes[ownerURL] = owner, self
	var taken atomic.Int32
	f := fleet(t, 0, Config{Follow: true, MoveWithin: time.Millisecond, OnVersion: func(_ Identity, of Ref, version string) {
		if of == (Ref{xds.Endpoint, "a"}) {
			taken.Add(1)
			if n := taken.Load(); (n > 20) != (version == "2") {
				t.Errorf("version %s is told as the %dth", version, n)
			}
		}
	}}, a)
	f.Add(identities(20)...)
	eventually(t, "all have moved", func() bool { return f.Stats().Moves == 20 })
	join(t, f, 20)
	eventually(t, "the old streams are closed", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.streams) == 0
	})
	st := f.Stats()
	if st.Types["CDS"].Resources != 40 || st.Streams != 40 || len(st.Ended) != 0 || st.Connected != 20 {
		t.Errorf("%+v", st)
	}
	b.mu.Lock()
	first := b.headers[0]
	b.mu.Unlock()
	if got := first.Get("navarch-revision"); !slices.Equal(got, []string{"41"}) {
		t.Errorf("navarch-revision %q", got)
	}
	clean(t, f)
	a.grpc.Stop() // no server is left
	b.set(xds.Endpoint, "a", "2", endpoints("a", 2))
	p := f.Watch(Change{Type: xds.Endpoint, Name: "a"})
	b.say(xds.Endpoint, []string{"a"}, nil)
	if o := p.Wait(t.Context()); o.Acked != 20 || taken.Load() != 40 {
		t.Errorf("%+v, %d versions were told", o, taken.Load())
	}
}

// TestServerGoesAway kills the server: its proxies connect to the other one, and claim all of their resources.
func TestServerGoesAway(t *testing.T) {
	a, b := serve(t, nil), serve(t, nil)
	f := fleet(t, 30, Config{}, a, b)
	before := f.Stats()
	a.grpc.Stop()
	eventually(t, "those of the dead server have resumed", func() bool {
		return f.Stats().Resume.Count() == 15 && f.Stats().Joined == 30
	})
	d := f.Stats().Since(before)
	if d.Total().Resources != 0 {
		t.Errorf("%+v", d.Total())
	}
	clean(t, f)
}

func TestStatsMerge(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 3, Config{}, s)
	s.settled()
	s.say(xds.Route, []string{"80"}, nil)
	eventually(t, "it is found", func() bool { return f.Stats().Found[Duplicate].Count == 3 })
	text, err := json.Marshal(f.Stats())
	if err != nil {
		t.Fatal(err)
	}
	var sum, other Stats
	if err := json.Unmarshal(text, &other); err != nil {
		t.Fatal(err)
	}
	sum.Merge(other)
	sum.Merge(f.Stats())
	if sum.Proxies != 6 || sum.Found[Duplicate].Count != 6 || len(sum.Found[Duplicate].Examples) != maxExamples ||
		sum.Types["CDS"].Resources != 12 || sum.Join.Count() != 6 {
		t.Errorf("%+v", sum)
	}
}

// TestRemovedProxiesAreNotWaitedFor: a pod that is deleted before it has acknowledged an edit owes no ACK, and one that
// has is counted.
func TestRemovedProxiesAreNotWaitedFor(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 3, Config{}, s)
	f.SetBehaviour(First(1), Behaviour{AckDelay: time.Hour})
	p := f.Watch(Change{Type: xds.Endpoint, Name: "a"})
	s.set(xds.Endpoint, "a", "2", endpoints("a", 2))
	s.say(xds.Endpoint, []string{"a"}, nil)
	eventually(t, "two have acknowledged", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.acked) == 2
	})
	f.Remove(First(2)) // one without an ACK, one with
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if o := p.Wait(ctx); ctx.Err() != nil || o.Expected != 2 || o.Acked != 2 || o.Received != 2 || len(o.Missing) > 0 {
		t.Errorf("%+v, %v", o, ctx.Err())
	}
}
