package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/credentials"
)

// Over mTLS three workloads of one service account refuse a cluster, and disconnect. It is withheld from the fourth, as
// /debug/problems reports, and not from a workload of another account, which accepts it. If one workload refuses a
// cluster on three streams, nothing is withheld.
func TestRefusedByOneIdentity(t *testing.T) {
	parallel(t)
	const culprit = "outbound|80||web.shop.svc.cluster.local"
	dir, data := folder(t), t.TempDir()
	write(t, dir, "filter.yaml", badFilter)
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, serves(t, d, 1))
	roots := x509.NewCertPool()
	eventually(t, patience, func() error {
		text, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
		roots.AppendCertsFromPEM(text)
		return err
	})
	conf := &tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"}
	workload := func(account string) credentials.TransportCredentials {
		pair, _, err := signed(bearer(t.Context(), token(t, data, "shop", account)), t, d.secure, conf)
		if err != nil {
			t.Fatal(err)
		}
		own := conf.Clone()
		own.Certificates = []tls.Certificate{pair}
		return credentials.NewTLS(own)
	}
	open := func(account string, creds credentials.TransportCredentials, n int) (deltaStream, func()) {
		return openStreamAs(t.Context(), t, d.secure, creds, node("shop", account, fmt.Sprintf("10.1.9.%d", n)))
	}
	sent := func(stream deltaStream) bool {
		res, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return carries(res, culprit)
	}
	first := workload("client")
	for n := range 3 {
		stream, leave := open("client", first, n)
		refuseOn(t, stream, culprit)
		leave()
	}
	for n := range 2 {
		stream, leave := open("client", workload("client"), 10+n)
		refuseOn(t, stream, culprit)
		leave()
		if n == 1 {
			break
		}
		stream, leave = open("client", workload("client"), 20)
		if !sent(stream) {
			t.Error("it is withheld after two workloads have refused it")
		}
		leave()
	}
	d.hasProblem(t, "Object:EnvoyFilter shop/clumsy", culprit, "is withheld from all proxies of spiffe://cluster.local/ns/shop/sa/client of the view", "3 of their credentials refused it")
	if stream, _ := open("client", workload("client"), 30); sent(stream) {
		t.Error("a fourth workload of the account is sent what three have refused")
	}
	if stream, _ := open("other", workload("other"), 31); !sent(stream) {
		t.Error("it is withheld from another account")
	}
}
