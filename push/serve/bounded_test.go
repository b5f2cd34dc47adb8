package serve

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

const (
	shop  = "spiffe://mesh/ns/shop/sa/web"
	other = "spiffe://mesh/ns/other/sa/web"
)

// countedServer is a server with identities that the test chooses, which counts the events of each limit.
type countedServer struct {
	*Server
	addr   string
	caller chan attest.Caller

	mu      sync.Mutex
	bounded map[string]int
}

func startCounted(t *testing.T, cfg Config) *countedServer {
	c := &countedServer{caller: make(chan attest.Caller, 1), bounded: map[string]int{}}
	cfg.Authenticate = func(context.Context) (attest.Caller, error) { return <-c.caller, nil }
	cfg.Hooks.Bounded = func(what string, n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bounded[what] += n
	}
	c.Server, c.addr = start(t, cfg)
	return c
}

func (c *countedServer) times(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bounded[what]
}

// open opens a stream of an identity, with a certificate that has this serial number.
func (c *countedServer) open(t *testing.T, identity, serial string) *client {
	who := callerOf(identity)
	who.Serial = serial
	c.caller <- who
	return dial(t, c.addr)
}

func unknownNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("outbound|80||unknown-%05d", i))
	}
	return names
}

// A proxy that opens more streams than permitted loses its oldest stream; other proxies lose none.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestNewerStreamsOfAProxy(t *testing.T) {
	c := startCounted(t, Config{Planner: newPlanner(cluster("a")), Callers: budget.New(budget.Config{Limits: budget.Limits{Workload: 2}})})
	var all []*client
	for range 4 {
		cl := c.open(t, shop, "1")
		cl.ask(xds.Cluster)
		cl.ack(cl.next())
		all = append(all, cl)
	}
	same, foreign := c.open(t, shop, "2"), c.open(t, other, "1")
	for _, cl := range []*client{same, foreign} {
		cl.ask(xds.Cluster)
		cl.ack(cl.next())
	}
	for _, cl := range all[:2] {
		if got := cl.end(); got.Code() != codes.Unavailable { // its connection is closed
			t.Errorf("ended with %v", got)
		}
	}
	for _, cl := range append(all[2:], same, foreign) {
		cl.ask(xds.Listener)
		cl.next()
	}
	if n := c.times(BoundStreams); n != 2 {
		t.Errorf("%d streams are counted", n)
	}
	eventually(t, "what has ended is given back", func() bool {
		streams, _, _ := c.cfg.Callers.Count(shop)
		return streams == 3
	})
}

// slowPlanner blocks joins until the test permits them.
type slowPlanner struct {
	*fakePlanner
	open chan struct{}
}

func (p slowPlanner) Join(ctx context.Context, c Client, moved func(fanout.Lane)) (Proxy, error) {
	select {
	case <-p.open:
		return p.fakePlanner.Join(ctx, c, moved)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The requests of streams that wait to join are kept in memory, with a limit on bytes for each credential: the streams
// with the most bytes end. The others wait with their requests and then join.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestRequestsThatWaitAreBounded(t *testing.T) {
	const most = 512 << 10
	callers := budget.New(budget.Config{Limits: budget.Limits{MessagesPerCredential: most}})
	slow := slowPlanner{newPlanner(cluster("a")), make(chan struct{})}
	c := startCounted(t, Config{Planner: slow, Callers: callers})
	begin := func(identity string, i, names int) *client {
		cl := c.open(t, identity, "1")
		cl.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprint("proxy-", i)}, TypeUrl: xds.Cluster.URL(), ResourceNamesSubscribe: append(unknownNames(names), "*")})
		return cl
	}
	good, small := begin(other, 0, 4000), begin(shop, 1, 10)
	eventually(t, "a good proxy waits", func() bool { return callers.Held() > 0 })
	first := callers.Held()
	for i := range 20 {
		begin(shop, i+2, 5000) // more than 100 KB
		eventually(t, "its request has come", func() bool { return callers.Held()+100<<10*c.times(BoundMessages) >= first+(i+1)*100<<10 })
		if n := callers.Held(); n > first+most {
			t.Fatalf("%d bytes are kept for a credential that may have %d", n-first, most)
		}
	}
	close(slow.open)
	for _, cl := range []*client{good, small} {
		cl.ack(cl.next())
	}
	eventually(t, "nothing is kept of what was handled", func() bool { return callers.Held() == 0 })
	if n := c.times(BoundMessages); n < 15 {
		t.Errorf("%d streams ended", n)
	}
}

