package serve

import (
	"testing"

	"google.golang.org/grpc/metadata"
)

// What a client says it has seen reaches the planner; what is not a revision is none.
func TestMinRevisionOfClient(t *testing.T) {
	for name, c := range map[string]struct {
		md   metadata.MD
		want MinRevision
	}{
		"nothing":  {nil, MinRevision{}},
		"both":     {metadata.Pairs(RevisionHeader, "17", StoreHeader, "abc"), MinRevision{"abc", 17}},
		"no store": {metadata.Pairs(RevisionHeader, "17"), MinRevision{"", 17}},
		"garbage":  {metadata.Pairs(RevisionHeader, "seventeen", StoreHeader, "abc"), MinRevision{}},
		"negative": {metadata.Pairs(RevisionHeader, "-4"), MinRevision{}},
		"too long": {metadata.Pairs(RevisionHeader, "99999999999999999999"), MinRevision{}},
		"twice":    {metadata.Pairs(RevisionHeader, "17", RevisionHeader, "18"), MinRevision{}},
	} {
		if got := minRevisionOf(metadata.NewIncomingContext(t.Context(), c.md)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	p := newPlanner()
	_, addr := start(t, Config{Planner: p})
	service, ctx := connect(t, addr)
	s, err := service.DeltaAggregatedResources(metadata.AppendToOutgoingContext(ctx, RevisionHeader, "5", StoreHeader, "c1"))
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t, s}
	c.ask(0)
	c.next()
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.joined[0].MinRevision; got != (MinRevision{"c1", 5}) {
		t.Errorf("the planner was told %+v", got)
	}
}
