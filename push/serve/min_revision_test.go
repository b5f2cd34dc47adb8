package serve

import (
	"testing"

	"google.golang.org/grpc/metadata"

	"navarch.io/navarch/push/agentapi"
)

// The planner receives the minimal revision from the metadata of a client.
func TestMinRevisionOfClient(t *testing.T) {
	p := newPlanner()
	_, addr := start(t, Config{Planner: p})
	service, ctx := connect(t, addr)
	s, err := service.DeltaAggregatedResources(metadata.AppendToOutgoingContext(ctx, "navarch-revision", "5", "navarch-store", "c1"))
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t, s}
	c.ask(0)
	c.next()
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.joined[0].MinRevision; got != (agentapi.MinRevision{Store: "c1", Revision: 5}) {
		t.Errorf("the planner was told %+v", got)
	}
}

// Each response to a client that sends a place states the place of the newest state; a response to another client
// states only the revision.
func TestPlaceInVersion(t *testing.T) {
	_, addr := start(t, Config{Planner: newPlanner(), Place: func() string { return "ab.1.2" }})
	service, ctx := connect(t, addr)
	for place, want := range map[string]string{"-": "", "": "ab.1.2", "ab.1.1": "ab.1.2"} {
		with := metadata.NewOutgoingContext(ctx, metadata.Pairs("navarch-place", place))
		if place == "-" {
			with = metadata.NewOutgoingContext(ctx, metadata.MD{})
		}
		s, err := service.DeltaAggregatedResources(with)
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t, s}
		c.ask(0)
		version := c.next().SystemVersionInfo
		if _, got, ok := agentapi.DecodeVersion(version); !ok || got != want {
			t.Errorf("%q: told %q", place, version)
		}
	}
}
