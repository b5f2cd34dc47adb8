package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// haveSamples returns a check that each of the metrics has a sample above zero.
func (d *daemon) haveSamples(names ...string) func() error {
	return func() error {
		page, err := get(d.monitoring, "/metrics")
		if err != nil {
			return err
		}
		var missing []string
		for _, name := range names {
			found := false
			for line := range strings.Lines(page) {
				rest, ok := strings.CutPrefix(line, name)
				found = found || ok && strings.HasPrefix(rest, " ") && strings.TrimSpace(rest) != "0"
			}
			if !found {
				missing = append(missing, name)
			}
		}
		if missing != nil {
			return fmt.Errorf("no sample above zero: %v", missing)
		}
		return nil
	}
}

// The environment's debouncing takes effect: an endpoint waits like configuration, up to the maximum, because the quiet
// time is longer. By Navarch's defaults endpoints do not wait; the maximum is 10 s and the quiet time 0.1 s.
func TestDebounceOfTheEnvironment(t *testing.T) {
	parallel(t)
	const most = 12 * time.Second
	dir := folder(t)
	d := startProgram(t, navarchd(t), []string{"PILOT_DEBOUNCE_AFTER=1m", "PILOT_DEBOUNCE_MAX=" + most.String(), "PILOT_ENABLE_EDS_DEBOUNCE=true"},
		"--config-dir", dir, "--data-dir", t.TempDir())
	eventually(t, patience, serves(t, d, 1)) // joining proxies do not wait
	count, sum := d.mustValue(t, "pilot_debounce_time_count"), d.mustValue(t, "pilot_debounce_time_sum")
	write(t, dir, "services.yaml", strings.Replace(services, "10.1.0.2]", "10.1.0.3]", 1))
	eventually(t, patience, func() error {
		if d.value("pilot_debounce_time_count") == count {
			return errors.New("no plan of configuration")
		}
		return nil
	})
	if waited := d.mustValue(t, "pilot_debounce_time_sum") - sum; waited < most.Seconds() {
		t.Errorf("planned after %v s, want %v", waited, most)
	}
}

// The metrics of dashboards change after one proxy, one good edit and one bad edit.
func TestMetricsMove(t *testing.T) {
	parallel(t)
	dir := folder(t)
	d := start(t, "--config-dir", dir, "--data-dir", t.TempDir())
	eventually(t, patience, serves(t, d, 1))
	follow(t, d)
	write(t, dir, "rule.yaml", badFilter)
	write(t, dir, "bad.yaml", strings.NewReplacer("name: web,", "name: bad,", "timeout: 1s", "timeout: soon").Replace(routes(1)))
	eventually(t, patience, d.haveSamples(
		`pilot_xds{version=""}`, `pilot_xds_pushes{type="cds"}`, `pilot_xds_pushes{type="lds"}`, `pilot_xds_push_time_count{type="cds"}`,
		`pilot_xds_send_time_count`, `pilot_xds_config_size_bytes_count{type="cds"}`, `pilot_proxy_convergence_time_count`,
		`pilot_proxy_queue_time_count`, `pilot_debounce_time_count`, `pilot_push_triggers{type="config"}`,
		`pilot_inbound_updates{type="DestinationRule"}`, `pilot_services`, `pilot_virt_services`, `pilot_total_rejected_configs{kind="VirtualService"}`,
		`pilot_info{version="dev"}`, `istiod_uptime_seconds`, `navarch_proxies`, `navarch_views{layer="scope"}`, `navarch_views{layer="workload"}`,
		`navarch_builds_total{type="cds"}`, `navarch_builds_total{type="eds"}`, `navarch_virtual_host_builds_total`, `navarch_pooled{what="resources"}`,
		`navarch_pooled{what="virtual_hosts"}`, `navarch_shared_bytes_total`, `navarch_revision`, `navarch_propagation_seconds_count`,
		`navarch_ack_seconds_count`, `navarch_leader`, `navarch_store_writes_total{op="put"}`, `navarch_problems{severity="error"}`))
}
