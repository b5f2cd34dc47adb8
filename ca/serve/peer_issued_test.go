package serve_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
)

// lender returns a CA that issues two names to the control plane's identities, istio-system/istiod and
// istio-system/istiod-admit.
func lender(t *testing.T) *servetest.CA {
	t.Helper()
	return servetest.Start(t, lending())
}

func lending() serve.Config {
	cfg := quiet()
	for _, account := range []string{"istiod", "istiod-admit"} {
		cfg.ControlPlane = append(cfg.ControlPlane, spiffeid.RequireFromPath(servetest.TrustDomain, "/ns/istio-system/sa/"+account))
	}
	cfg.Names = []string{servetest.ServerName, "127.0.0.1"}
	return cfg
}

func rootsOf(ca *servetest.CA) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Roots())
	return pool
}

// The control plane's own token yields the serving names, and no other credential does: not another token of its
// namespace or its service account, and not a certificate of the control plane, since a stolen serving key could then
// renew itself.
// Promise: security-keys.md#the-power-of-each-key
func TestServingNamesAreTheControlPlanes(t *testing.T) {
	ca := lender(t)
	for _, who := range []struct{ ns, sa string }{{"istio-system", "istiod"}, {"istio-system", "istiod-admit"}, {"istio-system", "other"}, {"shop", "istiod"}, {"shop", "istiod-admit"}} {
		own, _ := first(t, ca, who.ns, who.sa)
		want := []string(nil)
		if who.ns == "istio-system" && who.sa != "other" {
			want = []string{servetest.ServerName}
		}
		if !slices.Equal(own.Leaf.DNSNames, want) || len(own.Leaf.IPAddresses) != len(want) {
			t.Errorf("%s/%s has the names %q %v", who.ns, who.sa, own.Leaf.DNSNames, own.Leaf.IPAddresses)
		}
		if id := fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/%s", who.ns, who.sa); len(own.Leaf.URIs) != 1 || own.Leaf.URIs[0].String() != id {
			t.Errorf("%s/%s has the identities %v", who.ns, who.sa, own.Leaf.URIs)
		}
		conn := dial(t, ca, own)
		csr, _ := request(t)
		chain, err := create(t.Context(), conn, "", &securityv1.IstioCertificateRequest{Csr: csr})
		conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		if leaf := parse(t, chain[0]); len(leaf.DNSNames)+len(leaf.IPAddresses) != 0 {
			t.Errorf("%s/%s renewed by certificate has the names %q", who.ns, who.sa, leaf.DNSNames)
		}
	}
}

// ofCluster states that a CA's callers belong to a cluster.
type ofCluster struct {
	*servetest.CA
	cluster string
}

func (o *ofCluster) Authenticate(ctx context.Context) (attest.Caller, error) {
	c, err := o.CA.Authenticate(ctx)
	c.Cluster = o.cluster
	return c, err
}

// Another cluster's token for the control plane's namespace and service account yields a workload's certificate: an
// administrator of that cluster may create such a token.
// Promise: security-keys.md#the-power-of-each-key
func TestServingNamesAreOfTheConfigCluster(t *testing.T) {
	cfg, who := lending(), &ofCluster{}
	cfg.Cluster, cfg.Authenticator = "east", who
	who.CA = servetest.Start(t, cfg)
	for cluster, want := range map[string]int{"": 1, "east": 1, "west": 0} {
		who.cluster = cluster
		if own, _ := first(t, who.CA, "istio-system", "istiod"); len(own.Leaf.DNSNames) != want || len(own.Leaf.IPAddresses) != want {
			t.Errorf("of cluster %q: names %q %v", cluster, own.Leaf.DNSNames, own.Leaf.IPAddresses)
		}
	}
}

