//go:build kube

package chart

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"navarch.io/navarch/deploy/testcluster/cluster"
)

// caVariable, where it is set, has this program be a CA beside Navarch (cert-manager's istio-csr is one): it answers
// agents at port 8443, with the certificate, and signs with the key, in /etc/ca.
const caVariable = "NAVARCH_TEST_CA"

func serveCA() error {
	a := &authority{}
	for file, take := range map[string]func(der []byte) error{
		"ca.crt": func(der []byte) (err error) { a.cert, err = x509.ParseCertificate(der); return err },
		"ca.key": func(der []byte) (err error) { a.key, err = x509.ParseECPrivateKey(der); return err },
	} {
		text, err := os.ReadFile("/etc/ca/" + file)
		if err != nil {
			return err
		}
		block, _ := pem.Decode(text)
		if err := take(block.Bytes); err != nil {
			return err
		}
	}
	a.root = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	inCluster, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(inCluster)
	if err != nil {
		return err
	}
	shown, err := credentials.NewServerTLSFromFile("/etc/ca/tls.crt", "/etc/ca/tls.key")
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", ":8443")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.Creds(shown))
	securityv1.RegisterIstioCertificateServiceServer(server, &otherCA{authority: a, client: client})
	return server.Serve(l)
}

// otherCA signs for callers with the token of a service account, which an API server verifies.
type otherCA struct {
	securityv1.UnimplementedIstioCertificateServiceServer
	*authority
	client kubernetes.Interface
}

// CreateCertificate implements istio.v1.auth.IstioCertificateService.
func (c *otherCA) CreateCertificate(ctx context.Context, r *securityv1.IstioCertificateRequest) (*securityv1.IstioCertificateResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	token := strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
	review, err := c.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"istio-ca"}}}, metav1.CreateOptions{})
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	account := strings.Split(review.Status.User.Username, ":") // system:serviceaccount:NAMESPACE:NAME
	if !review.Status.Authenticated || len(account) != 4 {
		return nil, status.Errorf(codes.Unauthenticated, "%+v", review.Status)
	}
	block, _ := pem.Decode([]byte(r.GetCsr()))
	if block == nil {
		return nil, status.Error(codes.InvalidArgument, "no PEM")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = asked.CheckSignature()
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	id := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + account[2] + "/sa/" + account[3]}
	signed, err := c.certify(workload([]*url.URL{id}), c.cert, asked.PublicKey)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &securityv1.IstioCertificateResponse{CertChain: []string{string(signed), string(c.root)}}, nil
}

