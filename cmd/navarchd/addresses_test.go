package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/cmd/navarchd/callers"
	"navarch.io/navarch/cmd/navarchd/health"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/serve/servetest"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/mirror"
)

// clientPair returns a client's certificate from an authority.
func clientPair(t *testing.T, by *issue.Authority, id string) tls.Certificate {
	t.Helper()
	leaf, key := signedPair(t, by, issue.Request{Identity: spiffeid.RequireFromString(id)})
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
}

// originated returns a certificate that was issued for a token of the given origin.
func originated(t *testing.T, by *issue.Authority, id string, origin issue.Origin) *x509.Certificate {
	t.Helper()
	leaf, _ := signedPair(t, by, issue.Request{Identity: spiffeid.RequireFromString(id), Origin: origin})
	return leaf
}

func signedPair(t *testing.T, by *issue.Authority, r issue.Request) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	r.CSR = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	issued, err := issue.Issue(by, r, issue.Policy{}, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return issued.Leaf, key
}

// listening starts both gRPC addresses of a process, with one client that subscribes, and returns the TLS configuration
// of clients. Service accounts "evil" are revoked. Connections are counted by a ledger; nil: by a new one.
func listening(t *testing.T, connections *budget.Ledger) (p *addresses, authority *issue.Authority, plain, secure string, conf *tls.Config) {
	t.Helper()
	return listeningWith(t, connections, func(who attest.Caller) bool { return who.ServiceAccount == "evil" })
}

