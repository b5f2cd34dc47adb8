package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/kv/kvtest"
)

const (
	trustURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext"
	pcdsURL  = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
)

// service returns a client of a replica's ADS.
func service(t *testing.T, d *daemon) discoveryv3.AggregatedDiscoveryServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
}

// A process with role ca sends agents the mesh's trust: to navarch-agent by name, roots with the revocation list of
// each issuer; to stock agents by PCDS, on a stream of either protocol. A process without trust answers that it has no
// trust.
func TestTrustIsServed(t *testing.T) {
	parallel(t)
	data := t.TempDir()
	d := start(t, "--config-dir", folder(t), "--data-dir", data)
	eventually(t, patience, serves(t, d, 1))
	var want []byte
	eventually(t, patience, func() (err error) {
		want, err = os.ReadFile(filepath.Join(data, "root-cert.pem"))
		return err
	})
	stream, err := service(t, d).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := node("shop", "client", "10.1.9.9")
	ask := func(url string, names ...string) *discoveryv3.DeltaDiscoveryResponse {
		t.Helper()
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: url, ResourceNamesSubscribe: names}); err != nil {
			t.Fatal(err)
		}
		res, err := stream.Recv()
		if err != nil || res.TypeUrl != url {
			t.Fatalf("%v %v", res, err)
		}
		return res
	}
	trusted := &tlsv3.CertificateValidationContext{}
	if res := ask(trustURL, "ROOTCA"); len(res.Resources) != 1 || res.Resources[0].Name != "ROOTCA" || res.Resources[0].Resource.UnmarshalTo(trusted) != nil {
		t.Fatalf("trust: %v", res)
	}
	if string(trusted.GetTrustedCa().GetInlineBytes()) != string(want) || !trusted.OnlyVerifyLeafCertCrl {
		t.Errorf("trust: %v", trusted)
	}
	listOf(t, want, trusted.GetCrl().GetInlineBytes())
	pcds := &meshv1alpha1.ProxyConfig{}
	if res := ask(pcdsURL); len(res.Resources) != 1 || res.Resources[0].Resource.UnmarshalTo(pcds) != nil || !slices.Equal(pcds.CaCertificatesPem, []string{string(want)}) {
		t.Errorf("PCDS: %v", res)
	}
	whole, err := service(t, d).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.Send(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: pcdsURL}); err != nil {
		t.Fatal(err)
	}
	if res, err := whole.Recv(); err != nil || res.Resources[0].UnmarshalTo(pcds) != nil || !slices.Equal(pcds.CaCertificatesPem, []string{string(want)}) {
		t.Errorf("PCDS by the state of the world: %v %v", res, err)
	}

	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	start(t, "--roles=ingest", "--config-dir", folder(t), store)
	d = start(t, "--roles=xds", store)
	eventually(t, patience, serves(t, d, 1))
	if stream, err = service(t, d).DeltaAggregatedResources(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := ask(trustURL, "ROOTCA"); len(res.Resources) != 0 || !slices.Equal(res.RemovedResources, []string{"ROOTCA"}) {
		t.Errorf("without role ca: %v", res)
	}
}

// listOf checks a revocation list: the issuer, a root, signed it.
func listOf(t *testing.T, roots, lists []byte) {
	t.Helper()
	root, _ := pem.Decode(roots)
	list, _ := pem.Decode(lists)
	if list == nil {
		t.Fatal("no revocation list")
	}
	issuer, err := x509.ParseCertificate(root.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if crl, err := x509.ParseRevocationList(list.Bytes); err != nil || crl.CheckSignatureFrom(issuer) != nil {
		t.Errorf("the list: %v", err)
	}
}
