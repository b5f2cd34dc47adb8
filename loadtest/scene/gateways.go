package scene

import (
	"fmt"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/proxy"
)

// Rows of the suite gateways.
const (
	rowShare       = "event to bytes received, p99"
	rowBeyond      = "edit to 200, p99, beyond Envoy's own"
	rowBeyondRate  = "edit to 200 at 5 edits a second, p99, beyond Envoy's own and two rebuilds"
	rowFlapping    = "control plane, cores"
	rowEditBytes   = rowPerProxy + " and edit"
	rowReplicaRSS  = "RSS of a replica"
	rowRoutesRSS   = "RSS of a replica for 1,000 routes"
	rowEnvoyMemory = "RSS of Envoy"
)

// gatewayParts are the scenarios of the suite gateways. Each part has a world and servers of its own: a part is a row
// here, with a function that plays it.
var gatewayParts = []Scenario{
	{Name: "gateway-edit", Title: "3,000 routes of one gateway, and one more each time",
		World: "front", Proxies: 1, routers: true, run: gatewayEdit, Targets: map[string]Target{rowShare: {Value: 15}}},
	{Name: "gateway-envoy", Title: "3,000 routes of a real Envoy, and one more each time, until it answers",
		World: "front", Proxies: 1, routers: true, Envoy: true, change: answered, run: gatewayEnvoy, Limit: 10 * time.Minute,
		Targets: map[string]Target{rowBeyond: {Value: 25}, rowBeyondRate: {Value: 25}}},
	{Name: "gateway-flap", Title: "5,000 routes in 50 namespaces, an endpoint of each namespace comes or goes each second",
		World: "front", Proxies: 1, routers: true, change: routes(5000, 0), run: gatewayFlap, Targets: map[string]Target{rowFlapping: {Value: .05}}},
	{Name: "gateway-listeners", Title: "2,500 HTTPS servers of 50 Gateways, 40,000 routes; a route is edited",
		World: "front", Proxies: 2, Replicas: 2, routers: true, change: routes(40000, 2500), run: gatewayListeners, Limit: 15 * time.Minute,
		env:     []string{"GOMEMLIMIT=" + tenantMost},
		Targets: map[string]Target{rowEditBytes: {Value: 50}, rowReplicaRSS: {Value: 1000}}},
	{Name: "gateway-memory", Title: "1,000 routes come to a gateway",
		World: "front", Proxies: 2, Replicas: 2, routers: true, change: routes(1, 0), run: gatewayMemory, Targets: map[string]Target{rowRoutesRSS: {Value: 60}}},
	{Name: "gateway-filter", Title: "3,000 services, of which the 50 routes of a real Envoy need 50",
		World: "front", Proxies: 1, routers: true, Envoy: true, change: filtered, run: gatewayFilter,
		env: []string{"PILOT_FILTER_GATEWAY_CLUSTER_CONFIG=true"}, Targets: map[string]Target{rowEnvoyMemory: {Value: 90}}},
}

// routes sets the numbers of routes and of HTTPS servers.
func routes(n, listeners int) func(*mesh.Settings) {
	return func(s *mesh.Settings) {
		scale := float64(s.Routes) / 3000 // of the run: the preset has 3,000
		s.Routes, s.Listeners = max(1, int(scale*float64(n))), int(scale*float64(listeners))
	}
}

// router returns the identity of the i-th Pod of the gateway.
func (s *stage) router(i int) proxy.Identity {
	space := s.mesh.Namespaces()[0]
	return proxy.Identity{Type: "router", Namespace: space, Name: fmt.Sprintf("gateway-%d", i), Workload: "gateway", ServiceAccount: "gateway",
		IP: fmt.Sprintf("10.255.0.%d", 1+i), Labels: map[string]string{"istio": mesh.GatewayLabel}, View: "gateway"}
}

// pausing waits between two edits, so that each of them is a lone one.
const pausing = 250 * time.Millisecond

// additions returns how many routes are added one after the other; the first is a warm-up.
func (s *stage) additions() int { return max(3, int(float64(s.Repeats*20)*min(1, s.Scale))+1) }

