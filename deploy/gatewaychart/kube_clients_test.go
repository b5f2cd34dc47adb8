//go:build kube

package gatewaychart

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"navarch.io/navarch/deploy/testcluster/cluster"
)

// clientPolicy refuses requests for /own to all clients but one, and requests for /others to this one.
const clientPolicy = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: clients, namespace: edge}
spec:
  selector: {matchLabels: {istio: ingressgateway}}
  action: DENY
  rules:
  - {from: [{source: {notRemoteIpBlocks: [ADDRESS]}}], to: [{operation: {paths: [/own]}}]}
  - {from: [{source: {remoteIpBlocks: [ADDRESS]}}], to: [{operation: {paths: [/others]}}]}
`

// keepsClients checks that policies see the addresses of clients once the Service has externalTrafficPolicy: Local.
// Until then they see the address of the node that forwards the connection.
func (e *edge) keepsClients() {
	own, _, err := e.asks("/")
	if err != nil {
		e.t.Fatal(err)
	}
	e.MustKubectl(e.t, strings.ReplaceAll(clientPolicy, "ADDRESS", own), "apply", "-f", "-")
	e.awaitStatuses("Cluster", http.StatusForbidden, http.StatusOK)
	ctx, cancel := context.WithTimeout(e.t.Context(), 4*time.Minute)
	defer cancel()
	if _, err := e.helm.Run(ctx, "upgrade", gatewayName, ".", "-n", "edge", "-f", "testdata/gateway.yaml",
		"--set", "service.externalTrafficPolicy=Local", "--wait", "--timeout=200s"); err != nil {
		e.t.Fatal(err)
	}
	e.awaitStatuses("Local", http.StatusOK, http.StatusForbidden)
}

// awaitStatuses waits until requests for /own and /others have these statuses.
func (e *edge) awaitStatuses(policy string, own, others int) {
	e.t.Helper()
	cluster.AwaitFor(e.t, 2*time.Minute, "externalTrafficPolicy: "+policy, func() string {
		for path, want := range map[string]int{"/own": own, "/others": others} {
			if from, got, err := e.asks(path); err != nil || got != want {
				return fmt.Sprintf("%s from %s: %d, want %d (%v)", path, from, got, want, err)
			}
		}
		return ""
	})
}

// asks makes a request on a new connection from outside of the nodes, and returns the client's address and the status.
func (e *edge) asks(path string) (from string, status int, err error) {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := e.load.dial(ctx, network, net.JoinHostPort(e.load.address, "80"))
		if err == nil {
			from, _, _ = net.SplitHostPort(conn.LocalAddr().String())
		}
		return conn, err
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := client.Get("http://" + shopHost + path)
	if err != nil {
		return from, 0, err
	}
	return from, resp.StatusCode, resp.Body.Close()
}
