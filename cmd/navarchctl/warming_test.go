package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// The table shows WARMING for the clusters of a proxy that warms some. The details show the beginning and the possible
// clusters.
func TestWarmingProxies(t *testing.T) {
	for body, want := range map[string][]string{
		`{"proxy": "web.shop", "revision": 7, "cluster_sent": "9", "cluster_acked": "3", "cluster_synced": false, "listener_sent": "8", "listener_acked": "8", "listener_synced": true,
			"cluster_warming": {"since": "2026-11-28T10:00:00Z", "clusters": ["outbound|80||a", "outbound|80||b"], "more": 2}}`: {
			"web.shop", "WARMING", "SYNCED", "WARMING since 2026-11-28T10:00:00Z", "outbound|80||a, outbound|80||b, or one of 2 others"},
		`{"proxy": "web.shop", "revision": 7, "cluster_sent": "9", "cluster_acked": "", "cluster_synced": false, "cluster_warming": {"not_requested": true}}`: {
			"WARMING", "connected again while a cluster warmed"},
	} {
		var p proxyStatus
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := statusTable(&out, []proxyStatus{p}, true, false); err != nil {
			t.Fatal(err)
		}
		for _, word := range want {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%q is missing in\n%s", word, out.String())
			}
		}
		if len(faulty([]proxyStatus{p})) != 0 {
			t.Error("a proxy that warms clusters is not faulty")
		}
	}
}
