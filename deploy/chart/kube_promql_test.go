//go:build kube

package chart

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// series is what an expression reads, as deploy/tools/promql writes it.
type series struct {
	Metric string
	Labels []string
}

// read is what each expression reads, by Prometheus' own parser.
func read(t *testing.T, expressions map[string]string) map[string][]series {
	t.Helper()
	tools, err := controlplane.Tools()
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(expressions)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(tools, "bin", "promql"))
	cmd.Stdin = bytes.NewReader(input)
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run `make kube-tools`: %v\n%s", err, wrong.String())
	}
	var all map[string][]series
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// Every expression of an alert or a dashboard parses, and reads metrics that navarchd has, by labels that they have.
func TestKubeChartExpressions(t *testing.T) {
	t.Parallel()
	metrics := known(t)
	for where, all := range read(t, expressions(t)) {
		if len(all) == 0 {
			t.Errorf("%s reads nothing", where)
		}
		for _, s := range all {
			labels, there := metrics[s.Metric]
			if !there {
				t.Errorf("%s: navarchd has no metric %s", where, s.Metric)
			}
			for _, label := range s.Labels {
				if !slices.Contains(labels, label) && !slices.Contains(added, label) {
					t.Errorf("%s: %s has no label %s", where, s.Metric, label)
				}
			}
		}
	}
}

// hasMetrics: the replicas' pages of metrics have every metric without labels that an expression reads, and those of their processes. One with
// labels is there only once it has a value.
func (i *installation) hasMetrics() {
	pages := ""
	for _, pod := range strings.Fields(i.get("{.items[*].metadata.name}", "pods", "-n", "istio-system", "-l", "app.kubernetes.io/name=navarchd")) {
		pages += i.MustKubectl(i.t, "", "get", "--raw", "/api/v1/namespaces/istio-system/pods/"+pod+":15014/proxy/metrics")
	}
	metrics, read := known(i.t), read(i.t, expressions(i.t))
	for where, all := range read {
		for _, s := range all {
			if len(metrics[s.Metric]) == 0 && !strings.Contains(pages, "\n"+s.Metric+" ") && !strings.Contains(pages, "\n"+s.Metric+"{") {
				i.t.Errorf("%s: no replica has %s", where, s.Metric)
			}
		}
	}
}
