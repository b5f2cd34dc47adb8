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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/peer"
	grpcxds "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

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

// grpcBootstrap returns the bootstrap that Istio's agent writes for an application (pkg/istio-agent/grpcxds).
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

// identityIn returns the SPIFFE ID in a peer's certificate; empty: it presented none.
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

// serveEcho runs an xDS-enabled gRPC server of a version at an address; the control plane configures how it accepts
// connections.
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

// dialGRPC returns a client of a service by its short name, with the given xDS bootstrap.
func dialGRPC(t *testing.T, service string, bootstrap []byte) *grpc.ClientConn {
	t.Helper()
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+service+":7000", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// callEcho makes one call, and returns the server's answer and the identity in its certificate.
func callEcho(t *testing.T, conn *grpc.ClientConn, method string) (answer, server string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, p := &wrapperspb.StringValue{}, peer.Peer{}
	err = conn.Invoke(ctx, "/test.Echo/"+method, &emptypb.Empty{}, out, grpc.WaitForReady(true), grpc.Peer(&p))
	return out.Value, identityIn(&p), err
}

// throughAgent returns the bootstrap of the application client, which uses the socket and the certificate of its agent.
func throughAgent(t *testing.T, d *daemon, data, ip string) []byte {
	t.Helper()
	agent, _ := startAgent(t, d, data, "client", ip)
	socket, certs := filepath.Join(agent, "proxy", "sockets", "XDS"), filepath.Join(agent, "certs")
	eventually(t, patience, func() error {
		_, err := os.Stat(socket)
		for _, name := range []string{"cert-chain.pem", "key.pem", "root-cert.pem"} {
			_, missing := os.Stat(filepath.Join(certs, name))
			err = errors.Join(err, missing)
		}
		return err
	})
	return grpcBootstrap(t, "unix://"+socket, certs, "client", ip, map[string]string{"app": "client"})
}
