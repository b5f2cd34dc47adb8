package plan_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/serve/servetest"
	"navarch.io/navarch/push/xds"
)

// served is a Planner whose only client has the newest set of one proxy of an EditRun.
type served struct {
	servetest.Base
	mu    sync.Mutex
	set   *manifest.Set
	moved func(fanout.Lane)
}

func (s *served) Join(_ context.Context, _ serve.Client, moved func(fanout.Lane)) (serve.Proxy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = moved
	return s, nil
}

func (s *served) Set() *manifest.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set
}

// become makes a set the newest one.
func (s *served) become(set *manifest.Set) {
	s.mu.Lock()
	same, moved := s.set == set, s.moved
	s.set = set
	s.mu.Unlock()
	if !same && moved != nil {
		moved(fanout.Config)
	}
}

// streamedTypes are the types to which a receiver subscribes. Of the first two it asks for everything.
var streamedTypes = []xds.Type{xds.Cluster, xds.Listener, xds.Endpoint, xds.Route}

// receiver is a client of a delta stream that acknowledges everything, as Envoy does.
type receiver struct {
	t      *testing.T
	from   *served
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	in     chan *discoveryv3.DeltaDiscoveryResponse
	held   map[xds.Type]map[string][]byte
	asked  map[xds.Type]map[string]bool
	sent   map[string]bool // what was different in responses since the last call of receive, as by change
}

func newReceiver(t *testing.T, from *served) *receiver {
	stream := servetest.Subscribe(t, servetest.Dialed(t, serve.New(serve.Config{Planner: from})))
	r := &receiver{t: t, from: from, stream: stream, in: make(chan *discoveryv3.DeltaDiscoveryResponse, 64),
		held: map[xds.Type]map[string][]byte{}, asked: map[xds.Type]map[string]bool{}}
	for _, of := range streamedTypes {
		r.held[of], r.asked[of] = map[string][]byte{}, map[string]bool{}
	}
	go func() {
		defer close(r.in)
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case r.in <- response:
			case <-t.Context().Done():
				return
			}
		}
	}()
	r.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Listener.URL()})
	return r
}

func (r *receiver) send(q *discoveryv3.DeltaDiscoveryRequest) {
	if err := r.stream.Send(q); err != nil {
		r.t.Fatal(err)
	}
}

// change describes a resource that differs, with its bytes; nil: it is removed.
func change(of xds.Type, name string, body []byte) string {
	return fmt.Sprintf("%v %s %x", of, name, body)
}

// receive applies responses until the receiver holds the newest set, and returns what was different in them.
func (r *receiver) receive() []string {
	r.sent = map[string]bool{}
	for deadline := time.After(30 * time.Second); r.lacks() != ""; {
		select {
		case response, open := <-r.in:
			if !open {
				r.t.Fatal("the stream has ended")
			}
			r.apply(response)
		case <-deadline:
			r.t.Fatalf("the client has not the newest set after 30 s: %s", r.lacks())
		}
	}
	return slices.Sorted(maps.Keys(r.sent))
}

func (r *receiver) apply(response *discoveryv3.DeltaDiscoveryResponse) {
	of := xds.ParseURL(response.TypeUrl)
	r.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce})
	for _, one := range response.Resources {
		if (of == xds.Endpoint || of == xds.Route) && !r.asked[of][one.Name] {
			continue // the client does not use it any more
		}
		if body := one.Resource.GetValue(); !bytes.Equal(r.held[of][one.Name], body) {
			r.held[of][one.Name], r.sent[change(of, one.Name, body)] = body, true
		}
	}
	for _, name := range response.RemovedResources {
		if _, had := r.held[of][name]; had && (of == xds.Cluster || of == xds.Listener) {
			r.sent[change(of, name, nil)] = true
		}
		delete(r.held[of], name)
	}
	r.subscribe(xds.Endpoint)
	r.subscribe(xds.Route)
}

