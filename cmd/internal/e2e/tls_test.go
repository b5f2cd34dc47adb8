package e2e

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/embedded"
	"navarch.io/navarch/store/loopback"
)

// The secure address of a process without a keyring serves callers with a credential as its plain address does, and by
// the same rules as a process with the CA. A credential is a certificate of the trusted CA, or a token; it must be of
// this trust domain, and a proxy is served only to its own identity. All others are refused, also callers without a
// credential. A new server certificate is loaded from its file without a restart.
func TestSecureXDS(t *testing.T) {
	parallel(t)
	ca, other := newAuthority(t), newAuthority(t)
	ca.issue(t, "server", "")
	ca.issue(t, "client", "spiffe://cluster.local/ns/shop/sa/client")
	ca.issue(t, "foreign", "spiffe://elsewhere.example/ns/shop/sa/client")
	ca.issue(t, "neighbour", "spiffe://cluster.local/ns/other/sa/client")
	other.issue(t, "stranger", "spiffe://cluster.local/ns/shop/sa/client")
	data := t.TempDir()
	secure := loopback.For(t)
	d := start(t, "--roles=ingest,xds", "--config-dir", folder(t), "--data-dir", data, "--secure-grpc-addr", secure,
		"--tls-cert", ca.file("server.crt"), "--tls-key", ca.file("server.key"), "--tls-client-ca", ca.file("ca.crt"))
	eventually(t, patience, serves(t, d, 1))

	plain, err := everything(t.Context(), d.grpc, node("shop", "client", "10.1.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	mine := bearer(t.Context(), token(t, data, "shop", "client"))
	for _, one := range []struct {
		ctx         context.Context
		certificate string
		want        codes.Code
	}{
		{t.Context(), "client", codes.OK},
		{mine, "", codes.OK},
		{t.Context(), "", codes.Unauthenticated},
		{t.Context(), "server", codes.Unauthenticated}, // the certificate names no workload
		{t.Context(), "foreign", codes.Unauthenticated},
		{mine, "foreign", codes.Unauthenticated},
		{t.Context(), "neighbour", codes.PermissionDenied},
		{bearer(t.Context(), "x.y.z"), "", codes.Unauthenticated},
		{bearer(t.Context(), token(t, data, "other", "client")), "", codes.PermissionDenied},
	} {
		got, err := everythingAs(one.ctx, credentials.NewTLS(ca.client(t, one.certificate)), secure, node("shop", "client", "10.1.9.9"))
		if status.Code(err) != one.want {
			t.Errorf("client certificate %q: %v, want %v", one.certificate, err, one.want)
		}
		if one.want == codes.OK {
			same(t, plain, got)
		}
	}
	stranger := ca.client(t, "")
	stranger.Certificates = other.client(t, "stranger").Certificates
	if _, err := everythingAs(t.Context(), credentials.NewTLS(stranger), secure, node("shop", "client", "10.1.9.9")); status.Code(err) != codes.Unavailable {
		t.Errorf("a certificate of another CA: %v", err)
	}
	if _, err := everything(t.Context(), secure, node("shop", "client", "10.1.9.9")); status.Code(err) != codes.Unavailable {
		t.Errorf("plain text on the secure address: %v", err)
	}
	identified(t, d, ca, secure)

	renewed := newAuthority(t)
	renewed.issue(t, "server", "")
	for _, suffix := range []string{".crt", ".key"} {
		if err := os.Rename(renewed.file("server"+suffix), ca.file("server"+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := everythingAs(mine, credentials.NewTLS(renewed.client(t, "")), secure, node("shop", "client", "10.1.9.9")); err != nil {
		t.Errorf("after the certificate was renewed: %v", err)
	}
}

// identified checks that a stream shows whose certificate opened it.
func identified(t *testing.T, d *daemon, ca *authority, secure string) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+secure, grpc.WithTransportCredentials(credentials.NewTLS(ca.client(t, "client"))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("shop", "client", "10.1.9.9"), TypeUrl: xds.Cluster.URL()}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	page, err := get(d.http, "/debug/connections")
	if err != nil || !strings.Contains(page, `"identity": "spiffe://cluster.local/ns/shop/sa/client"`) {
		t.Errorf("/debug/connections: %v\n%s", err, page)
	}
}

// Flags configure the connection to an etcd with TLS, client certificates and users. With a wrong flag the error gives
// the reason.
func TestSecureEtcd(t *testing.T) {
	parallel(t)
	ca := newAuthority(t)
	for _, name := range []string{"etcd", "client"} {
		ca.issue(t, name, "")
	}
	endpoint := secureEtcd(t, ca)
	password := ca.file("password")
	if err := os.WriteFile(password, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secure := []string{"--etcd-endpoints", endpoint, "--etcd-ca", ca.file("ca.crt"), "--etcd-cert", ca.file("client.crt"), "--etcd-key", ca.file("client.key")}
	user := []string{"--etcd-user", "navarch", "--etcd-password-file", password}
	all := append(append([]string{}, secure...), user...)
	start(t, append([]string{"--roles=ingest", "--config-dir", folder(t)}, all...)...)
	replica := start(t, append([]string{"--roles=xds"}, all...)...)
	eventually(t, patience, serves(t, replica, 1))

	wrong := ca.file("wrong")
	if err := os.WriteFile(wrong, []byte("guess"), 0o600); err != nil {
		t.Fatal(err)
	}
	guess := start(t, append([]string{"--roles=xds", "--etcd-user", "navarch", "--etcd-password-file", wrong}, secure...)...)
	nobody := start(t, append([]string{"--roles=xds"}, secure...)...)
	withoutCert := start(t, append([]string{"--roles=xds", "--etcd-endpoints", endpoint, "--etcd-ca", ca.file("ca.crt")}, user...)...)
	missing := start(t, append([]string{"--roles=xds"}, append(all, "--etcd-ca", ca.file("none.crt"))...)...)
	for _, c := range []struct {
		d    *daemon
		want string
	}{{guess, "authentication failed"}, {missing, "--etcd-ca: open"}} {
		select {
		case <-c.d.exited:
			if c.d.cmd.ProcessState.Success() || !strings.Contains(c.d.log.String(), c.want) {
				t.Errorf("want %q, ended with %v and said:\n%s", c.want, c.d.cmd.ProcessState, c.d.log)
			}
		case <-time.After(patience):
			t.Errorf("want %q, still runs and said:\n%s", c.want, c.d.log)
		}
	}
	eventually(t, patience, refuses(t, nobody, "permission denied"))
	eventually(t, patience, refuses(t, withoutCert, "read the head: etcd at "+endpoint+" does not answer: context deadline exceeded"))
}

// secureEtcd starts an etcd with TLS and client certificates, and a user navarch that may access /navarch/ only. It
// returns the endpoint.
func secureEtcd(t *testing.T, ca *authority) string {
	t.Helper()
	address := url.URL{Scheme: "https", Host: loopback.For(t)}
	store, err := embedded.Start(embedded.Config{Mesh: "default", Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), Tune: func(c *embed.Config) {
		c.UnsafeNoFsync = true
		c.TickMs, c.ElectionMs = 10, 50
		c.BcryptCost = 4
		c.ListenClientUrls = append(c.ListenClientUrls, address)
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = ca.file("etcd.crt"), ca.file("etcd.key")
		c.ClientTLSInfo.TrustedCAFile, c.ClientTLSInfo.ClientCertAuth = ca.file("ca.crt"), true
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	client, ctx := store.Client(), t.Context()
	for _, step := range []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.RoleAdd(ctx, "navarch"); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, "navarch", "/navarch/", clientv3.GetPrefixRangeEnd("/navarch/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserAdd(ctx, "navarch", "s3cret"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "navarch", "navarch"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return address.String()
}
