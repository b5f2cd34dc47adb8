package main

import (
	"log/slog"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/scrape"
)

// An agent starts with any Prometheus annotations of a Pod, and logs the errors in them.
func TestWrongMetricsKeepNoAgentFromStarting(t *testing.T) {
	for value, want := range map[string]string{
		`{"port":"9090"}`: "", `{"targets":[{"port":"9100"},{"port":"9200","path":"/m"}]}`: "",
		`{"port":"http"}`: "want a number from 1 to 65535", `{"port":"15999"}`: "the agent's own", `{"targets":[{"port":"15000"}]}`: "Envoy's administration",
	} {
		log := &envoytest.Output{}
		a := &agent{cfg: &options{nodeType: "sidecar", statsAddr: ":15999"}, id: &identity{node: &corev3.Node{}, vars: map[string]string{scrape.Variable: value}, addresses: []string{"127.0.0.1"}}}
		if _, err := a.newStatus(slog.New(slog.NewTextHandler(log, nil))); err != nil {
			t.Errorf("%s: %v", value, err)
		}
		if said := log.String(); !strings.Contains(said, want) || want == "" && said != "" {
			t.Errorf("%s: %s", value, said)
		}
	}
}
