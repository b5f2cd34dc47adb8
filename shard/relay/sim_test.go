package relay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/agentapi"
)

// Two types: all of one is wanted, of the other the names that Envoy lists.
const (
	typeAll   = "type.googleapis.com/all"
	typeNamed = "type.googleapis.com/named"
)

func encoded(m proto.Message) mem.BufferSlice {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return message(b)
}

// simEnvoy records as Envoy's delta_subscription_state.cc does, and also stores the resources that it really runs.
type simEnvoy struct {
	requested map[string]map[string]string // type -> name -> version; "": waits for the server
	others    map[string]map[string]string // resources that were not subscribed to by name
	actual    map[string]map[string]string
	inbox     []*discoveryv3.DeltaDiscoveryResponse
	outbox    []*discoveryv3.DeltaDiscoveryRequest
	refusals  int
}

func newSimEnvoy() *simEnvoy {
	e := &simEnvoy{}
	for _, m := range []*map[string]map[string]string{&e.requested, &e.others, &e.actual} {
		*m = map[string]map[string]string{typeAll: {}, typeNamed: {}}
	}
	return e
}

// claims returns the initial_resource_versions that it would send if it reconnected now.
func (e *simEnvoy) claims(url string) map[string]string {
	all := maps.Clone(e.others[url])
	for name, version := range e.requested[url] {
		if version != "" {
			all[name] = version
		}
	}
	return all
}

func (e *simEnvoy) subscribe(url, name string) {
	if version, is := e.others[url][name]; is {
		e.requested[url][name] = version
		delete(e.others[url], name)
	} else {
		e.requested[url][name] = ""
	}
	e.outbox = append(e.outbox, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{name}})
}

// again sends an unsubscription and a subscription in one request: without the wildcard Envoy has dropped the resource.
func (e *simEnvoy) again(url, name string) {
	if url == typeNamed {
		delete(e.actual[url], name)
		e.requested[url][name] = ""
	}
	e.outbox = append(e.outbox, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{name}})
}

// unsubscribe leaves a resource to the wildcard, where there is one.
func (e *simEnvoy) unsubscribe(url, name string) {
	version := e.requested[url][name]
	delete(e.requested[url], name)
	if url == typeNamed {
		delete(e.actual[url], name)
	} else if version != "" {
		e.others[url][name] = version
	}
	e.outbox = append(e.outbox, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesUnsubscribe: []string{name}})
}

// process applies one response; a response with a bad version is refused, after a part of it was applied.
func (e *simEnvoy) process(r *rand.Rand) {
	m := e.inbox[0]
	e.inbox = e.inbox[1:]
	url := m.TypeUrl
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: m.Nonce}
	bad := slices.ContainsFunc(m.Resources, func(r *discoveryv3.Resource) bool { return strings.HasPrefix(r.Version, "bad") })
	applies := func() bool { return !bad || r.IntN(2) == 0 }
	for _, res := range m.Resources {
		_, asked := e.requested[url][res.Name]
		if (asked || url == typeAll) && !strings.HasPrefix(res.Version, "bad") && applies() {
			e.actual[url][res.Name] = res.Version
		}
		if bad {
			continue
		}
		if asked {
			e.requested[url][res.Name] = res.Version
		} else {
			e.others[url][res.Name] = res.Version
		}
	}
	for _, name := range m.RemovedResources {
		if applies() {
			delete(e.actual[url], name)
		}
		if bad {
			continue
		}
		if _, asked := e.requested[url][name]; asked {
			e.requested[url][name] = ""
		}
		delete(e.others[url], name)
	}
	if bad {
		e.refusals++
		answer.ErrorDetail = &rpcstatus.Status{Code: 13, Message: "bad"}
	}
	e.outbox = append(e.outbox, answer)
}

// simServer is one upstream: a delta server with credit of one response a type.
type simServer struct {
	t       *testing.T
	mesh    map[string]map[string]string
	inbox   []mem.BufferSlice // requests on their way
	outbox  []mem.BufferSlice
	ready   bool
	said    bool // it had a request
	asked   map[string]map[string]bool
	holds   map[string]map[string]string // versions that the client claims; "?": unknown
	refused map[string]string
	must    map[string]bool // type -> an answer is due, also an empty one
	flying  map[string]*discoveryv3.DeltaDiscoveryResponse
	nonces  int
	addr    string
	owner   *string
}

