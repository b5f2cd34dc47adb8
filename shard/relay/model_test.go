package relay

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/agentapi"
)

// randomRun drives one session with a simulated Envoy and servers, all by one random source.
type randomRun struct {
	t       *testing.T
	rand    *rand.Rand
	now     time.Time
	s       *session
	envoy   *simEnvoy
	mesh    map[string]map[string]string
	servers map[uint32]*simServer
	owner   string
	version int
	notices map[what]int
}

func newRandomRun(t *testing.T, seed uint64) *randomRun {
	d := &randomRun{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0), envoy: newSimEnvoy(),
		mesh: map[string]map[string]string{typeAll: {}, typeNamed: {}}, servers: map[uint32]*simServer{}, notices: map[what]int{}, owner: "a:1",
	}
	d.s = &session{
		target: "any:1", follow: true, own: map[string]bool{agentapi.OwnerURL: true}, t: defaultTiming,
		pace: movePace{random: d.rand.Float64, base: defaultTiming.between, max: defaultTiming.longest},
	}
	d.event(started{})
	return d
}

func (d *randomRun) event(e event) {
	for _, e := range d.s.step(d.now, e) {
		switch e := e.(type) {
		case dial:
			d.servers[e.conn] = &simServer{
				t: d.t, addr: e.addr, mesh: d.mesh, owner: &d.owner, asked: map[string]map[string]bool{}, holds: map[string]map[string]string{},
				refused: map[string]string{}, must: map[string]bool{}, flying: map[string]*discoveryv3.DeltaDiscoveryResponse{},
			}
		case drop:
			delete(d.servers, e.conn)
		case sendUp:
			v := d.servers[e.conn]
			v.inbox = append(v.inbox, e.data)
		case sendDown:
			var m discoveryv3.DeltaDiscoveryResponse
			if err := proto.Unmarshal(e.data.Materialize(), &m); err != nil {
				d.t.Fatal(err)
			}
			for _, other := range d.envoy.inbox {
				if other.TypeUrl == m.TypeUrl && other.Nonce == m.Nonce {
					d.t.Fatalf("two responses with the nonce %q", m.Nonce)
				}
			}
			d.envoy.inbox = append(d.envoy.inbox, &m)
		case notice:
			if d.notices[e.what]++; e.what == moved {
				d.still()
			}
		case finish:
			d.t.Fatalf("Envoy's stream ended: %v", e.err)
		}
	}
}

// still fails where a move is made with something in flight.
func (d *randomRun) still() {
	for _, k := range d.s.mirror.types {
		if recent := d.now.Sub(k.lastAsk) < d.s.t.patience; len(k.flying) > 0 || recent && k.unsaid > 0 {
			d.t.Fatalf("it moves with responses %v and questions %v in flight", k.flying, k.names)
		}
	}
}

func ownerResponse(addr string, self bool) mem.BufferSlice {
	fields, _ := structpb.NewStruct(map[string]any{"address": addr, "self": self})
	body, _ := anypb.New(fields)
	return encoded(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: agentapi.OwnerURL, Nonce: "o", Resources: []*discoveryv3.Resource{{Name: agentapi.OwnerName, Version: "v", Resource: body}}})
}

func (d *randomRun) name() string { return fmt.Sprintf("r%d", d.rand.IntN(8)) }

// change edits the mesh; earlier versions may return, as hashes do when an edit is reverted.
func (d *randomRun) change(bad bool) {
	url := []string{typeAll, typeNamed}[d.rand.IntN(2)]
	switch d.rand.IntN(6) {
	case 0, 1:
		delete(d.mesh[url], d.name())
	case 2:
		if bad {
			d.version++
			d.mesh[url][d.name()] = fmt.Sprintf("bad%d", d.version)
		}
	default:
		d.mesh[url][d.name()] = fmt.Sprintf("v%d", d.rand.IntN(3))
	}
}

func (d *randomRun) ids() []uint32 { return slices.Sorted(maps.Keys(d.servers)) }

// some does one thing that may happen to an upstream connection, in either direction.
func (d *randomRun) some(faults bool) {
	ids := d.ids()
	id := ids[d.rand.IntN(len(ids))]
	v := d.servers[id]
	if !v.ready {
		if faults && d.rand.IntN(4) == 0 && d.s.once {
			delete(d.servers, id)
			d.event(connEnded{id, errors.New("refused")})
			return
		}
		v.ready = true
		d.event(connReady{id})
		return
	}
	readable := d.s.is(d.s.next, id) || d.s.is(d.s.live, id)
	switch n := d.rand.IntN(8); {
	case n < 3 && len(v.inbox) > 0:
		v.receive()
	case n < 6 && len(v.outbox) > 0 && readable:
		d.deliver(id)
	case n == 6:
		v.push(typeAll)
	case n == 7:
		v.push(typeNamed)
	}
	if faults && d.rand.IntN(150) == 0 && (readable || d.s.is(d.s.next, id)) && d.s.begun {
		delete(d.servers, id)
		d.event(connEnded{id, errors.New("gone")})
	}
}