// gatewayEdit adds one route after the other, and measures from the event at the leader to the last byte at a gateway.
func gatewayEdit(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	var share, commit, edited gauge.Histogram
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	n, first := s.additions(), s.mesh.Settings.Routes
	s.enter("adding routes")
	err = s.schedule(pausing, time.Duration(n)*pausing, func(i int, _ time.Time) error {
		e := s.churn.Route(first + i)
		probe, at, err := s.edit(e, s.watches(e))
		if err != nil {
			return err
		}
		committed, event, known := s.writer.wrote(s.ctx, e.Record, at)
		if !known {
			s.note("The server did not report the commit of some edits, which are not counted.")
			_, err := probe.Outcome(at)
			return err
		}
		o, err := probe.Outcome(event)
		if err != nil || o.Acked < o.Expected || i == 0 { // the first is a warm-up
			return err
		}
		share.Merge(o.Receive)
		commit.Record(committed.Sub(event))
		edited.Record(o.Receive.Max() + event.Sub(at))
		return nil
	})
	if err != nil {
		return err
	}
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	s.row(rowShare, "ms", ms(share.Quantile(.99)))
	s.row("event to bytes received, median", "ms", ms(share.Quantile(.5)))
	s.row("event to commit, p99", "ms", ms(commit.Quantile(.99)))
	s.row("edit of the file to bytes received, median", "ms", ms(edited.Quantile(.5)))
	s.row(rowEditBytes, "KB", float64(after.Since(before).Total().BytesIn)/1e3/float64(n)/float64(s.proxies()))
	s.latency("event to bytes received", &share)
	return s.equal()
}

// gatewayFlap changes the readiness of one endpoint in each namespace once a second.
func gatewayFlap(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	spaces, n := len(s.mesh.Namespaces()), s.mesh.Settings.Services
	flap := func(i int, _ time.Time) error {
		for k := range spaces {
			if _, err := s.churn.ToggleReadiness((i/2*spaces + k) % n).Apply(); err != nil {
				return err
			}
		}
		return nil
	}
	span := s.span(30 * time.Second)
	s.enter("nothing changes")
	idle, _ := usage(s.watched())
	if err := s.pause("nothing changes", span/3); err != nil {
		return err
	}
	cpu, _ := usage(s.watched())
	s.cost("control plane while nothing changes, cores", "", (cpu-idle).Seconds()/(span/3).Seconds())
	s.enter("endpoints flap")
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	if err := s.schedule(time.Second, span, flap); err != nil {
		return err
	}
	now, _ := usage(s.watched())
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	s.cost(rowFlapping, "", (now-cpu).Seconds()/span.Seconds())
	s.row("bytes per proxy and second", "KB", float64(after.Since(before).Total().BytesIn)/1e3/span.Seconds()/float64(s.proxies()))
	return s.equal()
}

// gatewayListeners edits routes of a gateway with very many HTTPS servers.
func gatewayListeners(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	f := &effects{}
	if err := s.repeat("editing a route", f, func(i int) error { return s.apply(s.churn.Route(i*7), f) }); err != nil {
		return err
	}
	f.report(s, "one route of many")
	if _, err := s.replicaRSS(rowReplicaRSS); err != nil {
		return err
	}
	return s.equal()
}

// replicaRSS adds a row with the settled memory of one replica, the mean of all, in MB.
func (s *stage) replicaRSS(row string) (mb float64, err error) {
	_, peak := usage(s.watched())
	if _, err := s.settledMemory(peak); err != nil {
		return 0, err
	}
	_, rss := usage(s.servers)
	mb = float64(rss) / 1e6 / float64(len(s.servers))
	s.cost(row, "MB", mb)
	return mb, nil
}

// gatewayMemory adds 1,000 routes at once.
func gatewayMemory(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	before, err := s.replicaRSS("RSS of a replica without routes")
	if err != nil {
		return err
	}
	f := &effects{}
	if err := s.apply(s.churn.Routes(1, 1+max(1, int(1000*s.Scale))), f); err != nil {
		return err
	}
	after, err := s.replicaRSS("RSS of a replica with routes")
	if err != nil {
		return err
	}
	s.cost(rowRoutesRSS, "MB", after-before)
	return s.equal()
}
