package metrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Running is a running container.
type Running struct {
	Pod       *corev1.Pod // the newest version
	IP        string
	Container string
	PID       int // the first process, as this process sees it
}

// podMetrics are the samples of one Pod.
type podMetrics struct {
	pod        *corev1.Pod
	containers map[string]*containerMetrics
	page       map[string]series // samples of its metrics page: for each metric the sum over all labels
	seen       bool
}

type containerMetrics struct {
	pid          int
	cpu, memory  series
	stillRunning bool
}

// Collector samples every container and every metrics page once a second.
type Collector struct {
	running func() []Running
	client  *http.Client
	mu      sync.Mutex
	pods    map[types.UID]*podMetrics
}

// NewCollector returns a collector for the containers that `running` returns. Pages are read over the network of this
// process.
func NewCollector(running func() []Running) *Collector {
	return &Collector{running: running, client: &http.Client{Timeout: time.Second}, pods: map[types.UID]*podMetrics{}}
}

// Run collects until ctx ends. The error is nil; unreadable values have no sample.
func (c *Collector) Run(ctx context.Context) error {
	for {
		all := c.running()
		c.take(all, usages(), time.Now())
		c.readPages(ctx, all)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// take adds a sample of each container, and removes containers that no longer run.
func (c *Collector) take(all []Running, used map[string]usage, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		p.seen = false
		for _, one := range p.containers {
			one.stillRunning = false
		}
	}
	for _, r := range all {
		space, err := spaceOf(r.PID)
		if err != nil {
			continue // the container has just ended
		}
		p := c.pods[r.Pod.UID]
		if p == nil {
			p = &podMetrics{containers: map[string]*containerMetrics{}, page: map[string]series{}}
			c.pods[r.Pod.UID] = p
		}
		p.pod, p.seen = r.Pod, true
		one := p.containers[r.Container]
		if one == nil || one.pid != r.PID {
			one = &containerMetrics{pid: r.PID}
			p.containers[r.Container] = one
		}
		one.stillRunning = true
		one.cpu, one.memory = one.cpu.add(at, used[space].seconds, true), one.memory.add(at, used[space].bytes, false)
	}
	for uid, p := range c.pods {
		for name, one := range p.containers {
			if !one.stillRunning {
				delete(p.containers, name)
			}
		}
		if !p.seen {
			delete(c.pods, uid)
		}
	}
}

// readPages reads the pages of all Pods with one, concurrently.
func (c *Collector) readPages(ctx context.Context, all []Running) {
	var work sync.WaitGroup
	asked := map[types.UID]bool{}
	for _, r := range all {
		url := pageOf(r.Pod, r.IP)
		if url == "" || asked[r.Pod.UID] {
			continue
		}
		asked[r.Pod.UID] = true
		work.Go(func() {
			families, err := c.read(ctx, url)
			if err != nil {
				return // not up yet, or overloaded: without samples the metric disappears
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if p := c.pods[r.Pod.UID]; p != nil {
				p.page = sums(p.page, families, time.Now())
			}
		})
	}
	work.Wait()
}

// pageOf returns the URL of a Pod's metrics page, from its annotations; empty: it has no page.
func pageOf(pod *corev1.Pod, ip string) string {
	a := pod.Annotations
	if a["prometheus.io/scrape"] != "true" || a["prometheus.io/port"] == "" {
		return ""
	}
	path := a["prometheus.io/path"]
	if path == "" {
		path = "/metrics"
	}
	return "http://" + net.JoinHostPort(ip, a["prometheus.io/port"]) + path
}

func (c *Collector) read(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(answer.Body)
}

// sums adds a sample of each counter and gauge of a page.
func sums(old map[string]series, families map[string]*dto.MetricFamily, at time.Time) map[string]series {
	all := map[string]series{}
	for name, family := range families {
		var sum float64
		switch family.GetType() {
		case dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_UNTYPED:
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
			}
		default:
			continue
		}
		all[name] = old[name].add(at, sum, family.GetType() == dto.MetricType_COUNTER)
	}
	return all
}
