package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// The port of an address is that of the gateway's Service, unless the address is the Pod's or the Pod listens at it.
// Promise: why.md#follow-a-request
func TestWhyTranslatesPorts(t *testing.T) {
	folder, node := edgeNode(t, edge+`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g, namespace: edge}
spec: {selector: {app: gw}, servers: [{port: {number: 443, name: t, protocol: HTTPS}, hosts: [x.test], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}},
  {port: {number: 80, name: h, protocol: HTTP}, hosts: [x.test]}]}
`)
	const translated = "port 443 of Service edge/gw is 8443 of the Pod\n"
	for _, c := range []struct{ address, url, want, absent string }{
		{"", "https://x.test/", translated, "nothing listens"},
		{"", "http://x.test/", "port 80 of Service edge/gw is 8080 of the Pod\n", "nothing listens"},
		{":443", "https://x.test/", translated, "nothing listens"},
		{"10.96.15.1", "https://x.test/", translated, "nothing listens"},
		{"10.96.15.1:443", "https://x.test/", translated, "nothing listens"},
		{"10.96.15.1:8443", "https://x.test/", "Service edge/gw, which has address 10.96.15.1, has no port 8443\n", "listener 0"},
		{":8443", "https://x.test/", "listener 0.0.0.0_8443", "of the Pod"},
		{"10.1.0.10:443", "https://x.test/", "nothing listens at 10.1.0.10:443", "of the Pod"},
		{":444", "https://x.test/", "nothing listens at 10.1.0.10:444", "of the Pod"},
	} {
		args := []string{"why", "--config-dir", folder, "--to", node, c.url}
		if c.address != "" {
			args = append(args, "--address", c.address)
		}
		if out, _, err := ran(args...); err != nil || !strings.Contains(out, c.want) || strings.Contains(out, c.absent) {
			t.Errorf("%s %s: %v, want %q\n%s", c.address, c.url, err, c.want, out)
		}
	}
}

// authz check examines the ports that the scheme or the port of a URL means, and all ports for a path.
func TestAuthzExaminesThePortsOfAURL(t *testing.T) {
	folder, node := edgeNode(t, edge+`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g, namespace: edge}
spec: {selector: {app: gw}, servers: [{port: {number: 443, name: t, protocol: HTTPS}, hosts: [x.test], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}},
  {port: {number: 80, name: h, protocol: HTTP}, hosts: [x.test]}]}
`)
	for url, want := range map[string]string{"http://x.test/": "8080 ", "https://x.test/": "8443 ", "http://x.test:8443/": "8443 ",
		"http://x.test:443/": "8443 ", "http://x.test:81/": "8080 8443 ", "/": "8080 8443 "} {
		out, _, _ := ran("authz", "check", "--config-dir", folder, "--to", node, "GET", url)
		ports := ""
		for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
			ports += strings.Fields(line)[0] + " "
		}
		if ports != want {
			t.Errorf("%s: ports %s, want %s\n%s", url, ports, want, out)
		}
	}
}

// For a log line of a connection without HTTP, why names a command that runs.
func TestWhyLogOfAConnection(t *testing.T) {
	folder, node := edgeNode(t, edge+`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g, namespace: edge}
spec: {selector: {app: gw}, servers: [{port: {number: 443, name: t, protocol: HTTPS}, hosts: [x.test], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}]}
`)
	const line = `[2024-01-01T00:00:00.000Z] "- - -" 0 NR filter_chain_not_found - "-" 0 0 0 - "-" "-" "-" "-" "-" - - %s 10.9.9.9:1 %s -`
	for _, c := range [][3]string{{"10.1.0.10:8443", "x.test", "tls://x.test --address 10.1.0.10:8443"}, {"10.1.0.10:8443", "-", "tcp://10.1.0.10:8443"}} {
		_, _, err := ran("why", "--config-dir", folder, "--to", node, "--log", fmt.Sprintf(line, c[0], c[1]))
		_, command, found := strings.Cut(fmt.Sprint(err), "use navarchctl ")
		if !found || !strings.Contains(command, "why --to "+node+" "+c[2]) {
			t.Fatal(err)
		}
		if out, _, err := ran(strings.Fields(command)...); err != nil || !strings.Contains(out, "listener 0.0.0.0_8443") {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// The request that describe suggests for a Gateway reaches a listener, also if all servers are HTTPS.
func TestDescribeSuggestsAPortThatWorks(t *testing.T) {
	folder, node := edgeNode(t, edge+`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g, namespace: edge}
spec: {selector: {app: gw}, servers: [{port: {number: 443, name: t, protocol: HTTPS}, hosts: [x.test], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: edge}
spec: {hosts: [x.test], gateways: [g], http: [{directResponse: {status: 418}}]}
`)
	_, next, err := ran("describe", "gateway", "g.edge", "--config-dir", folder, "--proxy", node)
	found := regexp.MustCompile(`next: navarchctl (why .*?)  # `).FindStringSubmatch(next)
	if err != nil || found == nil {
		t.Fatalf("%v: %s", err, next)
	}
	if out, _, err := ran(strings.Fields(found[1])...); err != nil || !strings.Contains(out, "answers 418") {
		t.Errorf("%s: %v\n%s", found[1], err, out)
	}
}
