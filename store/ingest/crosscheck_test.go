package ingest

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// A Gateway in namespace apps selects a Pod in namespace edge. With PILOT_SCOPE_GATEWAY_TO_NAMESPACE that is a problem
// of the Gateway.
func TestGatewaysOfOtherNamespaces(t *testing.T) {
	events := []object.Event{podOf(t, "edge", "p", "web", "True"), gateway(t, "g", "web", "s")}
	for _, scoped := range []bool{true, false} {
		_, problems := Records(events, normal.Options{OwnGateways: scoped})
		named := slices.ContainsFunc(problems, func(p object.Problem) bool {
			return p.ID.Name == "g" && p.Field == "spec.selector" && strings.Contains(p.Message, "PILOT_SCOPE_GATEWAY_TO_NAMESPACE")
		})
		if named != scoped {
			t.Errorf("scoped %v: %v", scoped, problems)
		}
	}
}