func (v *simServer) receive() {
	var m discoveryv3.DeltaDiscoveryRequest
	if err := proto.Unmarshal(v.inbox[0].Materialize(), &m); err != nil {
		v.t.Fatal(err)
	}
	v.inbox = v.inbox[1:]
	if (m.Node != nil) == v.said {
		v.t.Fatalf("node in a request: %v, and it is the first: %v", m.Node != nil, !v.said)
	}
	v.said = true
	if m.ResponseNonce != "" && m.TypeUrl != agentapi.OwnerURL {
		v.answered(&m)
	}
	url := m.TypeUrl
	if url == agentapi.OwnerURL { // its responses are not compared
		if len(m.ResourceNamesSubscribe) > 0 {
			v.outbox = append(v.outbox, ownerResponse(*v.owner, *v.owner == v.addr))
		}
		return
	}
	if v.asked[url] == nil {
		if url == typeNamed && len(m.ResourceNamesSubscribe) == 0 {
			v.t.Fatalf("the first request of a type asks for all: %v", &m)
		}
		v.asked[url] = map[string]bool{}
		v.holds[url] = maps.Clone(m.InitialResourceVersions)
		if v.holds[url] == nil {
			v.holds[url] = map[string]string{}
		}
		v.must[url] = url == typeAll && len(m.InitialResourceVersions) == 0
		for _, name := range m.ResourceNamesSubscribe {
			if _, claimed := v.holds[url][name]; name != wildcard {
				v.asked[url][name] = !claimed
			}
		}
		if url == typeAll && len(m.ResourceNamesSubscribe) > 0 && m.ResourceNamesSubscribe[0] != wildcard {
			v.t.Fatalf("the wildcard is lost: %v", &m)
		}
		return
	}
	for _, name := range m.ResourceNamesUnsubscribe {
		if delete(v.asked[url], name); url == typeNamed {
			delete(v.holds[url], name)
		}
	}
	for _, name := range m.ResourceNamesSubscribe {
		v.asked[url][name] = true
		if _, is := v.holds[url][name]; is {
			v.holds[url][name] = "?"
		}
	}
}

func (v *simServer) answered(m *discoveryv3.DeltaDiscoveryRequest) {
	sent := v.flying[m.TypeUrl]
	if sent == nil || sent.Nonce != m.ResponseNonce {
		v.t.Fatalf("%s: nonce %q, in flight %v", m.TypeUrl, m.ResponseNonce, sent)
	}
	delete(v.flying, m.TypeUrl)
	if m.ErrorDetail == nil {
		return
	}
	for _, r := range sent.Resources {
		v.holds[m.TypeUrl][r.Name] = "?"
		if strings.HasPrefix(r.Version, "bad") {
			v.refused[r.Name] = r.Version
		}
	}
	for _, name := range sent.RemovedResources {
		v.holds[m.TypeUrl][name] = "?"
	}
}

// push sends the changed resources of a type.
func (v *simServer) push(url string) {
	if v.asked[url] == nil || v.flying[url] != nil {
		return
	}
	m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, SystemVersionInfo: "7"}
	wants := func(name string) bool { _, is := v.asked[url][name]; return is || url == typeAll }
	for name, version := range v.mesh[url] {
		if held, is := v.holds[url][name]; wants(name) && (!is || held != version) && v.refused[name] != version {
			m.Resources = append(m.Resources, &discoveryv3.Resource{Name: name, Version: version})
			v.holds[url][name], v.asked[url][name] = version, false
		}
	}
	for name := range v.holds[url] {
		if _, is := v.mesh[url][name]; !is && wants(name) {
			m.RemovedResources = append(m.RemovedResources, name)
			delete(v.holds[url], name)
		}
	}
	for name, due := range v.asked[url] {
		if _, is := v.mesh[url][name]; due && !is {
			if delete(v.holds[url], name); !slices.Contains(m.RemovedResources, name) {
				m.RemovedResources = append(m.RemovedResources, name)
			}
			v.asked[url][name] = false
		}
	}
	if len(m.Resources)+len(m.RemovedResources) == 0 && !v.must[url] {
		return
	}
	v.must[url] = false
	v.nonces++
	m.Nonce = fmt.Sprint(v.nonces % 2) // those of two upstreams are often equal
	v.flying[url] = m
	v.outbox = append(v.outbox, encoded(m))
}
