package scene

import (
	"context"
	"net/http"
	"time"

	"navarch.io/navarch/loadtest/gauge"
)

// viewsMetric counts what the servers have planned, by layer: what many proxies share.
const viewsMetric = "navarch_views"

// shared adds how much of what the servers have planned is shared by proxies: scopes and the other layers of their views,
// all replicas together. A server that has no such metric has none of these rows.
func (s *stage) shared() {
	layers, err := s.layers()
	if err != nil {
		s.note("What the servers have planned for the proxies could not be read: %v.", err)
		return
	}
	if len(layers) == 0 {
		return
	}
	for _, layer := range []string{"scope", "variant", "workload", "overlay"} {
		s.row("planned: "+layer, "", layers[layer])
	}
	s.row(rowScopes, "%", 100*layers["scope"]/float64(s.proxies()))
}

// layers are the views of all replicas by layer; empty where no metrics page is known, or it does not tell.
func (s *stage) layers() (map[string]float64, error) {
	sum := map[string]float64{}
	for _, one := range s.servers {
		if one.Metrics == "" {
			continue
		}
		page, err := one.metrics(s.ctx)
		if err != nil {
			return nil, err
		}
		for layer, n := range page.By(viewsMetric, "layer") {
			sum[layer] += n
		}
	}
	return sum, nil
}

// metrics reads the page of one server.
func (s *Server) metrics(ctx context.Context) (gauge.Samples, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return gauge.Scrape(ctx, http.DefaultClient, "http://"+s.Metrics+"/metrics")
}
