package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/loopback"
)

// readyWithin is the time in which a gateway has to be ready, whatever tenants write.
const readyWithin = 10 * time.Second

// attackedGateway is a Gateway of the operators, and what a tenant of namespace evil writes: a Gateway whose Secret is
// missing, another at an address that the gateway does not have, a name that does not resolve, and endpoints that are
// the gateway's own administration and its status.
func attackedGateway(ip, admin, status string) string {
	_, adminPort, _ := net.SplitHostPort(admin)
	_, statusPort, _ := net.SplitHostPort(status)
	entry := func(host, resolution, port, address string) string {
		return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: evil}
spec: {hosts: [%[1]s.test], resolution: %[2]s, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP, targetPort: %[3]s}], endpoints: [{address: %[4]s}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: evil}
spec: {hosts: [%[1]s.test], gateways: [shop/front], http: [{route: [{destination: {host: %[1]s.test}}]}]}
`, host, resolution, port, address)
	}
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {selector: {app: front}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, bind: %[1]s, hosts: ['*']}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: tls, namespace: evil}
spec: {selector: {app: front}, servers: [{port: {number: 8443, name: https, protocol: HTTPS}, bind: %[1]s, hosts: [evil.test], tls: {mode: SIMPLE, credentialName: missing}}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: elsewhere, namespace: evil}
spec: {selector: {app: front}, servers: [{port: {number: 8081, name: http, protocol: HTTP}, bind: 192.0.2.1, hosts: ['*']}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: fine, namespace: shop}
spec: {hosts: [fine.test], gateways: [shop/front], http: [{directResponse: {status: 200, body: {string: fine}}}]}
`, ip) + entry("admin", "STATIC", adminPort, "127.0.0.1") + entry("status", "STATIC", statusPort, "127.0.0.1") +
		entry("name", "DNS", adminPort, "localhost") + entry("gone", "DNS", "80", "does-not-exist.invalid")
}

// requested returns the status and body of a request to a gateway with a Host.
func requested(ip, host string) (int, string, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+ip+":8080/", nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// A tenant's missing Secret, address that cannot be bound, and names that do not resolve keep no new gateway from being
// ready within ten seconds, nor from serving others. The gateway's own administration and status are published by no
// ServiceEntry; the tenant is told.
// Promise: security-gateways.md#make-a-gateway-fail, security-gateways.md#publish-the-gateway-itself
func TestGatewayUnderAttack(t *testing.T) {
	parallel(t)
	ip, data, dir := loopback.NetFor(t)+".7", t.TempDir(), t.TempDir()
	admin, status := loopback.For(t), loopback.For(t)
	write(t, dir, "attack.yaml", attackedGateway(ip, admin, status))
	write(t, dir, "readers.yaml", readers("front"))
	d := startProgram(t, navarchd(t), []string{localDestinations + "=false"}, append(unlevelled, "--config-dir", dir, "--data-dir", data)...)
	eventually(t, patience, d.ready)
	began := time.Now()
	p := runAgentWith(t, d, data, filepath.Join(data, "root-cert.pem"), "front", ip, nil, "--type", "router")
	eventually(t, patience, func() error {
		page, err := p.page()
		if err == nil && !page.Ready {
			err = fmt.Errorf("not ready: %s", page.NotReady)
		}
		return err
	})
	if took := time.Since(began); took > readyWithin {
		t.Errorf("ready after %v", took)
	}
	if code, body, err := requested(ip, "fine.test"); code != http.StatusOK || body != "fine" {
		t.Errorf("the host of others: %d %q, %v", code, body, err)
	}
	for _, host := range []string{"admin", "status", "name", "gone"} {
		if code, body, err := requested(ip, host+".test"); code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %.200q, %v", host, code, body, err)
		}
	}
	eventually(t, patience, func() error {
		page, err := get(d.http, "/debug/problems")
		if err == nil && !strings.Contains(page, "192.0.2.1") {
			err = errors.New(page)
		}
		for _, name := range []string{"admin", "status", "name"} {
			if err == nil && !strings.Contains(page, "host "+name+".test: gateways do not get the endpoint") {
				err = errors.New(page)
			}
		}
		return err
	})
}
