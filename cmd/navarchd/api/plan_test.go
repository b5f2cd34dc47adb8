package api

import (
	"encoding/json"
	"testing"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/push/preview"
)

// A plan does not depend on the replica that is asked, which is the first of the parts.
func TestPlansAreEqualByAnyReplica(t *testing.T) {
	part := func(replica string) fleetapi.From[*preview.Report] {
		count := preview.Count{Views: 1, Proxies: 1, Example: "shop/sidecar, such as " + replica}
		return fleetapi.From[*preview.Report]{Replica: replica, Part: &preview.Report{
			Affected: []preview.Group{{Namespace: "shop", Names: []string{"web-" + replica}, Proxies: 1}},
			Facts:    []preview.Fact{{Area: "routes", Subjects: []string{"x"}, Text: replica, Count: count}, {Area: "routes", Text: "y", Count: count}}}}
	}
	var texts []string
	for _, parts := range [][]fleetapi.From[*preview.Report]{{part("a"), part("b")}, {part("b"), part("a")}} {
		answer, err := mergePlans(nil, nil, parts, 0)
		if err != nil || answer.Items[0].Affected[0].Proxies != 2 {
			t.Fatalf("%+v, %v", answer, err)
		}
		raw, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(raw))
	}
	if texts[0] != texts[1] {
		t.Errorf("by a\n%s\nby b\n%s", texts[0], texts[1])
	}
}