// subscribe asks for all resources of a type that the newest set has, and for no others.
func (r *receiver) subscribe(of xds.Type) {
	q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: of.URL()}
	now := map[string]bool{}
	for one := range r.from.Set().Types[of].All() {
		if now[one.Name] = true; !r.asked[of][one.Name] {
			q.ResourceNamesSubscribe = append(q.ResourceNamesSubscribe, one.Name)
		}
	}
	for name := range r.asked[of] {
		if !now[name] {
			q.ResourceNamesUnsubscribe = append(q.ResourceNamesUnsubscribe, name)
			delete(r.held[of], name)
		}
	}
	if r.asked[of] = now; len(q.ResourceNamesSubscribe)+len(q.ResourceNamesUnsubscribe) > 0 {
		r.send(q)
	}
}

// lacks names the first resource that differs from the newest set. It is empty if the receiver holds the newest set.
func (r *receiver) lacks() string {
	set := r.from.Set()
	for _, of := range streamedTypes {
		for one := range set.Types[of].All() {
			if have, is := r.held[of][one.Name]; !is || !bytes.Equal(have, one.Body()) {
				return fmt.Sprintf("%v %s", of, one.Name)
			}
		}
		for name := range r.held[of] {
			if set.Types[of].Get(name) == nil && (of == xds.Cluster || of == xds.Listener) {
				return fmt.Sprintf("%v %s is not removed", of, name)
			}
		}
	}
	return ""
}

// predictedFor returns what a plan says that a proxy is sent, in the form of receive.
func predictedFor(p *preview.Plan, id string) (all []string) {
	for _, v := range p.Views {
		if !slices.Contains(v.Proxies, id) {
			continue
		}
		for _, pair := range v.Changed {
			switch {
			case !slices.Contains(streamedTypes, pair.Type):
			case pair.New != nil:
				all = append(all, change(pair.Type, pair.Name, pair.New.Body()))
			case pair.Type == xds.Cluster || pair.Type == xds.Listener:
				// Of other types the client forgets what it does not use.
				all = append(all, change(pair.Type, pair.Name, nil))
			}
		}
	}
	slices.Sort(all)
	return all
}

// The bytes that a stream sends after an edit are those that a preview of the edit predicts: no resource less, and none
// more that differs from what the client holds. The client is one of a real server, over a connection.
func TestStreamsSendWhatIsPredicted(t *testing.T) {
	t.Parallel()
	e := plan.NewEditRun(t, 5)
	ids := slices.Sorted(maps.Keys(e.Sets()))
	receivers := map[string]*receiver{}
	for _, id := range ids {
		set := e.Sets()[id]
		count := func(of xds.Type) int { return len(slices.Collect(set.Types[of].All())) }
		if len(receivers) < 3 && count(xds.Route) > 0 && count(xds.Cluster) > 3 {
			receivers[id] = newReceiver(t, &served{set: set})
			receivers[id].receive()
		}
	}
	edited, resources := 0, 0
	for i := range 40 {
		c := e.Next(plan.PreviewedKinds[i%len(plan.PreviewedKinds)])
		for id, r := range receivers { // Next may have applied edits
			r.from.become(e.Sets()[id])
			r.receive()
		}
		predicted := predictBeside(t, e, c)
		for id, r := range receivers {
			r.from.become(e.Sets()[id])
			want, got := predictedFor(predicted, id), r.receive()
			if edited, resources = edited+min(1, len(got)), resources+len(got); !slices.Equal(got, want) {
				only := func(a, b []string) string {
					return strings.Join(slices.DeleteFunc(slices.Clone(a), func(one string) bool { return slices.Contains(b, one) }), "\n")
				}
				t.Fatalf("edit %d, %s: sent and not predicted\n%.2000s\npredicted and not sent\n%.2000s",
					i, id, only(got, want), only(want, got))
			}
		}
	}
	if len(receivers) != 3 || edited < 12 || resources < 40 {
		t.Errorf("%d clients; %d responses to edits, with %d resources", len(receivers), edited, resources)
	}
}