// Streams on plain text are limited by source address, since their callers have no identity.
// Promise: security-connections.md#what-such-a-client-can-still-do
func TestStreamsOfASource(t *testing.T) {
	sources := budget.New(budget.Config{Limits: budget.Limits{Least: 4, Workload: 3}})
	s, addr := start(t, Config{Planner: newPlanner(cluster("a")), Sources: sources})
	for i := range 5 {
		c := dial(t, addr)
		c.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprintf("proxy-%d", i)}, TypeUrl: xds.Cluster.URL()})
		_, err := c.Recv()
		if refused := status.Code(err) == codes.ResourceExhausted; refused != (i >= 4) || !refused && err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	if n := len(s.Inspect()); n != 4 {
		t.Errorf("%d streams, want 4", n)
	}
}

// A client that joins too often receives an error with the time to wait.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestJoinsOfAnIdentity(t *testing.T) {
	c := startCounted(t, Config{Planner: newPlanner(cluster("a")), Callers: budget.New(budget.Config{Limits: budget.Limits{Least: 1, Workload: 100}})})
	var refused *status.Status
	for i := range 40 {
		cl := c.open(t, shop, "1")
		cl.ask(xds.Cluster)
		if _, err := cl.Recv(); err != nil {
			if refused = status.Convert(err); i < 16 {
				t.Fatalf("join %d: %v", i, err)
			}
			break
		}
	}
	if refused.Code() != codes.ResourceExhausted || len(refused.Details()) != 1 || c.times(BoundJoins) != 1 {
		t.Fatalf("ended with %v", refused)
	}
	if after := refused.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration(); after < time.Second {
		t.Errorf("it may try again after %v", after)
	}
	cl := c.open(t, other, "1")
	cl.ask(xds.Cluster)
	cl.next()
}

// When an identity requests too many names without resources, further ones are left out. Its streams stay open and
// receive existing resources, names of other identities are kept, and a stream ends when a resource appears that was
// left out for it.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestNamesOfAnIdentity(t *testing.T) {
	ledger := budget.New(budget.Config{Limits: budget.Limits{Names: 100 << 10, NamesFree: 1 << 10}})
	p := newPlanner(cluster("a"), endpoints("a"))
	c := startCounted(t, Config{Planner: p, Callers: ledger, ResumeTime: 40 * time.Millisecond})
	greedy, good := c.open(t, shop, "1"), c.open(t, other, "1")
	greedy.ask(xds.Endpoint, append(unknownNames(2000), "a")...)
	if r := greedy.next(); len(r.Resources) > 100 || !slices.ContainsFunc(r.Resources, func(r *discoveryv3.Resource) bool { return r.Name == "a" }) {
		t.Fatalf("%d resources", len(r.Resources))
	}
	if _, _, bytes := ledger.Count(shop); bytes > 100<<10 || c.times(BoundNames) < 1900 {
		t.Errorf("%d bytes, %d names are left out", bytes, c.times(BoundNames))
	}
	good.ask(xds.Endpoint, unknownNames(20)...)
	if r := good.next(); len(r.Resources) != 20 {
		t.Errorf("another identity is answered about %d names", len(r.Resources))
	}
	p.edit([]*xds.Resource{endpoints("unknown-01999")})
	if got := greedy.end(); got.Code() != codes.Unavailable {
		t.Errorf("ended with %v", got)
	}
	eventually(t, "what has ended is given back", func() bool {
		streams, _, bytes := ledger.Count(shop)
		return streams == 0 && bytes == 0
	})
}

// A stream remembers 4,096 subscribed Secrets, with names of at most 640 bytes, and the view is told only of these.
// Promise: security-limits.md#streams-connections-and-messages
func TestSecretsOfAStream(t *testing.T) {
	p := &clerk{fakePlanner: newPlanner(cluster("a")), t: t}
	_, addr := start(t, Config{Planner: p})
	cl := dial(t, addr)
	longest := "kubernetes://" + strings.Repeat("n", 627)
	cl.ask(xds.Secret, append([]string{longest, longest + "n"}, unknownNames(4500)...)...)
	cl.next()
	p.mu.Lock()
	defer p.mu.Unlock()
	names := strings.Split(strings.TrimPrefix(strings.TrimSuffix(p.calls[0], " -"), "+"), ",")
	if len(names) != 4096 || !slices.Contains(names, longest) || slices.Contains(names, longest+"n") {
		t.Errorf("the view is asked for %d Secrets", len(names))
	}
}

