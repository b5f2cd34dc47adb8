package main

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/loadtest/attack"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/serve/servetest"
	"navarch.io/navarch/store/obs"
)

// A client begins requests for configuration with one workload's certificate, and does not end them: it loses the
// connections with most of them. If it begins requests for certificates in that way, it loses the calls as soon as they
// announce their size. A valid client of the same identity is served meanwhile.
// Promise: security-limits.md#streams-connections-and-messages
func TestMessagesThatDoNotEnd(t *testing.T) {
	const most = 4 << 20
	connections := budget.New(budget.Config{Limits: budget.Limits{MessagesPerCredential: most}})
	p, authority, _, secure, conf := listening(t, connections)
	const id = "spiffe://cluster.local/ns/shop/sa/client"
	pair := clientPair(t, authority, id)
	issuer, err := attest.Local(p.config.dataDir)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := issuer.Mint("shop", "client", "istio-ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	bounded := func() int { return tally(t, obs.Bounded.WithLabelValues("messages")) }
	for _, name := range []string{"unended-streams", "unended-requests"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		before, done, counts, largest := bounded(), make(chan error, 1), &attack.Tally{}, 0
		go func() {
			done <- attack.Run(ctx, attack.Config{Addr: secure, Only: []string{name}, Certificate: &pair, Token: token, Identity: "shop/client",
				Victim: "shop/other/other-1", Hold: time.Minute}, counts)
		}()
		for bounded() < before+20 && ctx.Err() == nil {
			largest = max(largest, connections.Held())
			time.Sleep(time.Millisecond)
		}
		if ctx.Err() != nil {
			t.Errorf("%s: nothing was ended: %v", name, counts.Counts()[name])
		}
		own := conf.Clone()
		own.Certificates = []tls.Certificate{clientPair(t, authority, id)}
		if err := called(ctx, secure, credentials.NewTLS(own), "", oneStream); err != nil {
			t.Errorf("%s: a good client meanwhile: %v", name, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if largest > most+1<<20 { // each connection may have read some more by then
			t.Errorf("%s: %d bytes were kept", name, largest)
		}
	}
	servetest.Soon(t, "nothing counts that nobody keeps", func() bool { return connections.Held() == 0 })
}

// called calls with a connection of its own.
func called(ctx context.Context, to string, creds credentials.TransportCredentials, token string, does func(context.Context, *grpc.ClientConn) error) error {
	conn, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer conn.Close()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	if err := does(ctx, conn); status.Code(err) != codes.OK {
		return err
	}
	return nil
}

// A message of a certificate request or a report is limited to the size that a valid one needs, on either address.
// Messages for configuration have the server's limit.
// Promise: security-limits.md#streams-connections-and-messages
func TestMessageLimits(t *testing.T) {
	for method, want := range map[string]int{
		caserve.CertificateMethod:      17 << 10,
		caserve.HoldersMethod:          32 << 10,
		"/grpc.health.v1.Health/Check": 32 << 10,
		discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName:  0,
		discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName: 0,
	} {
		if got := messageLimit(method); got != want {
			t.Errorf("%s: %d bytes, want %d", method, got, want)
		}
	}
}
