package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/loopback"
)

// site is a certificate for site.test, its own authority.
type site struct {
	cert, key string // PEM
	pool      *x509.CertPool
	pair      tls.Certificate
	forms     map[string]string // in which the private key might be found
}

func newSite(t *testing.T, serial int64) site {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "site"}, DNSNames: []string{"site.test"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	scalar, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	s := site{cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), key: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
		pool: x509.NewCertPool(), pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, forms: map[string]string{}}
	s.pool.AppendCertsFromPEM([]byte(s.cert))
	s.forms["PEM"], s.forms["PEM in base64"] = strings.Split(s.key, "\n")[1], base64.StdEncoding.EncodeToString([]byte(s.key))[:60]
	for kind, b := range map[string][]byte{"DER ": pkcs8, "scalar ": scalar} {
		s.forms[kind+"raw"], s.forms[kind+"hex"], s.forms[kind+"base64"] = string(b), hex.EncodeToString(b), base64.StdEncoding.EncodeToString(b)[:40]
		s.forms[kind+"bytes"] = strings.Trim(fmt.Sprint(b), "[]")
	}
	s.forms["scalar decimal"] = new(big.Int).SetBytes(scalar).String()
	return s
}

// secret returns the Secret as YAML. ca is the certificate by which clients are verified, in NAME-cacert.
func (s site) secret(ca string) string {
	encode := func(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) }
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: site, namespace: shop}\ndata: {tls.crt: %s, tls.key: %s, ca.crt: %s}\n",
		encode(s.cert), encode(s.key), encode(ca))
}

// gatewayListeners returns EnvoyFilters that add two listeners to gateways: 8443 for all clients, 8444 for clients with
// a certificate.
func gatewayListeners(ip string) string {
	listener := func(name string, port int, context string) string {
		return fmt.Sprintf(`
  - applyTo: LISTENER
    match: {context: GATEWAY}
    patch:
      operation: ADD
      value:
        name: %s
        address: {socket_address: {address: %s, port_value: %d}}
        filter_chains:
        - transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
              %s
          filters:
          - name: envoy.filters.network.http_connection_manager
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
              stat_prefix: %s
              http_filters:
              - {name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
              route_config:
                virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: 200, body: {inline_string: %s}}}]}]
`, name, ip, port, context, name, name)
	}
	ads := "sds_config: {ads: {}, resource_api_version: V3}"
	pair := func(name string) string {
		return "tls_certificate_sds_secret_configs: [{name: '" + name + "', " + ads + "}]"
	}
	return "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: gateway, namespace: shop}\nspec:\n  configPatches:" +
		listener("open", 8443, "common_tls_context: {"+pair("kubernetes://site")+"}") +
		listener("mutual", 8444, "require_client_certificate: true\n              common_tls_context: {"+pair("kubernetes-gateway://shop/site")+
			", validation_context_sds_secret_config: {name: 'kubernetes://site-cacert', "+ads+"}}") +
		listener("nowhere", 8445, "common_tls_context: {"+pair("kubernetes://elsewhere/site")+"}")
}

// visit makes a TLS handshake and one request. It returns the serial number of the server's certificate, and the
// response's body.
func visit(address string, trust *x509.CertPool, client ...tls.Certificate) (serial int64, body string, err error) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: trust, ServerName: "site.test", Certificates: client}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Timeout: patience, Transport: transport}).Get("https://" + address + "/")
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return res.TLS.PeerCertificates[0].SerialNumber.Int64(), string(raw), err
}

// readers returns the Role and the RoleBinding of Istio's chart for gateways, which permit a service account of
// namespace shop to list Secrets there.
func readers(account string) string {
	return `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gateway, namespace: shop}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, watch, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gateway, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: gateway}
subjects: [{kind: ServiceAccount, name: ` + account + `, namespace: shop}]
`
}

// siteGateway makes all proxies of the mesh that may have it use the Secret site of their namespace.
const siteGateway = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: site, namespace: shop}
spec:
  servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: site}}]
