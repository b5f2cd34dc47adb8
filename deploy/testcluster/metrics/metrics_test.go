package metrics

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestSeries(t *testing.T) {
	at := func(second int) time.Time { return t0.Add(time.Duration(second) * time.Second) }
	s := series(nil).add(at(0), 100, true)
	if _, _, ok := s.rate(); ok {
		t.Error("a rate of one sample")
	}
	s = s.add(at(4), 140, true)
	if rate, over, ok := s.rate(); !ok || rate != 10 || over != 4*time.Second {
		t.Errorf("rate %g over %s", rate, over)
	}
	s = s.add(at(12), 300, true) // the first one is too old now
	if rate, over, _ := s.rate(); rate != 20 || over != 8*time.Second {
		t.Errorf("rate %g over %s", rate, over)
	}
	s = s.add(at(13), 1, true) // the counter restarted
	if _, _, ok := s.rate(); ok || len(s) != 1 {
		t.Errorf("a counter that began again: %v", s)
	}
	if g := series(nil).add(at(0), 5, false).add(at(1), 3, false); len(g) != 2 {
		t.Errorf("a gauge that became smaller: %v", g)
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 100 25 20 0 4 0 12345 1000000 300 184467 1 1 0 0 0 0"
	if u := parseStat(line); u.seconds != 4.25 || u.bytes != float64(300*os.Getpagesize()) {
		t.Errorf("%+v", u)
	}
	if u := parseStat("42 (gone"); u != (usage{}) {
		t.Errorf("%+v", u)
	}
	// Of the kernel itself: this process has used some time and memory.
	space, err := spaceOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if u := usages()[space]; u.bytes < 1<<20 {
		t.Errorf("this process namespace uses %+v", u)
	}
}

func TestPageOf(t *testing.T) {
	for want, a := range map[string]map[string]string{"": nil, "http://[fd00::1]:80/m": {"prometheus.io/scrape": "true", "prometheus.io/port": "80", "prometheus.io/path": "/m"},
		"http://[fd00::1]:81/metrics": {"prometheus.io/scrape": "true", "prometheus.io/port": "81"}} {
		if got := pageOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: a}}, "fd00::1"); got != want {
			t.Errorf("%v: %q, want %q", a, got, want)
		}
	}
}

// two Pods of a namespace: one whose counter grew from 10 to 30 in two seconds, and one that has no page.
func two(t *testing.T) *Collector {
	t.Helper()
	page := map[string]series{}
	for i, text := range []string{"# TYPE served_total counter\nserved_total{a=\"1\"} 4\nserved_total{a=\"2\"} 6\n# TYPE open gauge\nopen 7\n", "# TYPE served_total counter\nserved_total{a=\"1\"} 24\nserved_total{a=\"2\"} 6\n# TYPE open gauge\nopen 8\n"} {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		page = sums(page, families, t0.Add(time.Duration(2*i)*time.Second))
	}
	c := NewCollector(nil)
	running := func(cpu float64) map[string]*containerMetrics {
		return map[string]*containerMetrics{"app": {cpu: series{{t0, 0}, {t0.Add(2 * time.Second), cpu}}, memory: series{{t0, 1 << 20}}}}
	}
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	}
	c.pods["1"] = &podMetrics{pod: pod("a"), containers: running(0.5), page: page}
	c.pods["2"] = &podMetrics{pod: pod("b"), containers: running(1)}
	c.pods["3"] = &podMetrics{pod: pod("new"), containers: map[string]*containerMetrics{"app": {cpu: series{{t0, 0}}}}}
	return c
}

// The API answers with these values at these fields and code 200, or with another code.
func TestAPIs(t *testing.T) {
	handler := two(t).Handler()
	type item struct {
		Metadata   struct{ Name string }
		Containers []struct{ Usage corev1.ResourceList }
		Usage      corev1.ResourceList
		Value      string
	}
	for path, want := range map[string]string{
		"/apis/metrics.k8s.io/v1beta1/pods":                                                                  "a cpu=250m b cpu=500m",
		"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Db":                            "b cpu=500m",
		"/apis/metrics.k8s.io/v1beta1/namespaces/other/pods":                                                 "",
		"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=%21%21":                             "400",
		"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/new":                                              "404",
		"/apis/metrics.k8s.io/v1beta1/nodes":                                                                 "node-1 cpu=750m",
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/served_per_second":                       " value=10",
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/a/open":                                    " value=8",
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/served_per_second?labelSelector=app%3Db": "404",
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/absent":                                  "404",
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/services/a/open":                                "404",
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		var list struct{ Items []item }
		if w.Code == 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
				t.Fatal(err)
			}
		}
		var all []string
		for _, i := range list.Items {
			usage := i.Usage
			if len(i.Containers) > 0 {
				usage = i.Containers[0].Usage
			}
			if i.Value != "" {
				all = append(all, " value="+i.Value)
			} else {
				all = append(all, i.Metadata.Name+" cpu="+usage.Cpu().String())
			}
		}
		got := strings.Join(all, " ")
		if w.Code != 200 {
			got = strings.TrimSpace(strings.Split(w.Result().Status, " ")[0])
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
