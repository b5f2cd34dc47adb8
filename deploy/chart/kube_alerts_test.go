//go:build kube

package chart

import (
	"slices"
	"testing"
)

// Alerts fire on a page of metrics that shows the fault, and not on one that is nearly it. `for` is not waited for.
func TestKubeChartAlertsFire(t *testing.T) {
	t.Parallel()
	const of = `{namespace="istio-system",istio_io_rev="default"} `
	snapshot := func(name, metric, at string) string {
		return "kube_cronjob_status_last_" + metric + `_time{namespace="istio-system",cronjob="` + name + `"} ` + at + "\n"
	}
	for alert, c := range map[string]struct{ fires, not []string }{
		"NavarchNotScraped": {fires: []string{"up 1\n"}, not: []string{"navarch_leader" + of + "0\n"}},
		"NavarchProblems": {
			fires: []string{`navarch_problems{severity="error"} 1` + "\n" + `navarch_problems{severity="warning"} 0` + "\n"},
			not:   []string{`navarch_problems{severity="error"} 0` + "\n" + `navarch_problems{severity="warning"} 100` + "\n"},
		},
		"NavarchEtcdMemberLost": {fires: []string{"navarch_store_silent_endpoints" + of + "1\n"}, not: []string{"navarch_store_silent_endpoints" + of + "0\n"}},
		"NavarchSnapshotFails": {
			fires: []string{
				snapshot("navarch-etcd-snapshot-h00", "schedule", "10") + snapshot("navarch-etcd-snapshot-h00", "successful", "9"),
				snapshot("navarch-etcd-canary-snapshot-week", "schedule", "10"), // it has never succeeded
				snapshot("navarch-etcd-snapshot-h00", "schedule", "10") + snapshot("navarch-etcd-snapshot-h06", "successful", "11"),
			},
			not: []string{
				snapshot("navarch-etcd-snapshot-h00", "schedule", "10") + snapshot("navarch-etcd-snapshot-h00", "successful", "11"),
				snapshot("navarch-etcd-defragment", "schedule", "10") + snapshot("shop-snapshot-daily", "schedule", "10"),
			},
		},
	} {
		at := slices.IndexFunc(alerts(t), func(r rule) bool { return r.Alert == alert })
		if at < 0 {
			t.Errorf("there is no alert %s", alert)
			continue
		}
		asked := map[string]string{alert: alerts(t)[at].Expr}
		evaluate := func(page string) int {
			var got map[string][]struct{ Labels map[string]string }
			promql(t, map[string]any{"expressions": asked, "pages": map[string][]string{"a": {page}}}, &got, "-evaluate")
			return len(got[alert])
		}
		for _, page := range c.fires {
			if n := evaluate(page); n != 1 {
				t.Errorf("%s fires %d times, want once:\n%s", alert, n, page)
			}
		}
		for _, page := range c.not {
			if n := evaluate(page); n != 0 {
				t.Errorf("%s fires %d times, want not:\n%s", alert, n, page)
			}
		}
	}
}