// client lets Envoy do one thing.
func (d *randomRun) client(changes bool) {
	e := d.envoy
	switch n := d.rand.IntN(10); {
	case n < 4 && len(e.inbox) > 0:
		e.process(d.rand)
	case n < 8 && len(e.outbox) > 0 && d.s.reads():
		d.hear()
	case n == 8 && changes:
		name, url := d.name(), []string{typeAll, typeNamed}[d.rand.IntN(2)]
		switch _, is := e.requested[url][name]; {
		case !is:
			e.subscribe(url, name)
		case d.rand.IntN(2) == 0:
			e.unsubscribe(url, name)
		default:
			e.again(url, name)
		}
	}
	if len(e.outbox) == 0 {
		d.compare()
	}
}

// compare checks that after all of Envoy's messages the mirror equals Envoy's record.
func (d *randomRun) compare() {
	for _, k := range d.s.mirror.types {
		if claims := d.envoy.claims(k.url); !maps.Equal(claims, k.held) {
			d.t.Fatalf("%s: Envoy recorded %v, the mirror %v", k.url, claims, k.held)
		}
		if len(k.names) != len(d.envoy.requested[k.url]) || k.all != (k.url == typeAll) {
			d.t.Fatalf("%s: Envoy subscribes to %v, the mirror has %v, all: %v", k.url, d.envoy.requested[k.url], k.names, k.all)
		}
	}
}

func (d *randomRun) run(rounds int) {
	d.envoy.outbox = append(d.envoy.outbox, &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: typeAll})
	d.envoy.subscribe(typeNamed, "r1")
	for round := range rounds {
		if round%100 == 99 {
			d.drain()
		}
		d.now = d.now.Add(time.Duration(d.rand.IntN(100)) * time.Millisecond)
		switch d.rand.IntN(20) {
		case 0, 1:
			d.change(true)
		case 2:
			d.event(tick{})
		case 3:
			if d.rand.IntN(20) == 0 {
				d.owner = fmt.Sprintf("%c:1", 'a'+d.rand.IntN(3))
				if v := d.servers[d.s.live.id]; v.ready {
					v.outbox = append(v.outbox, ownerResponse(d.owner, d.owner == v.addr))
				}
			}
		case 4, 5, 6, 7, 8, 9:
			d.client(true)
		default:
			d.some(true)
		}
	}
	d.drain()
}

// drain lets all messages arrive without faults; then Envoy must have the mesh's configuration.
func (d *randomRun) drain() {
	for url := range d.mesh {
		for name, version := range d.mesh[url] {
			if strings.HasPrefix(version, "bad") {
				d.mesh[url][name] = "v0"
			}
		}
	}
	for range 60 {
		d.now = d.now.Add(20 * time.Millisecond)
		d.event(tick{})
		d.flush()
	}
	d.compare()
	for _, k := range d.s.mirror.types {
		for name := range k.doubt {
			if _, is := k.names[name]; is || k.all {
				d.t.Fatalf("%s %s: in doubt for ever", k.url, name)
			}
		}
	}
	want := map[string]string{}
	for name := range d.envoy.requested[typeNamed] {
		if version, is := d.mesh[typeNamed][name]; is {
			want[name] = version
		}
	}
	if got := d.envoy.actual[typeNamed]; !maps.Equal(got, want) {
		d.t.Fatalf("Envoy runs %v, wants %v", got, want)
	}
	if got := d.envoy.actual[typeAll]; !maps.Equal(got, d.mesh[typeAll]) {
		d.t.Fatalf("Envoy runs %v, the mesh has %v", got, d.mesh[typeAll])
	}
}

// flush lets all that is on the way arrive and be answered.
func (d *randomRun) flush() {
	for _, id := range d.ids() {
		v := d.servers[id]
		if v == nil {
			continue // dropped meanwhile
		}
		if !v.ready {
			v.ready = true
			d.event(connReady{id})
		}
		for len(v.inbox) > 0 {
			v.receive()
		}
		v.push(typeAll)
		v.push(typeNamed)
		for len(v.outbox) > 0 && d.servers[id] == v && (d.s.is(d.s.next, id) || d.s.is(d.s.live, id)) {
			d.deliver(id)
		}
	}
	for len(d.envoy.inbox) > 0 {
		d.envoy.process(d.rand)
	}
	for len(d.envoy.outbox) > 0 && d.s.reads() {
		d.hear()
	}
}

func (d *randomRun) deliver(id uint32) {
	v := d.servers[id]
	data := v.outbox[0]
	v.outbox = v.outbox[1:]
	head, err := scanResponse(data)
	d.event(fromConn{id, data, head, err})
}

func (d *randomRun) hear() {
	data := encoded(d.envoy.outbox[0])
	d.envoy.outbox = d.envoy.outbox[1:]
	head, err := scanRequest(data)
	d.event(fromEnvoy{data, head, err})
}
