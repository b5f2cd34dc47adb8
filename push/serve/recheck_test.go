package serve

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/xds"
)

// callerOf returns the caller with an identity; for an empty text, one without an identity.
func callerOf(id string) attest.Caller {
	if id == "" {
		return attest.Caller{}
	}
	return attest.Caller{ID: spiffeid.RequireFromString(id)}
}

// refusals is the list of refused identities.
type refusals struct {
	mu  sync.Mutex
	ids []string
}

func (r *refusals) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, id)
}

func (r *refusals) refused(c attest.Caller) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.ids, c.ID.String()) {
		return errors.New(c.ID.String() + " is revoked")
	}
	return nil
}

// When a caller is refused, exactly its streams end.
// Promise: security-workloads.md#renewals-and-revocation
func TestRecheck(t *testing.T) {
	const bad, good = "spiffe://mesh/ns/shop/sa/bad", "spiffe://mesh/ns/shop/sa/good"
	var refused refusals
	next := make(chan string, 1)
	s, addr := start(t, Config{Planner: newPlanner(cluster("a")), Refused: refused.refused,
		Authenticate: func(context.Context) (attest.Caller, error) { return callerOf(<-next), nil }})
	joined := func(id string) *client {
		next <- id
		c := dial(t, addr)
		c.ask(xds.Cluster)
		c.ack(c.next())
		return c
	}
	one, other, nobody, two := joined(bad), joined(good), joined(""), joined(bad)
	if n := s.Recheck(); n != 0 {
		t.Fatalf("%d streams ended while nobody is refused", n)
	}
	refused.add(bad)
	refused.add("") // the empty text is no identity
	if n := s.Recheck(); n != 2 {
		t.Fatalf("%d streams ended, want 2", n)
	}
	for _, c := range []*client{one, two} {
		// The connection is closed, because a client that does not read would not notice the end of the stream.
		if got := c.end(); got.Code() != codes.Unavailable {
			t.Errorf("ended with %v", got)
		}
	}
	for _, c := range []*client{other, nobody} {
		c.ask(xds.Listener)
		c.next()
	}
	if n := s.Recheck(); n != 0 {
		t.Errorf("%d streams ended twice", n)
	}
}

// revoking is a planner that calls a function during Join.
type revoking struct {
	*fakePlanner
	joining func()
}

func (p *revoking) Join(ctx context.Context, c Client, moved func(fanout.Lane)) (Proxy, error) {
	p.joining()
	return p.fakePlanner.Join(ctx, c, moved)
}

// A caller that is refused between authentication and the first request is found, too.
// Promise: security-workloads.md#renewals-and-revocation
func TestRecheckWhileJoining(t *testing.T) {
	const bad = "spiffe://mesh/ns/shop/sa/bad"
	var refused refusals
	p := &revoking{fakePlanner: newPlanner(cluster("a"))}
	s, addr := start(t, Config{Planner: p, Refused: refused.refused, Authenticate: func(context.Context) (attest.Caller, error) {
		return callerOf(bad), nil
	}})
	p.joining = func() {
		refused.add(bad)
		s.Recheck() // the stream is not registered yet
	}
	c := dial(t, addr)
	c.ask(xds.Cluster)
	if got := c.end(); got.Code() != codes.Unavailable {
		t.Errorf("ended with %v", got)
	}
}

// Nothing is planned for a caller that is refused while its stream waits to send the first request: Recheck does not
// find it, because it has not joined.
func TestRefusedBeforeTheFirstRequest(t *testing.T) {
	const bad = "spiffe://mesh/ns/shop/sa/bad"
	var refused refusals
	var joined atomic.Bool
	authenticated := make(chan struct{}, 1)
	p := &revoking{newPlanner(cluster("a")), func() { joined.Store(true) }}
	s, addr := start(t, Config{Planner: p, Refused: refused.refused, Authenticate: func(context.Context) (attest.Caller, error) {
		authenticated <- struct{}{}
		return callerOf(bad), nil
	}})
	c := dial(t, addr)
	<-authenticated
	refused.add(bad)
	if n := s.Recheck(); n != 0 {
		t.Errorf("%d streams ended, and none has joined", n)
	}
	c.ask(xds.Cluster)
	if got := c.end(); got.Code() != codes.PermissionDenied || !strings.Contains(got.Message(), "is revoked") {
		t.Errorf("ended with %v", got)
	}
	if joined.Load() {
		t.Error("a view was planned for somebody who is refused")
	}
}

