package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/store/loopback"
)

// echoMesh is a service with two versions, each an application with gRPC's own xDS client.
const echoMesh = `
apiVersion: v1
kind: Service
metadata: {name: echo, namespace: shop}
spec: {clusterIP: 10.96.0.20, selector: {app: echo}, ports: [{name: grpc, port: 7000, targetPort: 7070}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: shop}
spec:
  host: echo
  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]
`

// echoPods returns the Pods behind the service, by version and address.
func echoPods(pods ...[2]string) string {
	var text, endpoints strings.Builder
	for i, p := range pods {
		fmt.Fprintf(&text, `
apiVersion: v1
kind: Pod
metadata: {name: echo-%d, namespace: shop, labels: {app: echo, version: %s, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: echo, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: %s, conditions: [{type: Ready, status: "True"}]}
---`, i, p[0], p[1])
		fmt.Fprintf(&endpoints, "- {addresses: [%s], conditions: {ready: true}, targetRef: {kind: Pod, name: echo-%d, namespace: shop}}\n", p[1], i)
	}
	return text.String() + `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-1, namespace: shop, labels: {kubernetes.io/service-name: echo}}
addressType: IPv4
ports: [{name: grpc, port: 7070}]
endpoints:
` + endpoints.String()
}

func echoRoutes(v1, v2 int) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: echo, namespace: shop}
spec:
  hosts: [echo]
  http:
  - route:
    - {destination: {host: echo, subset: v1}, weight: %d}
    - {destination: {host: echo, subset: v2}, weight: %d}
`, v1, v2)
}

// Applications with grpc-go's xDS client and server work without a proxy: routes by weight, mTLS of both sides with
// certificates of Navarch's CA, policies, and changing endpoints, all live, without a refused resource. The client
// connects through its agent, which provides its certificate; the servers connect to the control plane.
func TestProxyless(t *testing.T) {
	parallel(t)
	at := loopback.NetFor(t)
	data, dir := t.TempDir(), t.TempDir()
	write(t, dir, "echo.yaml", echoMesh)
	write(t, dir, "pods.yaml", echoPods([2]string{"v1", at + ".2"}, [2]string{"v2", at + ".3"}))
	write(t, dir, "routes.yaml", echoRoutes(75, 25))
	write(t, dir, "peers.yaml", peers("STRICT"))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	servers := certified(t, d, data, "echo")
	serveEcho(t, d, servers, "v1", at+".2")
	serveEcho(t, d, servers, "v2", at+".3")
	bootstrap := throughAgent(t, d, data, at+".1")
	c := echoClient{t, dialGRPC(t, "echo", bootstrap)}

	answers, err := c.count(400)
	if v1, v2 := answers["v1"+sawClient], answers["v2"+sawClient]; err != nil || v1+v2 != 400 || v2 < 60 || v2 > 140 {
		t.Fatalf("75 to 25 of 400: %v, %v", answers, err)
	}
	write(t, dir, "routes.yaml", echoRoutes(0, 100))
	eventually(t, patience, c.only("v2"))

	serveEcho(t, d, servers, "v2", at+".4")
	write(t, dir, "pods.yaml", echoPods([2]string{"v1", at + ".2"}, [2]string{"v2", at + ".4"}))
	eventually(t, patience, func() error {
		p := peer.Peer{}
		err := c.conn.Invoke(t.Context(), "/test.Echo/Call", &emptypb.Empty{}, &wrapperspb.StringValue{}, grpc.WaitForReady(true), grpc.Peer(&p))
		if err != nil || p.Addr.String() != at+".4:7070" {
			return fmt.Errorf("the endpoint that came: %v answers, %w", p.Addr, err)
		}
		return nil
	})
	refusesOthers(t, c, dir, at+".4:7070")
	callsProxy(t, d, data, dir, at+".5", bootstrap)
	page, err := get(d.monitoring, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "pilot_total_xds_rejects") && !strings.HasSuffix(line, " 0\n") {
			t.Errorf("something was refused: %s", line)
		}
	}
}

// sawClient ends the answers of servers that saw the client's identity.
const sawClient = " saw spiffe://cluster.local/ns/shop/sa/client"

// echoClient calls the service echo.
type echoClient struct {
	t    *testing.T
	conn *grpc.ClientConn
}

// count calls some times and counts the answers.
func (c echoClient) count(n int) (answers map[string]int, err error) {
	answers = map[string]int{}
	for range n {
		answer, server, err := callEcho(c.t, c.conn, "Call")
		if err != nil || server != "spiffe://cluster.local/ns/shop/sa/echo" {
			return answers, fmt.Errorf("%q of %q, %w", answer, server, err)
		}
		answers[answer]++
	}
	return answers, nil
}

// only returns a check that exactly one version answers.
func (c echoClient) only(version string) func() error {
	return func() error {
		answers, err := c.count(20)
		if err != nil || answers[version+sawClient] != 20 {
			return fmt.Errorf("%s alone: %v, %w", version, answers, err)
		}
		return nil
	}
}

// refusesOthers checks that a server refuses connections without TLS, and calls that no policy allows.
func refusesOthers(t *testing.T, c echoClient, dir, server string) {
	t.Helper()
	plain, err := grpc.NewClient("passthrough:///"+server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Invoke(t.Context(), "/test.Echo/Call", &emptypb.Empty{}, &wrapperspb.StringValue{}); status.Code(err) != codes.Unavailable {
		t.Errorf("in the clear, where mTLS is demanded: %v", err)
	}
	write(t, dir, "policy.yaml", `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: echo, namespace: shop}
