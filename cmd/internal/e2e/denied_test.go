package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loopback"
)

// A process without a keyring reads from the configuration that an identity is revoked. Within seconds it ends the
// identity's streams, by certificate and by token, and its connections without calls, and refuses new ones. Another
// identity is still served.
// Promise: security-ca.md#processes-without-a-keyring, security-workloads.md#renewals-and-revocation
func TestDeniedWithoutKeyring(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	mesh := newEnrolment(t, "--etcd-endpoints="+etcd.Endpoint())
	own := newAuthority(t)
	own.issue(t, "server", "")
	ca := start(t, append([]string{"--roles=ingest,ca", "--config-dir", folder(t), mesh.store}, mesh.more...)...)
	mesh.by(ca)
	roots, err := exec.Command(binary(t, "navarchctl"), "ca", "roots", mesh.store, mesh.kek).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own.file("mesh.crt"), roots, 0o600); err != nil {
		t.Fatal(err)
	}
	secure := loopback.For(t)
	d := start(t, append([]string{"--roles=xds", mesh.store, "--secure-grpc-addr", secure, "--tls-cert", own.file("server.crt"),
		"--tls-key", own.file("server.key"), "--tls-client-ca", own.file("mesh.crt")}, mesh.more[1:]...)...) // without --kek
	eventually(t, patience, serves(t, d, 1))

	as := func(account string) *tls.Config {
		leaf, _, err := mesh.first(t.Context(), ca.secure, "shop", account)
		if err != nil {
			t.Fatal(err)
		}
		conf := own.client(t, "")
		conf.Certificates = []tls.Certificate{leaf}
		return conf
	}
	client, other := as("client"), as("other")
	shown, _, err := mesh.issuer.Mint("shop", "client", "istio-ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	idle := client.Clone()
	idle.NextProtos = []string{"h2"}
	silent, err := tls.Dial("tcp", secure, idle)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	byToken := bearer(t.Context(), shown)
	ended := []func() error{
		streamEnds(t, t.Context(), secure, client),
		streamEnds(t, byToken, secure, own.client(t, "")),
		func() error {
			if err := silent.SetReadDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, silent)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return errors.New("a connection on which nothing is called is still open")
			}
			return nil
		},
	}
	stays := streamEnds(t, t.Context(), secure, other)

	revoked := time.Now()
	out, err := exec.Command(binary(t, "navarchctl"), "ca", "revoke", mesh.store, mesh.kek, "--identity", "spiffe://cluster.local/ns/shop/sa/client").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, end := range ended {
		if err := end(); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	within(t, 5*time.Second, time.Since(revoked), "its streams and connection ended")
	for name, one := range map[string]struct {
		ctx  context.Context
		conf *tls.Config
		as   string
		want codes.Code
	}{
		"its certificate":  {t.Context(), client, "client", codes.Unauthenticated},
		"its token":        {byToken, own.client(t, ""), "client", codes.Unauthenticated},
		"another identity": {t.Context(), other, "other", codes.OK},
	} {
		if _, err := everythingAs(one.ctx, credentials.NewTLS(one.conf), secure, node("shop", one.as, "10.1.9.9")); status.Code(err) != one.want {
			t.Errorf("%s: %v, want %v", name, err, one.want)
		}
	}
	d.said(t, 1, "a connection is closed: its caller is refused")
	// The stream that was opened a moment ago for another identity leaves when the server notices that its client has
	// gone.
	eventually(t, patience, func() error { return d.metric("navarch_proxies 1") })
	d.kill()
	if err := stays(); err != nil {
		t.Error(err)
	}
}

// When an identity is revoked, its streams end within seconds on every replica, including those that did not sign its
// certificate. The streams of another identity stay.
// Promise: security-ca.md#what-revoking-an-identity-does, security-workloads.md#renewals-and-revocation
func TestRevocationEndsStreamsOnEachReplica(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	mesh := newEnrolment(t, "--etcd-endpoints="+etcd.Endpoint())
	start(t, append([]string{"--roles=ingest,ca", "--config-dir", folder(t), mesh.store}, mesh.more...)...)
	replicas := []*daemon{mesh.replica(mesh.store), mesh.replica(mesh.store)}
	mesh.by(replicas[0])
	conf := &tls.Config{RootCAs: mesh.roots, ServerName: "istiod.istio-system.svc"}
	client, other := conf.Clone(), conf.Clone()
	for account, as := range map[string]*tls.Config{"client": client, "other": other} {
		leaf, _, err := mesh.first(t.Context(), replicas[0].secure, "shop", account)
		if err != nil {
			t.Fatal(err)
		}
		as.Certificates = []tls.Certificate{leaf}
	}
	shown, _, err := mesh.issuer.Mint("shop", "client", "istio-ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var ended, stays []func() error
	for _, d := range replicas {
		eventually(t, patience, serves(t, d, 1))
		ended = append(ended, streamEnds(t, t.Context(), d.secure, client), streamEnds(t, bearer(t.Context(), shown), d.secure, conf))
		stays = append(stays, streamEnds(t, t.Context(), d.secure, other))
	}
	revoked := time.Now()
	if out, err := exec.Command(binary(t, "navarchctl"), "ca", "revoke", mesh.store, mesh.kek, "--identity", "spiffe://cluster.local/ns/shop/sa/client").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, end := range ended {
		if err := end(); err != nil {
			t.Errorf("replica %d: %v", i/2+1, err)
		}
	}
	within(t, 5*time.Second, time.Since(revoked), "its streams ended on each replica")
	for i, d := range replicas {
		eventually(t, patience, func() error { return d.metric("navarch_proxies 1") })
		d.kill()
		if err := stays[i](); err != nil {
			t.Error(err)
		}
	}
}

// streamEnds opens a stream of configuration, and returns a function that waits for its end.
func streamEnds(t *testing.T, ctx context.Context, address string, conf *tls.Config) func() error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	account := "client"
	if len(conf.Certificates) > 0 && conf.Certificates[0].Leaf != nil {
		account = conf.Certificates[0].Leaf.URIs[0].Path[len("/ns/shop/sa/"):]
	}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("shop", account, "10.1.9.9"), TypeUrl: xds.Cluster.URL()}); err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL(), ResponseNonce: first.GetNonce()}); err != nil {
		t.Fatal(err)
	}
	return func() error {
		ended := make(chan error, 1)
		go func() {
			for {
				if _, err := stream.Recv(); err != nil {
					ended <- err
					return
				}
			}
		}()
		select {
		case <-ended:
			return nil
		case <-time.After(patience):
			return fmt.Errorf("a stream of %s is still open", account)
		}
	}
}
