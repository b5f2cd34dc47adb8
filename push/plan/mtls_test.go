package plan

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	local "navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/model"
)

// authority is a CA for tests.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key, cert: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"test"}}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}}
	raw, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// issue returns a certificate with a URI, and its key in PKCS #8, both in DER.
func (a *authority) issue(id string) (leaf, pkcs8 []byte) {
	a.t.Helper()
	return a.issueUntil(id, time.Now().Add(time.Hour))
}

// issueUntil is issue, with the end of the certificate.
func (a *authority) issueUntil(id string, end time.Time) (leaf, pkcs8 []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	uri, _ := url.Parse(id)
	leaf, err = x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end, URIs: []*url.URL{uri}}, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	if pkcs8, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		a.t.Fatal(err)
	}
	return leaf, pkcs8
}

// secrets writes an identity's secrets as files for Envoy, and returns their folder.
func (a *authority) secrets(id string) string {
	return a.secretsUntil(id, time.Now().Add(time.Hour))
}

// secretsUntil is secrets, with the end of the certificate.
func (a *authority) secretsUntil(id string, end time.Time) string {
	leaf, pkcs8 := a.issueUntil(id, end)
	block := func(kind string, der []byte) map[string]any {
		return map[string]any{"inline_string": string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))}
	}
	dir := a.t.TempDir()
	for name, secret := range map[string]map[string]any{
		xds.SDSDefault: {"tls_certificate": map[string]any{"certificate_chain": block("CERTIFICATE", leaf), "private_key": block("PRIVATE KEY", pkcs8)}},
		xds.SDSRoot:    {"validation_context": map[string]any{"trusted_ca": block("CERTIFICATE", a.cert.Raw)}},
	} {
		secret["@type"], secret["name"] = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", name
		b, err := json.Marshal(map[string]any{"resources": []any{secret}})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".json"), b, 0o600)
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	return dir
}

// fromFiles changes v so that Envoy reads secrets from a folder instead of from an agent.
func fromFiles(v any, dir string) {
	envoytest.SDS(v, func(name string, _ map[string]any) map[string]any {
		return map[string]any{"pathConfigSource": map[string]any{"path": filepath.Join(dir, name+".json")}, "resourceApiVersion": "V3"}
	})
}

// runPlanned starts an Envoy with the planned resources, and waits until it listens.
func runPlanned(t *testing.T, set *manifest.Set, secrets string) {
	t.Helper()
	config := envoytest.JSON(t, fold(t, set))
	fromFiles(config, secrets)
	envoytest.Start(t, config).Live()
}

