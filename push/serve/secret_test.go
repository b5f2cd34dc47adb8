package serve

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// terminates makes a listener terminate TLS with a Secret from ADS.
func terminates(secret string) func(*listenerv3.Listener) {
	return func(l *listenerv3.Listener) {
		l.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: pack(&tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
				TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: secret, SdsConfig: adsSource}}}})}}
	}
}

// An Envoy that requests a missing Secret is told so and does not wait: its other listeners serve, and the listener
// with the Secret refuses handshakes until the Secret exists.
func TestEnvoySecretThatIsNotThere(t *testing.T) {
	t.Parallel()
	plain, secured := freePort(t), freePort(t)
	p := newPlanner(cluster("one"), endpoints("one", backend(t, "one")), route("r1", "one"), listen("plain", plain, "r1"),
		listen("secured", secured, "r1", terminates("kubernetes://cert")), withTLS(clusterMessage("upstream"), "kubernetes://client"), endpoints("upstream", "127.0.0.1:1"))
	s, addr := start(t, Config{Planner: p})
	e := startEnvoy(t, addr, "DELTA_GRPC")
	e.Live()
	e.inTime()
	if !serves(fmt.Sprintf("http://127.0.0.1:%d/", plain), "one")() {
		t.Error("the listener without TLS does not serve")
	}
	handshake := func() error {
		c, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", secured), &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			c.Close()
		}
		return err
	}
	if handshake() == nil {
		t.Error("a handshake without a certificate")
	}
	p.put(keyPair(t, "kubernetes://cert"))
	eventually(t, "the secret is used", func() bool { return handshake() == nil })
	p.edit(nil, xds.Ref{Type: xds.Secret, Name: "kubernetes://cert"})
	eventually(t, "Envoy goes on with what it has", func() bool {
		acked := s.Inspect()[0].Types[xds.Secret]
		return acked.AckedRevision == s.Inspect()[0].Target && handshake() == nil
	})
}

// An Envoy refuses a Secret with a missing file, and not the listener that refers to the Secret: the listener's other
// chains serve, and the handshakes of this chain fail until the file exists.
// Promise: security-gateways.md#make-a-gateway-fail
func TestEnvoySecretOfAMissingFile(t *testing.T) {
	t.Parallel()
	at, dir := freePort(t), t.TempDir()
	const name = "file-cert:/c~/k"
	file := func(name string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: filepath.Join(dir, name)}}
	}
	secured := func(l *listenerv3.Listener) {
		l.ListenerFilters = []*listenerv3.ListenerFilter{{Name: "envoy.filters.listener.tls_inspector",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: pack(&inspectorv3.TlsInspector{})}}}
		plain := proto.CloneOf(l.FilterChains[0])
		terminates(name)(l)
		l.FilterChains[0].FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: "tls"}
		l.FilterChains = append(l.FilterChains, plain)
	}
	p := newPlanner(cluster("one"), endpoints("one", backend(t, "one")), route("r1", "one"), listen("both", at, "r1", secured),
		encode(xds.Secret, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: file("cert"), PrivateKey: file("key")}}}))
	s, addr := start(t, Config{Planner: p})
	e := startEnvoy(t, addr, "DELTA_GRPC")
	e.Live()
	eventually(t, "the other chain", serves(fmt.Sprintf("http://127.0.0.1:%d/", at), "one"))
	eventually(t, "the Secret is refused and named", func() bool { return inQuarantine(s, xds.Ref{Type: xds.Secret, Name: name}) })
	c, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", at), &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		c.Close()
		t.Error("a handshake without a certificate")
	}
}