// The objects of an identity's refusals are looked up at a limited rate.
// Promise: security-limits.md#streams-connections-and-messages
func TestBlameIsBounded(t *testing.T) {
	var resources []*xds.Resource
	text := "Error adding/updating cluster(s) "
	for i := range 300 {
		name := fmt.Sprintf("c%03d", i)
		resources, text = append(resources, cluster(name)), text+name+": bad\n"
	}
	var mu sync.Mutex
	looked := 0
	c := startCounted(t, Config{Planner: newPlanner(resources...), Blame: func(Proxy, xds.Type, string, string) []model.Place {
		mu.Lock()
		defer mu.Unlock()
		looked++
		return nil
	}})
	cl := c.open(t, shop, "1")
	cl.ask(xds.Cluster)
	cl.nack(cl.next(), text)
	eventually(t, "it is taken in", func() bool { return len(c.Refusals()) > 0 })
	cl.ask(xds.Listener)
	cl.next()
	mu.Lock()
	defer mu.Unlock()
	if looked < 10 || looked > 100 {
		t.Errorf("objects are looked for %d times", looked)
	}
}

// question is the query of a tool.
var question = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: questionURL, ResourceNamesSubscribe: []string{"x"}}

// The number of an identity's queries that are in progress or waiting is limited. Queries of other identities continue,
// also while all permitted queries of one identity wait.
// Promise: security-limits.md#debug-pages-and-requests-of-tools, security-limits.md#streams-connections-and-messages
func TestQuestionsOfAnIdentity(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 3)
	answer := Answer{TypeURL: questionURL, Resources: func(ctx context.Context, c Client, _ []string) ([]*discoveryv3.Resource, error) {
		if c.Identity == shop {
			asked <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return nil, nil
	}}
	c := startCounted(t, Config{Planner: newPlanner(), Answers: []Answer{answer}, Callers: budget.New(budget.Config{Limits: budget.Limits{Asks: 3}})})
	var first []*client
	for i := range 3 {
		cl := c.open(t, shop, fmt.Sprint(i))
		cl.send(question)
		<-asked
		first = append(first, cl)
	}
	further := c.open(t, shop, "4")
	further.send(question)
	if got := further.end(); got.Code() != codes.ResourceExhausted {
		t.Errorf("one more ends with %v", got)
	}
	foreign := c.open(t, other, "1")
	foreign.send(question)
	foreign.next()
	close(release)
	for _, cl := range first {
		cl.next()
	}
	if n := c.times(BoundQuestions); n != 1 {
		t.Errorf("%d questions are counted", n)
	}
}

// An answer counts for its identity until its client has read it, also if the client has closed its side of the stream.
// A client that reads too slowly loses its connection.
// Promise: security-limits.md#debug-pages-and-requests-of-tools
func TestUnreadAnswers(t *testing.T) {
	cfg := Config{Planner: newPlanner(cluster("a")), Answers: []Answer{echo(1 << 20)}}
	one := budget.Limits{Asks: 1}
	leave := func() {}
	ask := func(c *countedServer) *client {
		c.caller <- callerOf(shop)
		service, ctx := connect(t, c.addr)
		ctx, leave = context.WithCancel(ctx)
		s, err := service.DeltaAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cl := &client{t, s}
		cl.send(question)
		return cl
	}
	answered := func(c *countedServer) func() bool {
		return func() bool {
			_, err := ask(c).Recv()
			return err == nil
		}
	}
	for _, goes := range []bool{false, true} {
		cfg.Callers = budget.New(budget.Config{Limits: one})
		c := startCounted(t, cfg)
		first := ask(c)
		leaves := leave
		if err := first.CloseSend(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the first is answered", func() bool { _, err := first.Header(); return err == nil })
		if got := ask(c).end(); got.Code() != codes.ResourceExhausted {
			t.Errorf("another question, while the answer to the first is not read, ends with %v", got)
		}
		if goes {
			leaves()
		} else {
			first.next()
		}
		eventually(t, "it may ask again", answered(c))
	}
	cfg.WriteTimeout = 50 * time.Millisecond
	cfg.Callers = budget.New(budget.Config{Limits: one})
	c := startCounted(t, cfg)
	slow := ask(c)
	if err := slow.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Header(); err != nil { // its query counts before the next one is sent
		t.Fatal(err)
	}
	eventually(t, "it may ask again without reading", answered(c))
	if got := slow.end(); got.Code() != codes.Unavailable {
		t.Errorf("who does not read ends with %v", got)
	}
	if usual, _ := start(t, Config{Planner: cfg.Planner}); maxUnread*usual.cfg.WriteTimeout != 2*time.Minute {
		t.Errorf("an answer has %v unless the configuration says otherwise", maxUnread*usual.cfg.WriteTimeout)
	}
}