func listeningWith(t *testing.T, connections *budget.Ledger, revoked func(attest.Caller) bool) (p *addresses, authority *issue.Authority, plain, secure string, conf *tls.Config) {
	t.Helper()
	c := &config{dataDir: t.TempDir(), trustDomain: "cluster.local"}
	c.env = environment{audiences: []string{"istio-ca"}, xdsAuth: true, maxRecvSize: 4 << 20}
	p = &addresses{config: c, log: quiet, crashes: crash.New(quiet)}
	var err error
	known := c.callersConfig(func() *mirror.Snapshot { return nil }, clusterFacts{}, revoked, quiet)
	known.Connections = connections
	if p.callers, err = callers.New(known); err != nil {
		t.Fatal(err)
	}
	streams := serve.New(serve.Config{Planner: servetest.OneCluster(), Log: quiet, Authenticate: p.callers.Authenticate})
	p.health = health.New(func() error { return nil })
	if authority, err = issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 1, time.Hour, time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	state := &keyring.State{Active: authority, Bundle: authority.Roots}
	presented, err := serving.New([]string{"localhost"}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	for _, root := range authority.Roots {
		roots.AddCert(root)
	}
	plain, secure = loopback.For(t), loopback.For(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	for address, conf := range map[string]*tls.Config{plain: nil, secure: presented.Config(func() *keyring.State { return state })} {
		task, err := p.listen("test", address, conf, func(r grpc.ServiceRegistrar) {
			streams.Register(r)
			called := func(_ any, stream grpc.ServerStream) error {
				_, err := p.callers.OfCalls().Authenticate(stream.Context())
				return status.Errorf(codes.Aborted, "it was called: %v", err)
			}
			r.RegisterService(&grpc.ServiceDesc{ServiceName: "ca", HandlerType: (*any)(nil),
				Streams: []grpc.StreamDesc{{StreamName: "Call", Handler: called}}}, nil)
			read := func(_ any, stream grpc.ServerStream) error {
				if _, err := p.callers.OfCalls().Authenticate(stream.Context()); err != nil {
					return err
				}
				return stream.RecvMsg(&emptypb.Empty{})
			}
			r.RegisterService(&grpc.ServiceDesc{ServiceName: "istio.v1.auth.IstioCertificateService", HandlerType: (*any)(nil),
				Streams: []grpc.StreamDesc{{StreamName: "CreateCertificate", Handler: read, ServerStreams: true}}}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() { done <- task.Run(ctx) }()
	}
	go func() { _ = streams.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return p, authority, plain, secure, &tls.Config{RootCAs: roots, ServerName: "localhost"}
}

// unauthenticated returns the number of connections without a credential, of both addresses.
func (p *addresses) unauthenticated() (n int) {
	for _, l := range p.limiters {
		n += l.Open()
	}
	return n
}

// A connection counts as authenticated by a client certificate after its handshake, by a token after the first accepted
// call, and on plain text, without credentials, after the first stream. A refused credential and calls without a
// required credential do not count.
// Promise: security-connections.md#places-and-time
func TestWhatAuthenticatesAConnection(t *testing.T) {
	p, authority, plain, secure, conf := listening(t, nil)
	issuer, err := attest.Local(p.config.dataDir)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := issuer.Mint("shop", "client", "istio-ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	const client, evil = "spiffe://cluster.local/ns/shop/sa/client", "spiffe://cluster.local/ns/shop/sa/evil"
	with := func(id string) credentials.TransportCredentials {
		own := conf.Clone()
		own.Certificates = []tls.Certificate{clientPair(t, authority, id)}
		return credentials.NewTLS(own)
	}
	for name, one := range map[string]struct {
		to    string
		creds credentials.TransportCredentials
		token string
		does  func(ctx context.Context, conn *grpc.ClientConn) error
		code  codes.Code // code that ends the stream
		want  int        // connections that are unauthenticated
	}{
		"certificate":            {secure, with(client), "", askHealth, codes.OK, 0},
		"revoked certificate":    {secure, with(evil), "", askHealth, codes.OK, 1},
		"token, not shown yet":   {secure, credentials.NewTLS(conf), "", askHealth, codes.OK, 1},
		"token":                  {secure, credentials.NewTLS(conf), token, oneStream, codes.OK, 0},
		"token, at the CA":       {secure, credentials.NewTLS(conf), token, askCA, codes.Aborted, 0},
		"bad token, at the CA":   {secure, credentials.NewTLS(conf), "x.y.z", askCA, codes.Aborted, 1},
		"revoked, at the CA":     {secure, with(evil), "", askCA, codes.Aborted, 1},
		"bad token":              {secure, credentials.NewTLS(conf), "x.y.z", oneStream, codes.Unauthenticated, 1},
		"nothing":                {secure, credentials.NewTLS(conf), "", oneStream, codes.Unauthenticated, 1},
		"revoked, and a stream":  {secure, with(evil), "", oneStream, codes.Unauthenticated, 1},
		"plain text":             {plain, insecure.NewCredentials(), "", oneStream, codes.OK, 0},
		"plain text, no streams": {plain, insecure.NewCredentials(), "", askHealth, codes.OK, 1},
	} {
		conn, err := grpc.NewClient(one.to, grpc.WithTransportCredentials(one.creds), grpc.WithDisableServiceConfig())
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		if one.token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+one.token)
		}
		if err := one.does(ctx, conn); status.Code(err) != one.code {
			t.Errorf("%s: %v, want %v", name, err, one.code)
		}
		if got := p.unauthenticated(); got != one.want {
			t.Errorf("%s: %d connections are unauthenticated, want %d", name, got, one.want)
		}
		conn.Close()
		servetest.Soon(t, "the connection has ended", func() bool { return p.unauthenticated() == 0 })
	}
}

// Connections with a credential are limited for each identity, even without calls. For a certificate with many
// connections, further ones are refused or others end, and another certificate of the identity has room. Closed
// connections free their places.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestConnectionsOfAnIdentity(t *testing.T) {
	connections := budget.New(budget.Config{Limits: budget.Limits{Workload: 2, Least: 4}})
	p, authority, _, secure, conf := listening(t, connections)
	const client = "spiffe://cluster.local/ns/shop/sa/client"
	with := func(id string) *tls.Config {
		own := conf.Clone()
		own.NextProtos = []string{"h2"}
		own.Certificates = []tls.Certificate{clientPair(t, authority, id)}
		return own
	}
	count := func() int {
		n, _, _ := connections.Count(client)
		return n
	}
	greedy := with(client)
	var silent []*tls.Conn
	for range 10 {
		c, err := tls.Dial("tcp", secure, greedy)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	servetest.Soon(t, "four have a place, and six none", func() bool { return count() == 4 && p.unauthenticated() == 6 })
	stream := func(conf *tls.Config) error {
		conn, err := grpc.NewClient(secure, grpc.WithTransportCredentials(credentials.NewTLS(conf)), grpc.WithDisableServiceConfig())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return oneStream(t.Context(), conn)
	}
	if err := stream(greedy); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "4 streams are open") {
		t.Errorf("one more of the certificate: %v", err)
	}
	for _, id := range []string{client, "spiffe://cluster.local/ns/shop/sa/other"} {
		if err := stream(with(id)); err != nil {
			t.Errorf("another certificate, of %s: %v", id, err)
		}
	}
	for _, c := range silent {
		c.Close()
	}
	servetest.Soon(t, "they are given back", func() bool { return count() == 1 })
}

// A connection ends with its caller's right, even without calls, or with calls that need no right; so does one whose
// credential was revoked while it was presented. Connections of others stay open.
// Promise: security-workloads.md#renewals-and-revocation
func TestConnectionsEndWithTheirCallersRight(t *testing.T) {
	var revoked atomic.Pointer[string] // a service account
	connections := budget.New(budget.Config{})
	p, authority, _, secure, conf := listeningWith(t, connections, func(who attest.Caller) bool {
		account := revoked.Load()
		return account != nil && *account == who.ServiceAccount
	})
	issuer, err := attest.Local(p.config.dataDir)
	if err != nil {
		t.Fatal(err)
	}
	silent := func(account string) *tls.Conn {
		own := conf.Clone()
		own.NextProtos = []string{"h2"}
		own.Certificates = []tls.Certificate{clientPair(t, authority, "spiffe://cluster.local/ns/shop/sa/"+account)}
		c, err := tls.Dial("tcp", secure, own)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	count := func(account string) int {
		n, _, _ := connections.Count("spiffe://cluster.local/ns/shop/sa/" + account)
		return n
	}
	silent("client")
	silent("client")
	silent("other")
	token, _, err := issuer.Mint("shop", "client", "istio-ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(secure, grpc.WithTransportCredentials(credentials.NewTLS(conf)), grpc.WithDisableServiceConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := askCA(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token), conn); status.Code(err) != codes.Aborted {
		t.Fatal(err)
	}
	servetest.Soon(t, "all have a place", func() bool { return count("client") == 3 && count("other") == 1 })
	if n := p.callers.Recheck(); n != 0 {
		t.Fatalf("%d connections ended while nobody is revoked", n)
	}
	account := "client"
	revoked.Store(&account)
	if n := p.callers.Recheck(); n != 3 {
		t.Errorf("%d connections ended, want 3", n)
	}
	servetest.Soon(t, "they are gone", func() bool { return count("client") == 0 })
	if n := p.callers.Recheck(); n != 0 || count("other") != 1 {
		t.Errorf("%d connections ended twice, the other identity has %d", n, count("other"))
	}
	silent("client") // refused: it is no one's
	servetest.Soon(t, "it counts as unauthenticated", func() bool { return p.unauthenticated() == 1 })
}

// oneStream opens a stream, subscribes to clusters, and waits for them.
func oneStream(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(servetest.ClustersRequest()) // on failure Recv returns the reason
	_, err = stream.Recv()
	return err
}

// askHealth requests the process's health.
func askHealth(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err
}

// askCA sends the CA a request that authenticates its caller.
func askCA(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/ca/Call")
	if err != nil {
		return err
	}
	return stream.RecvMsg(&healthv1.HealthCheckResponse{})
}
