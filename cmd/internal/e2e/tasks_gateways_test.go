package e2e

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// taskGateways has the Pods of both gateways, which may read the Secrets of their namespace. edge is for ingress and
// egress. front expects the PROXY protocol of its load balancer.
const taskGateways = `---
apiVersion: v1
kind: Pod
metadata: {name: edge-0, namespace: shop, labels: {istio: edge}}
spec: {serviceAccountName: edge, containers: [{name: istio-proxy, image: auto}]}
status: {phase: Running, podIP: NET.4, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: front-0, namespace: shop, labels: {istio: front}}
spec: {serviceAccountName: edge, containers: [{name: istio-proxy, image: auto}]}
status: {phase: Running, podIP: NET.5, conditions: [{type: Ready, status: "True"}]}
---`

// gateways starts both gateways.
func (s *taskStage) gateways(t *testing.T, d *daemon, data, roots string) {
	t.Helper()
	for name, own := range map[string]struct {
		address string
		env     []string
	}{
		"edge":  {".4", nil},
		"front": {".5", []string{`PROXY_CONFIG={"gatewayTopology":{"proxyProtocol":{}}}`}},
	} {
		s.proxies[name] = runAgentProgram(t, d, binary(t, "navarch-agent"), token(t, data, "shop", "edge"), roots, name, s.at+own.address,
			append(own.env, "SERVICE_ACCOUNT=edge", fmt.Sprintf(`ISTIO_METAJSON_LABELS={"istio":%q}`, name)), "--type", "router")
	}
}

// serveGateways starts what gateways lead to, or ask: a server with TLS outside of the mesh that wants a certificate of
// its clients, one that tells headers, and an authoriser that sends browsers to a page to log in.
func (s *taskStage) serveGateways(ext tls.Certificate) {
	s.t.Helper()
	client := newSite(s.t, 7)
	ca, err := os.ReadFile(s.ca)
	if err != nil {
		s.t.Fatal(err)
	}
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	s.filled = []string{"$TLS_CRT", encode(client.cert), "$TLS_KEY", encode(client.key), "$CA_CRT", encode(string(ca))}
	serve := func(l net.Listener, f http.HandlerFunc) {
		server := &http.Server{Handler: f}
		s.t.Cleanup(func() { _ = server.Close() })
		go func() { _ = server.Serve(l) }()
	}
	wants := &tls.Config{Certificates: []tls.Certificate{ext}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: client.pool}
	serve(tls.NewListener(s.listen(".9:8444"), wants), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-App", "ext,"+r.TLS.PeerCertificates[0].Subject.CommonName)
	})
	serve(s.listen(".7:8601"), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-App", r.Header.Get(filepath.Base(r.URL.Path)))
	})
	serve(s.listen(".8:8502"), func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie("session"); err != nil || c.Value != "good" {
			http.SetCookie(w, &http.Cookie{Name: "state", Value: "begun"})
			http.Redirect(w, r, "https://login.example.com"+r.URL.Path, http.StatusFound)
			return
		}
		w.Header().Set("X-Auth-Request-User", "somebody")
	})
}

// proxied returns a dialler of connections that begin with the header of the PROXY protocol for a client's address.
func proxied(client string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		to, port, _ := net.SplitHostPort(address)
		if _, err := io.WriteString(c, fmt.Sprintf("PROXY TCP4 %s %s 40000 %s\r\n", client, to, port)); err != nil {
			c.Close()
			return nil, err
		}
		return c, nil
	}
}

// unverified is the configuration of a client that looks at no certificate, for a server name.
func unverified(name string) *tls.Config {
	return &tls.Config{ServerName: name, InsecureSkipVerify: true} //nolint:gosec // who answers is in the answer
}
