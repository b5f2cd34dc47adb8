package e2e

import (
	"flag"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"navarch.io/navarch/loadtest/edge"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// shortTraffic is the time of TestGatewayUnderTraffic in `make test`, beside all other tests.
const shortTraffic = 20 * time.Second

var gatewayTraffic = flag.Duration("gateway-traffic", shortTraffic, "how long TestGatewayUnderTraffic sends requests")

// A real Envoy gateway serves HTTP and HTTPS on kept and new connections, while everything that its routes lead by
// changes. No request fails, goes to a wrong backend or is answered by older routes than one before it; no certificate,
// host or server replaces a listener.
func TestGatewayUnderTraffic(t *testing.T) {
	parallel(t)
	at := loopback.NetFor(t)
	data, dir := t.TempDir(), t.TempDir()
	m, err := edge.New(edge.Options{Dir: dir, Net: at, Plain: gatewayAddress(t, at), TLS: gatewayAddress(t, at), Sites: 8, Rate: 1300,
		Pace: 400 * time.Millisecond, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	p := runAgent(t, d, data, filepath.Join(data, "root-cert.pem"), "gateway", at+".7", "--type", "router")
	eventually(t, patience, func() error { return m.Ready(t.Context()) })
	report, err := m.Run(t.Context(), *gatewayTraffic)
	t.Log(report)
	if err != nil {
		t.Error(err)
	}
	for _, f := range report.Failures[:min(10, len(report.Failures))] {
		t.Error(f)
	}
	sufficient(t, report)
	stats, err := envoytest.Stats(p.admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"} {
		if stats[name] != 0 {
			t.Errorf("%s is %d", name, stats[name])
		}
	}
	modified, inPlace := stats["listener_manager.listener_modified"], stats["listener_manager.listener_in_place_updated"]
	if modified == 0 || modified != inPlace || stats["listener_manager.listener_added"] > 4 {
		t.Errorf("%d listeners modified, %d of them in place, %d added", modified, inPlace, stats["listener_manager.listener_added"])
	}
}

// gatewayAddress returns an address for a server of the gateway, at its own IP address.
func gatewayAddress(t *testing.T, at string) string {
	t.Helper()
	return net.JoinHostPort(at+".7", strconv.Itoa(loopback.PortFor(t)))
}

// sufficient checks that there were enough requests and changes: of a long run 1,000 a second and 3,000 in ten minutes,
// each kind 100 times; of a short one, beside all other tests, 50 a second, and each kind at least once.
func sufficient(t *testing.T, r *edge.Report) {
	t.Helper()
	rate, total, each := 50., 30, 1
	if *gatewayTraffic > shortTraffic {
		minutes := int(gatewayTraffic.Minutes())
		rate, total, each = 1000, 300*minutes, 10*minutes
	}
	if r.Rate() < rate || r.Total() < total {
		t.Errorf("%.0f requests a second, at least %.0f are needed; %d changes of %d", r.Rate(), rate, r.Total(), total)
	}
	for _, kind := range edge.Kinds() {
		if n := r.Changes[kind].Count; n < each {
			t.Errorf("%s: %d changes, at least %d are needed", kind, n, each)
		}
	}
}
