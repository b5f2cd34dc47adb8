package inspect

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

// /debug/syncz states since when a proxy warms clusters, and which they may be; other proxies have no such entry.
func TestWarmingIsSaid(t *testing.T) {
	warms, fine := Stream{Proxy: "web.shop", Node: "sidecar~1.1.1.1~web.shop~x"}, Stream{Proxy: "db.shop", Node: "sidecar~1.1.1.2~db.shop~x"}
	warms.Types[xds.Cluster] = TypeStatus{Subscribed: true, Sent: "2", Acked: "1",
		Warming: &Warming{Since: time.Unix(1_700_000_000, 0).UTC(), Clusters: []string{"outbound|80||partner.example"}, More: 3}}
	fine.Types[xds.Cluster] = TypeStatus{Subscribed: true, Synced: true, Sent: "2", Acked: "2"}
	s := httptest.NewServer(Handler(Config{Streams: func(string) []Stream { return []Stream{warms, fine} }}))
	defer s.Close()
	_, body := visit(t, s, "/debug/syncz")
	for _, word := range []string{`"cluster_warming": {`, `"since": "2023-11-14T22:13:20Z"`, `"outbound|80||partner.example"`, `"more": 3`} {
		if strings.Count(body, word) != 1 {
			t.Errorf("syncz does not say %s once: %s", word, body)
		}
	}
}