// security returns the record of a policy, and decodes its text into m to check it.
func security(t testing.TB, kind model.Kind, name, text string, m proto.Message) model.Record {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, m)
	}
	if err == nil {
		raw, err = proto.Marshal(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rec(t, kind, name, "istio: "+base64.StdEncoding.EncodeToString(raw))
}

// twoProxies runs the Envoy of a server, whose application is the backend at a port, and the Envoy of a client, with
// the secrets of each. It returns the server's inbound port, the port of the client's proxy that leads to it, and the
// plans of the server's and of the client's proxy.
func twoProxies(t *testing.T, backend int, policies []model.Record, server, client string) (in, out int, served, calls *manifest.Set) {
	t.Helper()
	in, out = local.PortFor(t), local.PortFor(t)
	s := snapshot(append([]model.Record{
		rec(t, model.KindService, "b/server", fmt.Sprintf("{hosts: [server.b.svc.cluster.local], exportTo: ['*'], selector: {app: server}, addresses: [10.96.0.9], ports: [{name: http, number: %d, protocol: PROTOCOL_HTTP, targetNumber: %d}]}", out, in)),
		rec(t, model.KindEndpoints, "b/server-1", fmt.Sprintf("{hosts: [server.b.svc.cluster.local], ports: [{name: http, number: %d}], endpoints: [{address: 127.0.0.1, labels: {app: server}, namespace: b, serviceAccount: server, mtls: true}]}", in)),
		rec(t, model.KindSidecar, "a/s", fmt.Sprintf("egress: [{port: {number: %d, protocol: HTTP, name: x}, bind: 127.0.0.1, captureMode: NONE, hosts: ['b/*']}]", out)),
		rec(t, model.KindSidecar, "b/s", fmt.Sprintf("{ingress: [{port: {number: %d, protocol: HTTP, name: x}, bind: 127.0.0.1, captureMode: NONE, defaultEndpoint: '127.0.0.1:%d'}], egress: [{hosts: ['~/*']}]}", in, backend)),
	}, policies...)...)
	proxy := func(namespace string, labels ...string) *manifest.Set {
		n := node(namespace, "x", labels...)
		n.Caps |= xds.CapIdentity
		n.Mode = view.None
		return planFor(s, n)
	}
	served, calls = proxy("b", "app=server"), proxy("a")
	runPlanned(t, served, server)
	runPlanned(t, calls, client)
	return in, out, served, calls
}

// asImpostor sends the server a request at a port with another identity in its headers: it returns the status and the
// body, or the error.
func asImpostor(port int) string {
	request, _ := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/x/y", port), nil)
	request.Host = "server.b.svc.cluster.local"
	request.Header.Set("X-Forwarded-Client-Cert", "By=forged")
	r, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return "error " + err.Error()
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return fmt.Sprintf("%d %s", r.StatusCode, body)
}

// Two Envoys with their planned resources: the client's listener, mTLS according to the endpoint's label, the server's
// modes and policies, and the identity that the application receives.
func TestTrafficBetweenProxies(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "identity "+r.Header.Get("X-Forwarded-Client-Cert"))
	}))
	defer app.Close()
	ca := newAuthority(t)
	server, client := ca.secrets("spiffe://cluster.local/ns/b/sa/server"), ca.secrets("spiffe://cluster.local/ns/a/sa/client")
	impostor := ca.secrets("spiffe://cluster.local/ns/b/sa/impostor")
	const seen = "200 identity By=spiffe://cluster.local/ns/b/sa/server;"
	const noPeer = "200 identity $" // the header that a client sends in a plain connection is removed
	peer := func(text string) model.Record {
		return security(t, model.KindPeerAuthentication, "b/p", text, &securityv1.PeerAuthentication{})
	}
	authorization := func(text string) model.Record {
		return security(t, model.KindAuthorizationPolicy, "b/a", text, &securityv1.AuthorizationPolicy{})
	}
	denied := func(id string) model.Record {
		return security(t, model.KindAuthorizationPolicy, "istio-system/"+model.DeniedName, "{action: DENY, rules: [{from: [{source: {principals: ["+id+"]}}]}]}", &securityv1.AuthorizationPolicy{})
	}
	const strict = "mtls: {mode: STRICT}"
	for _, c := range []struct {
		name        string
		policies    []model.Record
		as          string // the identity of the server's secrets
		mesh, plain string // the beginning of the result for a client in the mesh, and for one outside
	}{
		{"permissive", nil, server, seen, noPeer},
		{"strict", []model.Record{peer(strict)}, server, seen, "error"},
		{"disabled", []model.Record{peer("mtls: {mode: DISABLE}")}, server, noPeer, noPeer},
		{"a server that is somebody else", []model.Record{peer(strict)}, impostor, "503", "error"},
		{"the principal is allowed", []model.Record{authorization("rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/client]}}]}]")}, server, seen, "403"},
		{"another principal is allowed", []model.Record{peer(strict), authorization("rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/other]}}]}]")}, server, "403", "error"},
		{"the namespace is denied", []model.Record{authorization("{action: DENY, rules: [{from: [{source: {namespaces: [a]}}]}]}")}, server, "403", noPeer},
		{"the CA has revoked the client", []model.Record{denied("cluster.local/ns/a/sa/client")}, server, "403", noPeer},
		{"the CA has revoked the server", []model.Record{denied("cluster.local/ns/b/sa/server")}, server, "503", noPeer},
		{"the CA has revoked another", []model.Record{denied("cluster.local/ns/b/sa/impostor")}, server, seen, noPeer},
		{"a method and path are allowed", []model.Record{authorization("rules: [{to: [{operation: {methods: [GET], paths: ['/x/*']}}]}]")}, server, seen, noPeer},
		{"another path is allowed", []model.Record{authorization("rules: [{to: [{operation: {paths: ['/y']}}]}]")}, server, "403", "403"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, out, served, calls := twoProxies(t, app.Listener.Addr().(*net.TCPAddr).Port, c.policies, c.as, client)
			identity := "spiffe://cluster.local/ns/b/sa/" + map[bool]string{true: "server", false: "impostor"}[c.as == server]
			if call := callWalked(t, calls, served, out, identity); !strings.HasPrefix(c.mesh, fmt.Sprint(called(call))) {
				t.Errorf("the walk says %d, want %q: %s\n%+v", called(call), c.mesh, call.Summary(), call)
			}
			for who, want := range map[string]string{"mesh": c.mesh, "plain": c.plain} {
				got := asImpostor(map[string]int{"mesh": out, "plain": in}[who])
				if !strings.HasPrefix(strings.Replace(got, "By=forged,", "", 1)+"$", want) {
					t.Errorf("%s: got %q, want %q", who, got, want)
				}
				if want == seen && !strings.Contains(got, "URI=spiffe://cluster.local/ns/a/sa/client") {
					t.Errorf("the client's identity is not seen: %q", got)
				}
			}
		})
	}
}

