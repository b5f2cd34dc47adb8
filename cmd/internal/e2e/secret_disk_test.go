package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// gateway is the stream of an authenticated gateway that has its clusters and subscribes to the Secret of a site.
type gateway struct {
	grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
	answers atomic.Int64 // about the Secret
}

// openGateway returns once the gateway has its clusters.
func openGateway(t *testing.T, d *daemon, ca *authority) (*gateway, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+d.secure, grpc.WithTransportCredentials(credentials.NewTLS(ca.client(t, "gateway"))))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		return nil, err
	}
	a := asking{stream: stream, node: router("shop", "gateway", "10.1.7.1"), got: map[string][]byte{}}
	err = a.ask(xds.Cluster, nil)
	if err == nil {
		_, err = a.receive(xds.Cluster, 1)
	}
	if err == nil {
		err = a.ask(xds.Secret, []string{"kubernetes://site"})
	}
	return &gateway{BidiStreamingClient: stream}, err
}

// next returns the next response about the Secret; nil: it does not exist.
func (g *gateway) next() (*tlsv3.TlsCertificate, error) {
	for {
		res, err := g.Recv()
		if err != nil || res.TypeUrl != xds.Secret.URL() {
			if err != nil {
				return nil, err
			}
			continue
		}
		g.answers.Add(1)
		if len(res.Resources) == 0 {
			return nil, nil
		}
		s := &tlsv3.Secret{}
		err = res.Resources[0].Resource.UnmarshalTo(s)
		return s.GetTlsCertificate(), err
	}
}

// A replica that starts while etcd is away reads a gateway's Secret from its disk, where it is sealed, and serves it. A
// replica with another key encryption key serves the rest of that snapshot. About the Secret it sends the gateway
// neither a key nor its absence, and its pages give the reason.
func TestGatewaySecretWhileEtcdIsAway(t *testing.T) {
	parallel(t)
	etcd, ca, state, dir := kvtest.Start(t), newAuthority(t), t.TempDir(), folder(t)
	store := "--etcd-endpoints=" + etcd.Endpoint()
	ca.issue(t, "server", "")
	ca.issue(t, "gateway", "spiffe://cluster.local/ns/shop/sa/gateway")
	shown := newSite(t, 101)
	write(t, dir, "rights.yaml", readers("gateway")+"---"+siteGateway)
	write(t, dir, "secret.yaml", shown.secret(shown.cert))
	keys := t.TempDir()
	if _, err := seal.NewFile(filepath.Join(keys, "wrong")); err != nil {
		t.Fatal(err)
	}
	replica := func(key string) *daemon {
		return start(t, "--roles=xds", "--state-dir", state, store, "--kek", "file:"+filepath.Join(keys, key),
			"--tls-cert", ca.file("server.crt"), "--tls-key", ca.file("server.key"), "--tls-client-ca", ca.file("ca.crt"))
	}
	serves := func(d *daemon) func() error {
		return func() error {
			g, err := openGateway(t, d, ca)
			if err != nil {
				return err
			}
			got, err := g.next()
			if err == nil && (got == nil || string(got.CertificateChain.GetInlineBytes()) != shown.cert || string(got.PrivateKey.GetInlineBytes()) != shown.key) {
				err = fmt.Errorf("not the site's: %.100q", got.GetCertificateChain().GetInlineBytes())
			}
			return err
		}
	}
	start(t, "--roles=ingest", "--config-dir", dir, store, "--kek", "file:"+filepath.Join(keys, "right"))
	first := replica("right")
	eventually(t, patience, serves(first))
	first.stop(t)
	etcd.Stop()
	sealedOnDisk(t, filepath.Join(state, "snapshot"), shown)

	second := replica("right")
	eventually(t, patience, serves(second))
	second.stop(t)

	third := replica("wrong")
	var g *gateway
	eventually(t, patience, func() (err error) { g, err = openGateway(t, third, ca); return err })
	go func() { _, _ = g.next() }() // it ends with the test
	eventually(t, patience, func() error {
		page, err := get(third.http, "/debug/explain?proxyID=gateway-0.shop&resource=kubernetes://site")
		if err == nil && !(strings.Contains(page, "being opened") && strings.Contains(page, "key encryption key")) {
			err = errors.New(page)
		}
		return err
	})
	if n := g.answers.Load(); n != 0 {
		t.Errorf("%d answers about a Secret that cannot be opened", n)
	}
}

// sealedOnDisk checks that a snapshot has the site's Secret, and its private key in no form.
func sealedOnDisk(t *testing.T, path string, shown site) {
	t.Helper()
	disk, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(disk), "Secret//files/shop/site") {
		t.Fatalf("the snapshot has no Secret: %v", err)
	}
	for form, part := range shown.forms {
		if strings.Contains(string(disk), part) {
			t.Errorf("the snapshot shows the private key as %s", form)
		}
	}
}
