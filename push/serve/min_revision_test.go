package serve

import (
	"testing"

	"google.golang.org/grpc/metadata"

	"navarch.io/navarch/push/agentapi"
)

// What a client says it has seen reaches the planner.
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
