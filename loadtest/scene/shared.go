package scene

import (
	"context"
	"net/http"
	"time"

	"navarch.io/navarch/loadtest/gauge"
)

// viewsMetric counts the servers' planned views by layer; a layer may be shared by many proxies.
const viewsMetric = "navarch_views"

// shared adds rows about the shared part of the servers' plans: scopes and other layers of views, of all replicas
// together. For a server without the metric it adds none.
func (s *stage) shared() {
	layers, err := s.layers()
	if err != nil {
		s.note("The servers' plans for the proxies could not be read: %v.", err)
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

// layers returns the number of views of all replicas by layer; empty without the metric.
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

// metrics reads the metrics page of one server.
func (s *Server) metrics(ctx context.Context) (gauge.Samples, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return gauge.Scrape(ctx, http.DefaultClient, "http://"+s.Metrics+"/metrics")
}
