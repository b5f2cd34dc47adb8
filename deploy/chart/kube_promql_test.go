//go:build kube

package chart

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// series is a series that an expression selects, in the form of deploy/tools/promql.
type series struct {
	Metric string
	Labels []string
}

// promql runs deploy/tools/promql on an input, and decodes its answer.
func promql(t *testing.T, input, answer any, args ...string) {
	t.Helper()
	tools, err := controlplane.Tools()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(tools, "bin", "promql"), args...)
	cmd.Stdin = bytes.NewReader(text)
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run `make kube-tools`: %v\n%s", err, wrong.String())
	}
	if err := json.Unmarshal(out, answer); err != nil {
		t.Fatal(err)
	}
}

// read returns the series that each expression selects, by Prometheus' own parser.
func read(t *testing.T, expressions map[string]string) (all map[string][]series) {
	t.Helper()
	promql(t, expressions, &all)
	return all
}

// Two revisions in one namespace, each with its own leader and count of revisions, raise no alert; one without a leader
// does, with its name. Their series differ by the label of Pods and Services that the ServiceMonitor keeps, which
// Prometheus writes as istio_io_rev.
func TestKubeChartAlertsOfRevisions(t *testing.T) {
	t.Parallel()
	monitor := &unstructured.Unstructured{}
	object(t, template(t, "--set", "monitoring.serviceMonitor.enabled=true"), "ServiceMonitor", "istiod", &monitor.Object)
	if labels, _, _ := unstructured.NestedStringSlice(monitor.Object, "spec", "targetLabels"); !slices.Equal(labels, []string{"app", "istio.io/rev"}) {
		t.Errorf("the ServiceMonitor keeps the labels %v", labels)
	}
	expressions := map[string]string{}
	for _, r := range alerts(t) {
		switch r.Alert {
		case "NavarchNoLeader", "NavarchSeveralLeaders", "NavarchRevisionsDiffer":
			expressions[r.Alert] = r.Expr
		}
	}
	page := func(rev string, leader, revision int) string {
		labels := fmt.Sprintf(`{namespace="istio-system",istio_io_rev=%q}`, rev)
		return fmt.Sprintf("navarch_leader%s %d\nnavarch_revision%s %d\n", labels, leader, labels, revision)
	}
	for _, c := range []struct {
		canary [2]string
		want   map[string]string // the revision that an alert names
	}{
		{[2]string{page("canary", 1, 7), page("canary", 0, 7)}, map[string]string{}},
		{[2]string{page("canary", 0, 7), page("canary", 0, 5)}, map[string]string{"NavarchNoLeader": "canary", "NavarchRevisionsDiffer": "canary"}},
		{[2]string{page("canary", 1, 7), page("canary", 1, 7)}, map[string]string{"NavarchSeveralLeaders": "canary"}},
	} {
		var got map[string][]struct{ Labels map[string]string }
		pages := map[string][]string{"a": {page("default", 1, 900)}, "b": {page("default", 0, 900)}, "c": {c.canary[0]}, "d": {c.canary[1]}}
		promql(t, map[string]any{"expressions": expressions, "pages": pages}, &got, "-evaluate")
		for alert := range expressions {
			var named []string
			for _, one := range got[alert] {
				named = append(named, cmp.Or(one.Labels["istio_io_rev"], "none"))
			}
			if got := strings.Join(named, " "); got != c.want[alert] {
				t.Errorf("%v: %s names %q, want %q", c.canary, alert, got, c.want[alert])
			}
		}
	}
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

// hasMetrics checks that the replicas' metrics pages contain every metric without labels that an expression reads, and
// the metrics of their processes. A metric with labels exists only once it has a value.
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