spec:
  selector: {matchLabels: {app: echo}}
  rules: [{from: [{source: {serviceAccounts: [shop/client]}}], to: [{operation: {paths: [/test.Echo/Call]}}]}]
`)
	eventually(t, patience, func() error {
		if _, _, err := callEcho(t, c.conn, "Other"); status.Code(err) != codes.PermissionDenied {
			return fmt.Errorf("what the policy does not allow: %w", err)
		}
		return c.only("v2")()
	})
}

// proxiedMesh is a service with an Envoy, which hands on to port 9080.
const proxiedMesh = `
apiVersion: v1
kind: Service
metadata: {name: proxied, namespace: shop}
spec: {clusterIP: 10.96.0.21, selector: {app: proxied}, ports: [{name: grpc, port: 7000, targetPort: 7070}]}
---
apiVersion: v1
kind: Pod
metadata: {name: proxied-0, namespace: shop, labels: {app: proxied, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: proxied, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: ADDRESS, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: proxied-1, namespace: shop, labels: {kubernetes.io/service-name: proxied}}
addressType: IPv4
ports: [{name: grpc, port: 7070}]
endpoints: [{addresses: [ADDRESS], conditions: {ready: true}, targetRef: {kind: Pod, name: proxied-0, namespace: shop}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: proxied, namespace: shop}
spec:
  workloadSelector: {labels: {app: proxied}}
  ingress: [{port: {number: 7070, protocol: GRPC, name: grpc}, bind: ADDRESS, captureMode: NONE, defaultEndpoint: "0.0.0.0:9080"}]
  egress: [{hosts: ["~/*"]}]
`

// callsProxy makes a client without a proxy call a service with one: by mTLS if it is required, in clear if both are
// accepted.
func callsProxy(t *testing.T, d *daemon, data, dir, ip string, bootstrap []byte) {
	t.Helper()
	l, err := net.Listen("tcp", ip+":9080")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	s.RegisterService(&echoService, echo{"proxied"})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	write(t, dir, "proxied.yaml", strings.ReplaceAll(proxiedMesh, "ADDRESS", ip))
	startAgent(t, d, data, "proxied", ip)
	conn := dialGRPC(t, "proxied", bootstrap)
	asked := func(want string) func() error {
		return func() error {
			if answer, server, err := callEcho(t, conn, "Call"); err != nil || answer != "proxied saw " || server != want {
				return fmt.Errorf("through the service's proxy: %q of %q, want %q: %w", answer, server, want, err)
			}
			return nil
		}
	}
	eventually(t, patience, asked("spiffe://cluster.local/ns/shop/sa/proxied"))
	write(t, dir, "peers.yaml", peers("PERMISSIVE"))
	eventually(t, patience, asked(""))
}
