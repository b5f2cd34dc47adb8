package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/xds"
)

// badRoute returns a route configuration that protobuf accepts and Envoy refuses without naming it.
func badRoute(name, cluster string) *xds.Resource {
	return encode(xds.Route, name, &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"},
		Routes: []*routev3.Route{{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "a(b"}}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}}}}}}})
}

// Envoy does not name the bad resource of a refused response of routes or endpoints. The server finds it by halving the
// response: the previous version continues to serve, and all other resources arrive.
func TestEnvoyRefusalsFoundByHalves(t *testing.T) {
	t.Parallel()
	t.Run("routes", func(t *testing.T) {
		t.Parallel()
		h := manyListeners(t)
		h.p.put(cluster("new"), endpoints("new", backend(t, "new")))
		var edit []*xds.Resource
		for i := range listeners {
			if r := fmt.Sprintf("r%d", i); i == 3 {
				edit = append(edit, badRoute(r, "new"))
			} else {
				edit = append(edit, route(r, "new"))
			}
		}
		h.expect(t, xds.Ref{Type: xds.Route, Name: "r3"}, 3, 3, edit, []*xds.Resource{route("r3", "new")})
	})
	t.Run("endpoints", func(t *testing.T) {
		t.Parallel()
		h := manyListeners(t)
		to := backend(t, "new")
		var edit []*xds.Resource
		for i := range listeners {
			if c := fmt.Sprintf("c%d", i); i == 1 {
				edit = append(edit, endpoints(c, "host.name:80"))
			} else {
				edit = append(edit, endpoints(c, to))
			}
		}
		h.expect(t, xds.Ref{Type: xds.Endpoint, Name: "c1"}, 1, 1, edit, []*xds.Resource{endpoints("c1", to)})
	})
}

const listeners = 5

// halves is an Envoy with several listeners, each with its own route and cluster.
type halves struct {
	p     *fakePlanner
	s     *Server
	ports [listeners]uint32
}

func manyListeners(t *testing.T) *halves {
	h := &halves{p: newPlanner()}
	for i := range listeners {
		h.ports[i] = freePort(t)
		c, r := fmt.Sprintf("c%d", i), fmt.Sprintf("r%d", i)
		h.p.put(cluster(c), endpoints(c, backend(t, "old")), listen(fmt.Sprintf("l%d", i), h.ports[i], r), route(r, c))
	}
	var addr string
	h.s, addr = start(t, Config{Planner: h.p})
	startEnvoy(t, addr, "DELTA_GRPC").Live()
	for i := range listeners {
		eventually(t, "traffic", serves(h.url(i), "old"))
	}
	return h
}

func (h *halves) url(i int) string { return fmt.Sprintf("http://127.0.0.1:%d/", h.ports[i]) }

// expect makes an edit in which Envoy refuses the culprit: the listener with number bad must still serve the old
// backend, and all others the new one. Then it makes the correction mend, after which the listener with number fix must
// serve the new backend.
func (h *halves) expect(t *testing.T, culprit xds.Ref, bad, fix int, edit, mend []*xds.Resource) {
	t.Helper()
	h.p.put(edit...)
	eventually(t, "the culprit in quarantine and named", func() bool { return inQuarantine(h.s, culprit) })
	for i := range listeners {
		want := "new"
		if i == bad {
			want = "old"
		}
		eventually(t, fmt.Sprintf("listener %d serves %s", i, want), serves(h.url(i), want))
	}
	if r := h.s.Inspect()[0].Refusals; len(r) != 1 || r[0].Good == "" {
		t.Errorf("refusals: %+v", r)
	}
	h.p.put(mend...)
	eventually(t, "the fix serves", serves(h.url(fix), "new"))
	eventually(t, "the quarantine is lifted", func() bool { return len(h.s.Inspect()[0].Refusals) == 0 })
}

// A response of 1 MB with changed and new clusters that wait for endpoints and certificates, over a slow connection:
// their dependencies are sent beyond the credit, because otherwise Envoy and the server would wait for each other until
// initial_fetch_timeout (15 s).
func TestDependenciesOnASlowWire(t *testing.T) {
	t.Parallel()
	p := newPlanner()
	mesh := func(clusters int, version, secret string) {
		all := []*xds.Resource{keyPair(t, secret)}
		for i := range clusters {
			name := fmt.Sprintf("c%d", i)
			all = append(all, withTLS(padded(name, 100<<10, version), secret), endpoints(name, "127.0.0.1:1"))
		}
		p.put(all...)
	}
	mesh(8, "1", "pair")
	s, addr := start(t, Config{Planner: p})
	e := startEnvoy(t, throttle(t, addr, 4<<20), "DELTA_GRPC")
	e.Live()
	mesh(12, "2", "another")
	eventually(t, "the new clusters are warm", func() bool {
		return e.stat("cluster_manager.active_clusters") == 13 && e.stat("cluster_manager.cluster_modified") == 8 &&
			e.stat("cluster_manager.warming_clusters") == 0
	})
	eventually(t, "everything is acknowledged", func() bool {
		i := s.Inspect()
		return len(i) == 1 && i[0].Unacked == 0 && i[0].Types[xds.Secret].AckedRevision == i[0].Target && i[0].Types[xds.Listener].AckedRevision == i[0].Target
	})
	e.inTime()
}

func withTLS(c *clusterv3.Cluster, secret string) *xds.Resource {
	c.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: pack(&tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: secret, SdsConfig: adsSource}}}})}}
	return encode(xds.Cluster, c.Name, c, xds.Ref{Type: xds.Endpoint, Name: c.Name}, xds.Ref{Type: xds.Secret, Name: secret})
}

func keyPair(t *testing.T, name string) *xds.Resource {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	inline := func(kind string, b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})}}
	}
	return encode(xds.Secret, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline("CERTIFICATE", der), PrivateKey: inline("PRIVATE KEY", pkcs8)}}})
}

// throttle is a relay to a server that limits the bytes of responses in each second.
func throttle(t *testing.T, target string, rate int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			go func() { io.Copy(far, near); far.Close() }()
			go func() {
				defer near.Close()
				chunk := rate / 100
				for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
					if _, err := io.CopyN(near, far, int64(chunk)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
