package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"navarch.io/navarch/store/loopback"
)

// someNet is the placeholder for the addresses of a test (loopback.NetFor).
const someNet = "127.0.88"

// shopMesh is two workloads without redirection, each with a proxy on its own loopback address: client calls server.
const shopMesh = `
apiVersion: v1
kind: Service
metadata: {name: server, namespace: shop}
spec: {clusterIP: 10.96.0.20, selector: {app: server}, ports: [{name: http, port: 8000, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: server-0, namespace: shop, labels: {app: server, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: server, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: 127.0.88.2, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: server-1, namespace: shop, labels: {kubernetes.io/service-name: server}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [127.0.88.2], conditions: {ready: true}, targetRef: {kind: Pod, name: server-0, namespace: shop}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: server, namespace: shop}
spec:
  workloadSelector: {labels: {app: server}}
  ingress: [{port: {number: 8080, protocol: HTTP, name: http}, bind: 127.0.88.2, captureMode: NONE, defaultEndpoint: "0.0.0.0:9080"}]
  egress: [{hosts: ["./*"]}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client, namespace: shop}
spec:
  workloadSelector: {labels: {app: client}}
  egress: [{port: {number: 8000, protocol: HTTP, name: http}, bind: 127.0.88.1, captureMode: NONE, hosts: ["./*"]}]
`

func peers(mode string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\nspec: {mtls: {mode: %s}}\n", mode)
}

// call requests a page with the Host of the server, and returns the status and the caller's identity that the server
// saw.
func call(address string) (status int, identity string, err error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = "server.shop.svc.cluster.local"
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// seenBy starts an application that answers with the caller's identity as its proxy states it.
func seenBy(t *testing.T, address string) {
	t.Helper()
	app, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	backend := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Forwarded-Client-Cert"))
	})}
	go func() { _ = backend.Serve(app) }()
	t.Cleanup(func() { backend.Close() })
}

// Two real Envoys with agents use mTLS: PERMISSIVE accepts both, STRICT refuses plain text and accepts the mesh,
// DISABLE accepts plain text only. The server sees the caller's identity. Changes arrive live.
func TestMutualTLS(t *testing.T) {
	parallel(t)
	at := loopback.NetFor(t)
	seenBy(t, at+".2:9080")
	data, dir := t.TempDir(), t.TempDir()
	write(t, dir, "mesh.yaml", strings.ReplaceAll(shopMesh, someNet, at))
	write(t, dir, "peers.yaml", peers("PERMISSIVE"))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	startAgent(t, d, data, "client", at+".1")
	startAgent(t, d, data, "server", at+".2")

	inside, plain := at+".1:8000", at+".2:8080" // through the client's proxy; straight to the server's
	meshed := func() error {
		status, seen, err := call(inside)
		if err != nil || status != 200 || !strings.Contains(seen, "URI=spiffe://cluster.local/ns/shop/sa/client") {
			return fmt.Errorf("through both proxies: %d %q %v", status, seen, err)
		}
		return nil
	}
	open := func() error {
		if status, seen, err := call(plain); err != nil || status != 200 || seen != "" {
			return fmt.Errorf("plain text: %d %q %v", status, seen, err)
		}
		return nil
	}
	refused := func() error {
		status, _, err := call(plain)
		if waited, is := errors.AsType[net.Error](err); err == nil || is && waited.Timeout() {
			return fmt.Errorf("plain text is not refused: %d %v", status, err)
		}
		return nil
	}
	eventually(t, patience, meshed)
	eventually(t, patience, open)
	write(t, dir, "peers.yaml", peers("STRICT"))
	eventually(t, patience, refused)
	eventually(t, patience, meshed)
	write(t, dir, "peers.yaml", peers("DISABLE"))
	eventually(t, patience, open)
	eventually(t, patience, func() error {
		if status, seen, err := call(inside); err != nil || status != 200 || seen != "" {
			return fmt.Errorf("without mTLS: %d %q %v", status, seen, err)
		}
		return nil
	})
	write(t, dir, "peers.yaml", peers("STRICT"))
	eventually(t, patience, refused)
	eventually(t, patience, meshed)

	policed(t, dir, inside, meshed)
}

// policed applies one policy after the other to the server's proxy. meshed sends the client's traffic, and fails if it
// is refused.
func policed(t *testing.T, dir, inside string, meshed func() error) {
	t.Helper()
	forbidden := func() error {
		if status, _, err := call(inside); err != nil || status != 403 {
			return fmt.Errorf("the policy: %d %v", status, err)
		}
		return nil
	}
	for rule, want := range map[string]func() error{
		"action: DENY, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}]": forbidden,
		"action: DENY, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/other]}}]}]":  meshed,
		"action: ALLOW, rules: [{from: [{source: {namespaces: [elsewhere]}}]}]":                      forbidden,
		"action: ALLOW, rules: [{from: [{source: {namespaces: [shop]}}]}]":                           meshed,
		"action: ALLOW, rules: [{to: [{operation: {methods: [POST]}}]}]":                             forbidden,
		"action: CUSTOM, provider: {name: somebody}, rules: [{to: [{operation: {methods: [GET]}}]}]": forbidden,
	} {
		write(t, dir, "policy.yaml", "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n"+
			"metadata: {name: server, namespace: shop}\nspec: {selector: {matchLabels: {app: server}}, "+rule+"}\n")
		eventually(t, patience, want)
	}
}
