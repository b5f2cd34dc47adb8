package listener

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

const (
	simple   = networkingv1.ServerTLSSettings_SIMPLE
	mutual   = networkingv1.ServerTLSSettings_MUTUAL
	optional = networkingv1.ServerTLSSettings_OPTIONAL_MUTUAL
)

// A port that terminates TLS has one chain, for TLS. It uses secrets of the agent if the agent reads files, and files
// otherwise. The mode decides whether clients need a certificate.
func TestServerTLS(t *testing.T) {
	all := ServerTLS{Mode: mutual, Certificate: "/c", Key: "/k", Authorities: "/ca", Revoked: "/crl", Ciphers: strs.List("AES128-SHA"), Curves: strs.List("P-256"),
		Least: networkingv1.ServerTLSSettings_TLSV1_2, Most: networkingv1.ServerTLSSettings_TLSV1_3}
	params := "tls_params:{tls_minimum_protocol_version:TLSv1_2 tls_maximum_protocol_version:TLSv1_3 cipher_suites:\"AES128-SHA\" ecdh_curves:\"P-256\"} "
	for _, c := range []struct {
		name    string
		tls     ServerTLS
		caps    xds.Caps // besides those of stock Envoy
		without xds.Caps
		require bool
		forward hcmv3.HttpConnectionManager_ForwardClientCertDetails
		chain   string
		want    []string // what the context has, beside where the agent is
	}{
		{"files by the agent", all, xds.CapIdentity | xds.CapFileSecrets, 0, true, hcmv3.HttpConnectionManager_APPEND_FORWARD, "tls",
			[]string{params, `tls_certificate_sds_secret_configs:{name:"file-cert:/c~/k"`, `validation_context_sds_secret_config:{name:"file-root:/ca"`, `default_validation_context:{crl:{filename:"/crl"}}`}},
		{"lists by the agent too", all, xds.CapIdentity | xds.CapFileSecrets | xds.CapFileLists, 0, true, hcmv3.HttpConnectionManager_APPEND_FORWARD, "tls",
			[]string{`name:"file-cert:/c~/k"`, `default_validation_context:{} validation_context_sds_secret_config:{name:"file-root:/ca~/crl"`}},
		{"files by Envoy", all, 0, 0, true, hcmv3.HttpConnectionManager_APPEND_FORWARD, "tls",
			[]string{params, `tls_certificates:{certificate_chain:{filename:"/c"} private_key:{filename:"/k"}}`, `validation_context:{trusted_ca:{filename:"/ca"} crl:{filename:"/crl"}}`}},
		{"a certificate may be shown", ServerTLS{Mode: optional, Certificate: "/c", Key: "/k", Authorities: "/ca"}, xds.CapFileSecrets, 0, false, hcmv3.HttpConnectionManager_APPEND_FORWARD, "tls",
			[]string{`name:"file-root:/ca"`}},
		{"clients are not asked", ServerTLS{Mode: simple, Certificate: "/c", Key: "/k"}, xds.CapFileSecrets, 0, false, hcmv3.HttpConnectionManager_SANITIZE, "tls", []string{`"file-cert:/c~/k"`}},
		{"nobody looks for TLS", ServerTLS{Mode: simple, Certificate: "/c", Key: "/k"}, 0, xds.CapTLSInspector, false, hcmv3.HttpConnectionManager_SANITIZE, "", []string{`filename:"/c"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := VirtualInbound{Common: stock(t), Port: 15006, Ports: ports.List(
				InboundPort{Port: 443, Protocol: model.Protocol_PROTOCOL_HTTP, Cluster: "in", Host: "web", ServicePort: 443, Ended: c.tls})}
			spec.Caps = spec.Caps&^c.without | c.caps
			_, l := build(t, spec)
			var mine []*listenerv3.FilterChain
			for _, chain := range l.FilterChains {
				if chain.FilterChainMatch.GetDestinationPort().GetValue() == 443 {
					mine = append(mine, chain)
				}
			}
			if len(mine) != 1 || mine[0].FilterChainMatch.TransportProtocol != c.chain || mine[0].TransportSocketConnectTimeout.AsDuration() != 15*time.Second {
				t.Fatalf("chains %v", mine)
			}
			context := &tlsv3.DownstreamTlsContext{}
			if err := mine[0].TransportSocket.GetTypedConfig().UnmarshalTo(context); err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(fmt.Sprint(context), "  ", " ") // prototext puts in spaces at random
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s\nhas no %s", text, want)
				}
			}
			if context.RequireClientCertificate.GetValue() != c.require || c.tls.Mode == simple && context.CommonTlsContext.ValidationContextType != nil {
				t.Errorf("clients: %v", context)
			}
			if got := manager(t, mine[0]).ForwardClientCertDetails; got != c.forward {
				t.Errorf("what clients have shown: %v, want %v", got, c.forward)
			}
			inspects := strings.Contains(strings.Join(listenerFilterNames(l), " "), "tls_inspector")
			if inspects != (c.chain == "tls") {
				t.Errorf("listener filters %v", listenerFilterNames(l))
			}
		})
	}
}

// authority is a certificate authority with its certificates in files.
type authority struct {
	t      *testing.T
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	a := authority{t: t, folder: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key = a.newKey()
	raw, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	a.write("ca", "CERTIFICATE", raw)
	return a
}

func (a authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a authority) write(name, kind string, raw []byte) {
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a authority) file(name string) string { return filepath.Join(a.folder, name) }

// issue writes a certificate for a name to files NAME and NAME.key.
func (a authority) issue(name string) tls.Certificate { return a.issueTo(name, name, a.newKey()) }

// issueTo writes a certificate for a name and a key to files FILE and FILE.key.
func (a authority) issueTo(file, name string, key crypto.Signer) tls.Certificate {
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature}, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(file, "CERTIFICATE", raw)
	a.write(file+".key", "PRIVATE KEY", der)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// Calls through a real Envoy that terminates TLS at ports of the workload: plain-text clients are refused, clients of a
// MUTUAL port need a certificate of the authorities, and the application is informed of the client's identity.
func TestTLSEndsAtEnvoy(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "app ", r.Header.Get("X-Forwarded-Client-Cert") != "")
	}))
	defer app.Close()
	echo := serve(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	ours, theirs := newAuthority(t), newAuthority(t)
	ours.issue("web.test")
	client, stranger := ours.issue("client.test"), theirs.issue("client.test")
	server := ServerTLS{Certificate: ours.file("web.test"), Key: ours.file("web.test.key")}
	ingress := func(mode networkingv1.ServerTLSSettings_TLSmode, protocol model.Protocol, cluster string) (uint32, *listenerv3.Listener) {
		port, tls := freePort(t), server
		if tls.Mode = mode; mode != simple {
			tls.Authorities = ours.file("ca")
		}
		_, l := build(t, Ingress{Common: stock(t), Name: fmt.Sprint("i", port), Bind: "127.0.0.1",
			Inner: InboundPort{Port: port, Protocol: protocol, Cluster: cluster, Host: "web.shop", ServicePort: port, Ended: tls}})
		return port, l
	}
	open, first := ingress(simple, model.Protocol_PROTOCOL_HTTP, "app")
	closed, second := ingress(mutual, model.Protocol_PROTOCOL_HTTP, "app")
	either, third := ingress(optional, model.Protocol_PROTOCOL_HTTP, "app")
	raw, fourth := ingress(simple, model.Protocol_PROTOCOL_TCP, "echo")
	envoytest.Start(t, fold(t, inboundRoutes("r", "v", "app", "o", false),
		map[string]int{"app": app.Listener.Addr().(*net.TCPAddr).Port, "echo": echo, xds.BlackHole: 0}, first, second, third, fourth)).Live()

	trust := x509.NewCertPool()
	trust.AddCert(ours.cert)
	config := func(certificates ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: trust, ServerName: "web.test", Certificates: certificates}
	}
	call := func(port uint32, config *tls.Config) string {
		client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
		r, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/", port))
		if err != nil {
			return "refused"
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		return fmt.Sprintf("%d %s", r.StatusCode, body)
	}
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", raw), config())
	plain, plainErr := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", raw))
	for _, check := range []struct{ what, got, want string }{
		{"TLS", call(open, config()), "200 app false"},
		{"a certificate that nobody asked for", call(open, config(stranger)), "200 app false"},
		{"no certificate", call(closed, config()), "refused"},
		{"a stranger's certificate", call(closed, config(stranger)), "refused"},
		{"a certificate", call(closed, config(client)), "200 app true"},
		{"no certificate where one may be shown", call(either, config()), "200 app false"},
		{"a stranger's certificate where one may be shown", call(either, config(stranger)), "refused"},
		{"a certificate where one may be shown", call(either, config(client)), "200 app true"},
		{"TLS, no HTTP within", exchange(t, conn, err, "ping", 4), "ping"},
		{"in the clear", exchange(t, plain, plainErr, "hello there", 4), ""},
	} {
		if check.got != check.want {
			t.Errorf("%s: got %q, want %q", check.what, check.got, check.want)
		}
	}
	if got := get(open); strings.HasPrefix(got, "200") {
		t.Errorf("HTTP in the clear: %s", got)
	}
}
