package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	grpcxds "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/loadtest/loopback"
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

// echoPods are the Pods behind the service: version and address of each.
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

// certified writes a certificate of Navarch's CA, its key and the root into a folder, as an agent does.
func certified(t *testing.T, d *daemon, data, account string) (dir string) {
	t.Helper()
	root, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	conf := &tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"}
	pair, chain, err := signed(bearer(t.Context(), token(t, data, "shop", account)), t, d.secure, conf)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	write(t, dir, "cert-chain.pem", strings.Join(chain[:len(chain)-1], ""))
	write(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	write(t, dir, "root-cert.pem", string(root))
	return dir
}

// grpcBootstrap is what Istio's agent writes for an application (pkg/istio-agent/grpcxds).
func grpcBootstrap(t *testing.T, server, certs, workload, ip string, labels map[string]string) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{"server_uri": server, "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []any{"xds_v3"}}},
		"node": map[string]any{"id": fmt.Sprintf("sidecar~%s~%s.shop~shop.svc.cluster.local", ip, workload), "metadata": map[string]any{
			"GENERATOR": "grpc", "NAMESPACE": "shop", "SERVICE_ACCOUNT": workload, "INSTANCE_IPS": ip, "LABELS": labels, "NAVARCH_IDENTITY": "provider"}},
		"certificate_providers": map[string]any{"default": map[string]any{"plugin_name": "file_watcher", "config": map[string]any{
			"certificate_file": certs + "/cert-chain.pem", "private_key_file": certs + "/key.pem", "ca_certificate_file": certs + "/root-cert.pem", "refresh_interval": "900s"}}},
		"server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s",
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// echo answers with its version and who it saw calling.
type echo struct{ version string }

func (e echo) call(ctx context.Context) *wrapperspb.StringValue {
	return wrapperspb.String(e.version + " saw " + identityOf(ctx))
}

func identityOf(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	return identityIn(p)
}

// identityIn is the SPIFFE ID of a peer; empty: it has shown none.
func identityIn(p *peer.Peer) string {
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 && len(info.State.PeerCertificates[0].URIs) > 0 {
		return info.State.PeerCertificates[0].URIs[0].String()
	}
	return ""
}

// echoService has two methods that do the same.
var echoService = grpc.ServiceDesc{ServiceName: "test.Echo", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{echoMethod("Call"), echoMethod("Other")}}

func echoMethod(name string) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := &emptypb.Empty{}
		if err := decode(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, _ any) (any, error) { return srv.(echo).call(ctx), nil }
		if intercept == nil {
			return handle(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Echo/" + name}, handle)
	}}
}

// serveEcho runs an xDS server of a version at an address, which is told by the control plane how to take connections.
func serveEcho(t *testing.T, d *daemon, certs, version, ip string) {
	t.Helper()
	creds, err := xdscreds.NewServerCredentials(xdscreds.ServerOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "echo", "version": version, "security.istio.io/tlsMode": "istio"}
	s, err := grpcxds.NewGRPCServer(grpc.Creds(creds), grpcxds.BootstrapContentsForTesting(grpcBootstrap(t, d.grpc, certs, "echo", ip, labels)))
	if err != nil {
		t.Fatal(err)
	}
	s.RegisterService(&echoService, echo{version})
	l, err := net.Listen("tcp", ip+":7070")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

// dialEcho is a client of the service by its short name.
func dialEcho(t *testing.T, bootstrap []byte) *grpc.ClientConn {
	t.Helper()
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///echo:7000", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// callEcho is one call: what the server answered, and who it showed itself to be.
func callEcho(t *testing.T, conn *grpc.ClientConn, method string) (answer, server string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, p := &wrapperspb.StringValue{}, peer.Peer{}
	err = conn.Invoke(ctx, "/test.Echo/"+method, &emptypb.Empty{}, out, grpc.WaitForReady(true), grpc.Peer(&p))
	return out.Value, identityIn(&p), err
}

// Applications with grpc-go's xDS client and server and no proxy: routes by weight, mTLS of both sides with certificates of Navarch's CA,
// policies, and endpoints that change, all live, and nothing that the clients refuse. The client asks through its agent, which gives it its
// certificate; the servers ask the control plane.
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
	agent, _ := startAgent(t, d, data, "client", at+".1")
	socket, certs := filepath.Join(agent, "proxy", "sockets", "XDS"), filepath.Join(agent, "certs")
	eventually(t, patience, func() error {
		_, err := os.Stat(socket)
		for _, name := range []string{"cert-chain.pem", "key.pem", "root-cert.pem"} {
			_, missing := os.Stat(filepath.Join(certs, name))
			err = errors.Join(err, missing)
		}
		return err
	})
	conn := dialEcho(t, grpcBootstrap(t, "unix://"+socket, certs, "client", at+".1", map[string]string{"app": "client"}))

	const saw = " saw spiffe://cluster.local/ns/shop/sa/client"
	count := func(n int) (answers map[string]int, err error) {
		answers = map[string]int{}
		for range n {
			answer, server, err := callEcho(t, conn, "Call")
			if err != nil || server != "spiffe://cluster.local/ns/shop/sa/echo" {
				return answers, fmt.Errorf("%q of %q, %w", answer, server, err)
			}
			answers[answer]++
		}
		return answers, nil
	}
	answers, err := count(400)
	if v1, v2 := answers["v1"+saw], answers["v2"+saw]; err != nil || v1+v2 != 400 || v2 < 60 || v2 > 140 {
		t.Fatalf("75 to 25 of 400: %v, %v", answers, err)
	}
	write(t, dir, "routes.yaml", echoRoutes(0, 100))
	only := func(want string) func() error {
		return func() error {
			answers, err := count(20)
			if err != nil || answers[want+saw] != 20 {
				return fmt.Errorf("%s alone: %v, %w", want, answers, err)
			}
			return nil
		}
	}
	eventually(t, patience, only("v2"))

	serveEcho(t, d, servers, "v2", at+".4")
	write(t, dir, "pods.yaml", echoPods([2]string{"v1", at + ".2"}, [2]string{"v2", at + ".4"}))
	eventually(t, patience, func() error {
		ctx, p := context.Background(), peer.Peer{}
		err := conn.Invoke(ctx, "/test.Echo/Call", &emptypb.Empty{}, &wrapperspb.StringValue{}, grpc.WaitForReady(true), grpc.Peer(&p))
		if err != nil || p.Addr.String() != at+".4:7070" {
			return fmt.Errorf("the endpoint that came: %v answers, %w", p.Addr, err)
		}
		return nil
	})

	plain, err := grpc.NewClient("passthrough:///"+at+".4:7070", grpc.WithTransportCredentials(insecure.NewCredentials()))
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
		if _, _, err := callEcho(t, conn, "Other"); status.Code(err) != codes.PermissionDenied {
			return fmt.Errorf("what the policy does not allow: %w", err)
		}
		return only("v2")()
	})

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