// ofFiles matches a reference over ADS to a secret of files, which fold puts in the bootstrap.
var ofFiles = regexp.MustCompile(`("name":\s*"file-[^"]*"),\s*"sdsConfig":\s*\{[^{}]*\{\}[^{}]*\}\}`)

// fold returns a bootstrap of a set, in which clusters and listeners contain their assignments and route
// configurations.
func fold(t testing.TB, set *manifest.Set) []byte {
	t.Helper()
	var clusters, listeners []json.RawMessage
	raw := func(m proto.Message) json.RawMessage {
		b, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, r := range set.Types[xds.Cluster].Sorted() {
		c := clusterOf(t, set, r.Name)
		if c.GetType() == clusterv3.Cluster_EDS {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
			c.EdsClusterConfig = nil
			c.LoadAssignment = decode(t, set, xds.Endpoint, r.Name, &endpointv3.ClusterLoadAssignment{})
		}
		clusters = append(clusters, raw(c))
	}
	for _, r := range set.Types[xds.Listener].Sorted() {
		l := listenerOf(t, set, r.Name)
		for _, chain := range append(l.FilterChains, l.DefaultFilterChain) {
			for _, f := range chain.GetFilters() {
				m := &hcmv3.HttpConnectionManager{}
				if f.GetTypedConfig().UnmarshalTo(m) == nil && m.GetRds() != nil {
					rc := decode(t, set, xds.Route, m.GetRds().GetRouteConfigName(), &routev3.RouteConfiguration{})
					m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: rc}
					if err := f.GetTypedConfig().MarshalFrom(m); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		listeners = append(listeners, ofFiles.ReplaceAll(raw(l), []byte("$1}")))
	}
	secrets := []json.RawMessage{}
	for _, r := range set.Types[xds.Secret].Sorted() {
		secrets = append(secrets, raw(decode(t, set, xds.Secret, r.Name, &tlsv3.Secret{})))
	}
	clusters = append(clusters, raw(&clusterv3.Cluster{Name: xds.SDSCluster}))
	b, err := json.Marshal(map[string]any{"node": map[string]any{"id": "x", "cluster": "x"}, "static_resources": map[string]any{"clusters": clusters, "listeners": listeners, "secrets": secrets}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
