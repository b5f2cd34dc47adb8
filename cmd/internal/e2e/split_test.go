package e2e

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/store/kv/kvtest"
)

// Roles in separate processes: an xDS replica with the KEK signs nothing, still sends agents roots and revocation
// lists, and has its serving certificate from the mesh's CA.
func TestReplicaWithoutRoleCACarriesTrust(t *testing.T) {
	parallel(t)
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	kek := "--kek=file:" + filepath.Join(t.TempDir(), "kek")
	start(t, "--roles=ingest,ca", "--config-dir", folder(t), kek, store)
	replica := start(t, "--roles=xds", kek, store)
	eventually(t, patience, serves(t, replica, 1))

	eventually(t, patience, func() error {
		stream, err := service(t, replica).DeltaAggregatedResources(t.Context())
		if err != nil {
			return err
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("shop", "client", "10.1.9.9"), TypeUrl: trustURL, ResourceNamesSubscribe: []string{"ROOTCA"}}); err != nil {
			return err
		}
		res, err := stream.Recv()
		trusted := &tlsv3.CertificateValidationContext{}
		if err != nil || len(res.Resources) != 1 || res.Resources[0].Resource.UnmarshalTo(trusted) != nil || len(trusted.GetCrl().GetInlineBytes()) == 0 {
			return fmt.Errorf("trust of a replica without role ca: %v %v", res, err)
		}
		return nil
	})
	conf := &tls.Config{InsecureSkipVerify: true} // the test checks the server's identity itself
	if _, _, err := signed(t.Context(), t, replica.secure, conf); status.Code(err) != codes.Unimplemented {
		t.Errorf("a CSR to a replica without role ca: %v, want Unimplemented", err)
	}
	conn, err := tls.Dial("tcp", replica.secure, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.ConnectionState().PeerCertificates[0].VerifyHostname("istiod.istio-system.svc"); err != nil {
		t.Error(err)
	}
}