`

// A real Envoy as a gateway serves HTTPS with a Secret of its namespace. The Secret is rotated under traffic, and no
// request fails. Clients are verified against its CA. After an edit whose key and certificate do not match, the last
// good version stays. A proxy whose service account may not list the Secrets of the namespace receives no private key,
// whatever its node claims; the key is in the gateway only. istioctl is answered about the gateway, without the key.
// Promise: security-workloads.md#identity-and-private-keys
func TestGatewaySecret(t *testing.T) {
	parallel(t)
	ip := loopback.NetFor(t) + ".7"
	data, dir := t.TempDir(), t.TempDir()
	first, second, customer := newSite(t, 101), newSite(t, 102), newSite(t, 103)
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM([]byte(first.cert + second.cert))
	write(t, dir, "services.yaml", services)
	write(t, dir, "gateway.yaml", gatewayListeners(ip))
	write(t, dir, "secret.yaml", first.secret(customer.cert))
	write(t, dir, "readers.yaml", readers("gateway"))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	_, agent := startAgent(t, d, data, "gateway", ip, "--type", "router")

	open := ip + ":8443"
	shows := func(serial int64) func() error {
		return func() error {
			got, body, err := visit(open, trust)
			if err == nil && (got != serial || body != "open") {
				err = fmt.Errorf("certificate %d, %q; want %d", got, body, serial)
			}
			return err
		}
	}
	eventually(t, patience, shows(101))
	knowsClients(t, ip+":8444", trust, customer, second)
	if _, _, err := visit(ip+":8445", trust); err == nil {
		t.Error("a Secret of another namespace was served")
	}
	refusedSecrets(t, d, data)
	explained(t, d, "kubernetes://site", "secret kubernetes://site: sent", "made of Secret shop/site", "wanted by router~"+ip+"~gateway-0.shop")
	gatewayAsked(t, d, data)
	explained(t, d, "kubernetes://elsewhere/site", "secret kubernetes://elsewhere/site: withheld", "because its namespace shop")

	rotate(t, open, trust, func() {
		write(t, dir, "secret.yaml", second.secret(customer.cert))
		eventually(t, patience, shows(102))
		write(t, dir, "secret.yaml", first.secret(customer.cert))
		eventually(t, patience, shows(101))
		mismatch := second
		mismatch.key = first.key
		write(t, dir, "secret.yaml", mismatch.secret(customer.cert))
		eventually(t, patience, func() error {
			page, err := get(d.http, "/debug/problems")
			if err == nil && !strings.Contains(page, "does not belong to the certificate") {
				err = fmt.Errorf("no problem of the Secret: %s", page)
			}
			return err
		})
		write(t, dir, "secret.yaml", second.secret(customer.cert))
		eventually(t, patience, shows(102))
	})
	nowhere(t, d, data, agent, first, second)

	// Another process serves the same from the stored state; the gateway receives nothing that it holds.
	d.stop(t)
	if err := shows(102)(); err != nil {
		t.Errorf("without a control plane: %v", err)
	}
}

// knowsClients checks that a listener wants a certificate of the customer's authority.
func knowsClients(t *testing.T, mutual string, trust *x509.CertPool, customer, other site) {
	t.Helper()
	if _, body, err := visit(mutual, trust, customer.pair); err != nil || body != "mutual" {
		t.Errorf("a client with a certificate: %q %v", body, err)
	}
	for name, pair := range map[string][]tls.Certificate{"none": nil, "one of another authority": {other.pair}} {
		if _, body, err := visit(mutual, trust, pair...); err == nil {
			t.Errorf("a client with %s: %q", name, body)
		}
	}
}

// rotate visits all the time while something happens; no visit may fail.
func rotate(t *testing.T, address string, trust *x509.CertPool, happens func()) {
	t.Helper()
	stop, visits := make(chan struct{}), atomic.Int64{}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, _, err := visit(address, trust); err != nil {
					t.Errorf("visit %d, during a rotation: %v", visits.Load(), err)
				}
				visits.Add(1)
			}
		})
	}
	happens()
	close(stop)
	all.Wait()
	t.Logf("%d handshakes", visits.Load())
}

// secretsOf subscribes to Secrets on a separate stream and returns the names of sent and removed ones.
func secretsOf(t *testing.T, creds credentials.TransportCredentials, ctx context.Context, address string, n *corev3.Node, names ...string) (sent, removed []string, err error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: xds.Secret.URL(), ResourceNamesSubscribe: names}); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	for len(sent)+len(removed) < len(names) {
		res, err := stream.Recv()
		if err != nil {
			return sent, removed, err
		}
		for _, r := range res.Resources {
			s := &tlsv3.Secret{}
			if err := r.Resource.UnmarshalTo(s); err != nil || s.Name != r.Name {
				return sent, removed, errors.Join(err, errors.New("a Secret of another name"))
			}
			sent = append(sent, r.Name)
		}
		removed = append(removed, res.RemovedResources...)
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce}); err != nil {
			return sent, removed, err
		}
	}
	return sent, removed, nil
}