// A caller whose credential has expired receives no Secrets besides its previous ones. If the caller can obtain a newer
// credential, the stream ends, so that the caller presents it.
// Promise: security-ca.md#streams-whose-credential-has-ended, security-workloads.md#identity-and-private-keys
func TestSecretsNeedACredential(t *testing.T) {
	for _, again := range []bool{false, true} {
		var ended atomic.Bool
		p := &clerk{fakePlanner: newPlanner(cluster("a")), t: t}
		_, addr := start(t, Config{Planner: p,
			Authenticate: func(context.Context) (attest.Caller, error) { return callerOf("spiffe://mesh/ns/shop/sa/web"), nil },
			MayHaveKeys:  func(attest.Caller) (bool, bool) { return !ended.Load(), again }})
		c := dial(t, addr)
		c.ask(xds.Secret, "kubernetes://one")
		c.ack(c.next())
		ended.Store(true)
		c.ask(xds.Secret, "kubernetes://two")
		if again {
			if got := c.end(); got.Code() != codes.Unavailable {
				t.Errorf("the stream ended with %v", got)
			}
		} else {
			c.next() // no Secret has the name
		}
		p.expect("+kubernetes://one -")
	}
}

// A changed Secret has a new private key. A caller whose credential has expired keeps the previous version until it
// presents a newer one; if it can obtain one, the stream ends.
// Promise: security-ca.md#streams-whose-credential-has-ended, security-workloads.md#identity-and-private-keys
func TestRenewedSecretsNeedACredential(t *testing.T) {
	for _, again := range []bool{false, true} {
		var ended atomic.Bool
		p := &clerk{fakePlanner: newPlanner(route("a", "x")), t: t, made: map[string]*xds.Resource{"one": keyPair(t, "one")}}
		s, addr := start(t, Config{Planner: p,
			Authenticate: func(context.Context) (attest.Caller, error) { return callerOf("spiffe://mesh/ns/shop/sa/web"), nil },
			MayHaveKeys:  func(attest.Caller) (bool, bool) { return !ended.Load(), again }})
		c := dial(t, addr)
		c.ask(xds.Secret, "one")
		c.ack(c.next())
		c.ask(xds.Route, "a")
		c.ack(c.next())

		ended.Store(true)
		renewed := keyPair(t, "one")
		p.put(renewed, route("a", "y"))
		got := c.next() // Secrets would come before routes
		if got.GetTypeUrl() != xds.Route.URL() {
			t.Fatalf("sent %v", got)
		}
		c.ack(got)
		if again {
			s.Recheck()
			if got := c.end(); got.Code() != codes.Unavailable {
				t.Errorf("the stream ended with %v", got)
			}
			continue
		}
		s.Recheck()
		ended.Store(false)
		s.Recheck()
		if got := c.next(); len(got.GetResources()) != 1 || got.GetResources()[0].GetVersion() != renewed.Version {
			t.Errorf("with a newer credential: %v", got)
		}
	}
}

// A module's configuration with another credential is not sent to such a caller either; one without a credential is.
// Promise: security-ca.md#streams-whose-credential-has-ended, security-workloads.md#identity-and-private-keys
func TestRenewedModulesNeedACredential(t *testing.T) {
	var ended atomic.Bool
	pulled := func(version string) *xds.Resource {
		r, err := xds.EncodeAs(xds.Extension, "pulled", version, &corev3.TypedExtensionConfig{Name: "pulled"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain := func(url string) *xds.Resource {
		r, err := xds.Encode(xds.Extension, "plain", &corev3.TypedExtensionConfig{Name: "plain", TypedConfig: &anypb.Any{TypeUrl: url}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	p := newPlanner(pulled("1"), plain("a"))
	s, addr := start(t, Config{Planner: p,
		Authenticate: func(context.Context) (attest.Caller, error) { return callerOf("spiffe://mesh/ns/shop/sa/web"), nil },
		MayHaveKeys:  func(attest.Caller) (bool, bool) { return !ended.Load(), false }})
	c := dial(t, addr)
	c.ask(xds.Extension, "pulled", "plain")
	c.ack(c.next())
	ended.Store(true)
	p.put(pulled("2"), plain("b"))
	got := c.next()
	if len(got.GetResources()) != 1 || got.GetResources()[0].GetName() != "plain" {
		t.Fatalf("without a credential in force: %v", got)
	}
	c.ack(got)
	ended.Store(false)
	s.Recheck()
	if got := c.next(); len(got.GetResources()) != 1 || got.GetResources()[0].GetVersion() != "2" {
		t.Errorf("with a newer credential: %v", got)
	}
}
