//go:build kube

package chart

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/cmd/navarchd/manual"
)

// Each alert fires on a metrics page that shows the fault, and not on a page that is close to it. The duration `for` is
// ignored.
func TestKubeChartAlertsFire(t *testing.T) {
	t.Parallel()
	const of = `{namespace="istio-system",istio_io_rev="default"} `
	snapshot := func(name, metric, at string) string {
		return "kube_cronjob_status_last_" + metric + `_time{namespace="istio-system",cronjob="` + name + `"} ` + at + "\n"
	}
	const nextScrape = "next scrape\n"
	pieces := func(short, long int) string { // of planning
		name := "navarch_plan_piece_seconds"
		return fmt.Sprintf("# TYPE %s histogram\n%s_bucket{le=\"0.5\"} %d\n%s_bucket{le=\"+Inf\"} %d\n%s_count %d\n%s_sum 1\n",
			name, name, short, name, short+long, name, short+long, name)
	}
	for alert, c := range map[string]struct{ fires, not []string }{
		"NavarchNotScraped": {fires: []string{"up 1\n"}, not: []string{"navarch_leader" + of + "0\n"}},
		"NavarchProblems": {
			fires: []string{`navarch_problems{severity="error"} 1` + "\n" + `navarch_problems{severity="warning"} 0` + "\n"},
			not:   []string{`navarch_problems{severity="error"} 0` + "\n" + `navarch_problems{severity="warning"} 100` + "\n"},
		},
		"NavarchEtcdMemberLost": {fires: []string{"navarch_store_silent_endpoints" + of + "1\n"}, not: []string{"navarch_store_silent_endpoints" + of + "0\n"}},
		"NavarchKilledForMemory": {
			fires: []string{"navarch_memory_kills" + of + "2\n"}, not: []string{"navarch_memory_kills" + of + "0\n"},
		},
		"NavarchPlanBlocks": {
			fires: []string{pieces(0, 0) + nextScrape + pieces(1000, 20)}, not: []string{pieces(0, 0) + nextScrape + pieces(1000, 0)},
		},
		"NavarchSnapshotFails": {
			fires: []string{
				snapshot("navarch-etcd-snapshot-h00", "schedule", "10") + snapshot("navarch-etcd-snapshot-h00", "successful", "9"),
				snapshot("navarch-etcd-canary-snapshot-week", "schedule", "10"), // no snapshot has ever succeeded
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
			pages := map[string][]string{"a": strings.Split(page, nextScrape)}
			promql(t, map[string]any{"expressions": asked, "pages": pages}, &got, "-evaluate")
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

// The URL of each alert's section opens: by default at the Service's monitoring port, where navarchd serves the page,
// or at the address of a value.
func TestKubeChartRunbooksOpen(t *testing.T) {
	t.Parallel()
	pages := manual.Handler()
	for args, want := range map[string]string{
		"": "http://istiod.istio-system.svc:15014/docs/alerts.md#", "revision=canary": "http://istiod-canary.istio-system.svc:15014/docs/alerts.md#",
		"monitoring.alerts.runbooks=https://example.com/docs/alerts.md": "https://example.com/docs/alerts.md#",
	} {
		name, _, _ := strings.Cut(strings.TrimPrefix(want, "http://"), ".")
		if strings.HasPrefix(want, "https") {
			name = "istiod"
		}
		rules := &unstructured.Unstructured{}
		object(t, template(t, "--set", "monitoring.alerts.enabled=true", "--set", args), "PrometheusRule", name, &rules.Object)
		text, err := json.Marshal(rules.Object)
		if err != nil {
			t.Fatal(err)
		}
		urls := regexp.MustCompile(`"runbook_url":"([^"]+)"`).FindAllStringSubmatch(string(text), -1)
		if len(urls) != len(alerts(t)) {
			t.Errorf("%s: %d URLs", args, len(urls))
		}
		for _, u := range urls {
			at, err := url.Parse(u[1])
			if err != nil || !strings.HasPrefix(u[1], want) {
				t.Errorf("%s: %q, %v", args, u[1], err)
				continue
			}
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, at.Path, nil))
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), ` id="`+at.Fragment+`"`) {
				t.Errorf("%s: status %d, or no heading of that name", at, w.Code)
			}
		}
	}
}