// anotherCA installs a fourth mesh, whose certificates are signed by a CA beside Navarch (deploy/docs/security-ca.md,
// Another CA): injected Pods get certificates from there, join with them, and reach each other by mutual TLS only. The
// namespaces' root is that CA's, and navarchd does not write it.
func (i *installation) anotherCA() {
	t, ca := i.t, newAuthority(i.t)
	if os.Geteuid() != 0 {
		t.Log("not root: sidecars, which run as a user of their own, are left out")
		return
	}
	i.MustKubectl(t, "", "apply", "-f", "testdata/foreign-ca.yaml")
	i.serving(ca, "authority", "serving", "ca.authority.svc")
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "signing"}, Data: map[string][]byte{"ca.key": encodeKey(t, ca.key)}}
	if _, err := i.client.CoreV1().Secrets("authority").Create(t.Context(), key, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	i.serving(ca, "foreign", "istiod-serving", "istiod-foreign.foreign.svc")
	root := ca.file(t)
	i.runIn("foreign", "install", "foreign", i.helm.Dir, "-f", "testdata/foreign.yaml",
		"--set-file", "issuer.roots="+root, "--set-file", "issuer.servingRoots="+root, "--wait", "--timeout=300s")
	i.trusts("foreign-shop", string(ca.root))
	i.MustKubectl(t, "", "apply", "-f", "testdata/foreign-shop.yaml")
	if out, err := i.Kubectl(t.Context(), "", "wait", "-n", "foreign-shop",
		"--for=condition=Ready", "pod/web", "pod/client", "--timeout=180s"); err != nil {
		logs, _ := i.Kubectl(t.Context(), "", "logs", "-n", "foreign-shop", "web", "--all-containers", "--tail=30")
		signer, _ := i.Kubectl(t.Context(), "", "logs", "-n", "authority", "deployment/ca", "--tail=30")
		t.Fatalf("%v %s\n%s\n%s", err, out, logs, signer)
	}
	cluster.Await(t, "a request by mutual TLS", func() string {
		page, _ := i.Kubectl(t.Context(), "", "get", "--raw", "/api/v1/namespaces/foreign-shop/pods/client:9080/proxy/call/web/")
		var answer struct {
			Status int
			Body   struct{ Name, Caller string }
		}
		if err := json.Unmarshal([]byte(page), &answer); err != nil || answer.Status != 200 || answer.Body.Name != "web" || !strings.Contains(answer.Body.Caller, "URI=spiffe://cluster.local/ns/foreign-shop/sa/buyer") {
			return page
		}
		return ""
	})
	if page, err := i.Kubectl(t.Context(), "", "get", "--raw", "/api/v1/namespaces/foreign-shop/pods/web:9080/proxy/"); err == nil {
		t.Errorf("without mutual TLS the answer is %s", page)
	}
	if got := i.get("{.data.root-cert\\.pem}", "configmap", "-n", "foreign-shop", "istio-ca-root-cert"); got != string(ca.root) {
		t.Errorf("the namespace's root is %s", got)
	}
	if policies := i.get("{.webhooks[*].failurePolicy}", "validatingwebhookconfiguration", "istio-validator-foreign-foreign"); policies != "Ignore Ignore" {
		t.Errorf("failure policies %s: nobody sees to them where the certificate is not the mesh's", policies)
	}
	if wrong := i.wrong("foreign", "foreign", ""); !strings.Contains(wrong, "istio-ca-root-cert") || strings.Contains(wrong, `"status": "failure"`) {
		t.Errorf("navarchctl check, where the control plane's namespace has no roots: %s", wrong)
	}
	i.trusts("foreign", string(ca.root))
	if wrong := i.wrong("foreign", "foreign", "clusters were sent; another CA signs, and was not asked"); wrong != "" {
		t.Errorf("navarchctl check: %s", wrong)
	}
	if got := i.othersRoots(ca); !slices.Equal(got, []string{strings.TrimSpace(string(ca.root))}) {
		t.Errorf("stock agents are told of the roots %q", got)
	}
	i.at("Pods have certificates of another CA")
}

// othersRoots returns the roots that a stock agent of foreign-shop receives (PCDS) with the token of its service
// account.
func (i *installation) othersRoots(ca *authority) []string {
	t := i.t
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	forward := i.KubectlCommand(ctx, "port-forward", "-n", "foreign", "--address=127.0.0.1", "deployment/istiod-foreign", ":15012")
	out, err := forward.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer forward.Wait() //nolint:errcheck // the process is killed
	defer cancel()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "istiod-foreign.foreign.svc"})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	token := strings.TrimSpace(i.MustKubectl(t, "", "create", "token", "buyer", "-n", "foreign-shop", "--audience=istio-ca"))
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
	if err == nil {
		err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig",
			Node: &corev3.Node{Id: "sidecar~10.1.9.9~stock.foreign-shop~foreign-shop.svc.cluster.local"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil || len(answer.Resources) != 1 {
		t.Fatalf("%v %v", answer, err)
	}
	sent := &meshv1alpha1.ProxyConfig{}
	if err := answer.Resources[0].Resource.UnmarshalTo(sent); err != nil {
		t.Fatal(err)
	}
	return sent.CaCertificatesPem
}