// The control plane's token does not permit signing: a request for a CA certificate receives a server certificate,
// under which no other certificate verifies. After the control plane's identity is revoked, no certificate is issued.
// Promise: security-keys.md#the-power-of-each-key
func TestControlPlanesTokenSignsNothing(t *testing.T) {
	ca := lender(t)
	conn := dial(t, ca, nil)
	defer conn.Close()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	isCA, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	usage, err := asn1.Marshal(asn1.BitString{Bytes: []byte{0x06}, BitLength: 7}) // keyCertSign, cRLSign
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{
		{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: isCA}, {Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Critical: true, Value: usage}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := &securityv1.IstioCertificateRequest{Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))}
	chain, err := create(t.Context(), conn, ca.Token("istio-system", "istiod"), csr)
	if err != nil {
		t.Fatal(err)
	}
	own := parse(t, chain[0])
	if own.IsCA || own.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		t.Errorf("a CA: %v, usage %b", own.IsCA, own.KeyUsage)
	}
	forged, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), URIs: own.URIs, NotBefore: own.NotBefore, NotAfter: own.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, own, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(forged)
	if err != nil {
		t.Fatal(err)
	}
	between := x509.NewCertPool()
	for _, c := range chain[:len(chain)-1] {
		between.AppendCertsFromPEM([]byte(c))
	}
	of := x509.VerifyOptions{Roots: rootsOf(ca), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := own.Verify(of); err != nil {
		t.Errorf("its own: %v", err)
	}
	if _, err := leaf.Verify(of); err == nil {
		t.Error("what it signed verifies")
	}
	ca.Revoke("spiffe://cluster.local/ns/istio-system/sa/istiod")
	if _, err := create(t.Context(), conn, ca.Token("istio-system", "istiod"), csr); status.Code(err) != codes.PermissionDenied {
		t.Errorf("after its revocation: %v", err)
	}
}

// A replica gets its serving certificate from the first peer that can sign. The error lists the reason of each peer.
// The token is sent only to peers that the roots verify.
func TestPeerIssued(t *testing.T) {
	ca, sealed, foreign := lender(t), lender(t), lender(t)
	a, err := ca.Current()
	if err != nil {
		t.Fatal(err)
	}
	sealed.Sign(a.Authority)
	sealed.Seal(errors.New("the KEK is away"))
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	b := serve.PeerIssued{Roots: rootsOf(ca), ServerName: servetest.ServerName, Token: ca.Token("istio-system", "istiod"),
		Peers: []string{foreign.Address, nobody.Addr().String(), ca.Address}}
	issued, err := b.Request(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leaf := issued.Certificate.Leaf
	if issued.Peer != ca.Address || leaf.VerifyHostname(servetest.ServerName) != nil || leaf.VerifyHostname("127.0.0.1") != nil {
		t.Errorf("from %s: %q %v", issued.Peer, leaf.DNSNames, leaf.IPAddresses)
	}
	if e := ca.Entries(); len(e) != 1 || e[0].Identity.Path() != "/ns/istio-system/sa/istiod" || !slices.Equal(e[0].Names, []string{servetest.ServerName}) {
		t.Errorf("journal: %+v", e)
	}
	for _, c := range []struct {
		peers []string
		token string
		want  string
	}{
		{nil, b.Token, "no peer is known"},
		{[]string{sealed.Address}, sealed.Token("istio-system", "istiod"), "the KEK is away"},
		{[]string{foreign.Address}, foreign.Token("istio-system", "istiod"), "certificate"},
		{[]string{ca.Address}, ca.Token("shop", "web"), "check the token"},
		{[]string{ca.Address}, "forged", "Unauthenticated"},
		{[]string{"nonsense"}, b.Token, "want host:port"},
	} {
		bad := b
		bad.Peers, bad.Token = c.peers, c.token
		if issued, err := bad.Request(t.Context()); err == nil || issued != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.token) && c.token != "forged" {
			t.Errorf("want %q: %v", c.want, err)
		}
	}
	if n := len(foreign.Entries()); n != 0 {
		t.Errorf("a peer that the roots do not vouch for was shown the token %d times", n)
	}
}

// Without TLS no request is signed, and the response has the reason.
func TestPlain(t *testing.T) {
	ca := lender(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	serve.RegisterPlain(server, ca)
	go server.Serve(l) //nolint:errcheck // ends with Stop
	defer server.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	csr, _ := request(t)
	ask := func() error {
		_, err := create(context.Background(), conn, ca.Token("shop", "web"), &securityv1.IstioCertificateRequest{Csr: csr})
		return err
	}
	if err := ask(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "over TLS") {
		t.Error(err)
	}
	ca.Seal(errors.New("the KEK is away"))
	if err := ask(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the KEK is away") {
		t.Error(err)
	}
}
