package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"navarch.io/navarch/deploy/demo/traffic/count"
)

// tally counts the sent requests. Any goroutine may use it.
type tally struct {
	mu    sync.Mutex
	count count.Report
}

func (t *tally) add(workload, protocol, version, peer string, err error, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count.Workloads == nil {
		t.count.Workloads = map[string]*count.Workload{}
	}
	w := t.count.Workloads[workload]
	if w == nil {
		w = &count.Workload{Protocols: map[string]*count.Protocol{}, Last: map[string]time.Time{}}
		t.count.Workloads[workload] = w
	}
	p := w.Protocols[protocol]
	if p == nil {
		p = &count.Protocol{}
		w.Protocols[protocol] = p
	}
	p.Sent++
	if err != nil {
		p.Failed++
		p.LastFailure = fmt.Sprintf("%s: %v", at.Format(time.StampMilli), err)
		return
	}
	if version != "" {
		w.Last[version] = at
	}
	if peer != "" {
		w.Caller = peer
	}
}

// report answers with the counts, and the number of Envoy's retries.
func (c *client) report(w http.ResponseWriter, r *http.Request) {
	retries, err := c.retries(r)
	if err != nil {
		http.Error(w, "statistics of Envoy: "+err.Error(), http.StatusBadGateway)
		return
	}
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	c.tally.count.Retries, c.tally.count.At = retries, time.Now()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&c.tally.count) // fails if the client is gone
}

// retries returns the number of retries of all clusters.
func (c *client) retries(r *http.Request) (int, error) {
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet,
		c.envoy+"/stats?format=json&filter="+url.QueryEscape(`^cluster\..*\.upstream_rq_retry$`), nil)
	if err != nil {
		return 0, err
	}
	got, err := http.DefaultClient.Do(ask)
	if err != nil {
		return 0, err
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return 0, errors.New(got.Status)
	}
	var page struct{ Stats []struct{ Value int } }
	if err := json.NewDecoder(got.Body).Decode(&page); err != nil {
		return 0, err
	}
	sum := 0
	for _, s := range page.Stats {
		sum += s.Value
	}
	return sum, nil
}
