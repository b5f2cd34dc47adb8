//go:build !race

package plan

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// numberedGateway returns a Gateway of n servers.
func numberedGateway(t testing.TB, name string, n int, server func(i int) string) model.Record {
	var b strings.Builder
	for i := range n {
		b.WriteString(server(i) + ", ")
	}
	return rec(t, model.KindGateway, name, "{selector: {app: gw}, servers: ["+b.String()+"]}")
}

// numberedHosts returns a list of n host names.
func numberedHosts(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+", ", i)
	}
	return "[" + b.String() + "]"
}

// anyHost returns n/10 Gateways of ten servers that have the host "*" without TLS.
func anyHost(t testing.TB, n, age, port int) (all []model.Record) {
	for g := range n / 10 {
		all = append(all, numberedGateway(t, fmt.Sprintf("other/a%d@%d", g, age), 10, func(i int) string {
			return fmt.Sprintf("{port: {number: %d, name: p%d, protocol: HTTP}, hosts: ['*']}", port, i)
		}))
	}
	return all
}

// guardedHosts returns n servers with "*" without TLS, of an age, and 10n hosts that require client certificates.
// Another bind of the port makes the port take several servers without TLS.
func guardedHosts(t testing.TB, n, age int) []model.Record {
	return append(anyHost(t, n, age, 8443),
		numberedGateway(t, "edge/local@1", 1, func(int) string {
			return "{port: {number: 8443, name: p, protocol: HTTP}, bind: 127.0.0.1, hosts: ['*']}"
		}),
		numberedGateway(t, "edge/mutual@3", 1, func(int) string {
			return "{port: {number: 8443, name: p, protocol: HTTPS}, hosts: " + numberedHosts(10*n, "h%d.test") + ", tls: {mode: MUTUAL, credentialName: c}}"
		}))
}

// The work for a gateway doubles if a tenant doubles the servers with "*" and the hosts of the same port. The servers
// are not visited for each host.
// Promise: security-gateways.md#make-a-gateway-fail
func TestServersAndHostsAreLinear(t *testing.T) {
	for name, records := range map[string]func(n int) []model.Record{
		"hosts with httpsRedirect": func(n int) []model.Record {
			return append(anyHost(t, n, 1, 80), numberedGateway(t, "other/b@2", 1, func(int) string {
				return "{port: {number: 80, name: p, protocol: HTTP}, hosts: " + numberedHosts(10*n, "h%d.test") + ", tls: {httpsRedirect: true}}"
			}))
		},
		"hosts that require client certificates, with older servers":   func(n int) []model.Record { return guardedHosts(t, n, 2) },
		"hosts that require client certificates, with younger servers": func(n int) []model.Record { return guardedHosts(t, n, 4) },
		"hosts of a VirtualService at equal servers": func(n int) []model.Record {
			return []model.Record{
				numberedGateway(t, "other/a@1", n, func(i int) string {
					return fmt.Sprintf("{port: {number: 80, name: p%d, protocol: HTTP}, hosts: ['*']}", i)
				}),
				rec(t, model.KindVirtualService, "other/v@2", "{hosts: "+numberedHosts(10*n, "h%d.test")+", gateways: [other/a], http: [{directResponse: {status: 204}}]}"),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			allocated := func(n int) float64 {
				p := New(Settings{Snapshot: snapshot(records(n)...)})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				p.Join(routerOf("edge", "gw"))
				runtime.ReadMemStats(&after)
				return float64(after.TotalAlloc - before.TotalAlloc)
			}
			few, many := allocated(200), allocated(400)
			if t.Logf("%.0f bytes for 200 servers, %.0f for 400", few, many); many > 2.3*few {
				t.Errorf("a join allocates %.0f bytes for 200 servers and 2,000 hosts, and %.0f for twice as many", few, many)
			}
		})
	}
}
