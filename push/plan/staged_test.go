//go:build !race

package plan

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/push/xds"
	local "navarch.io/navarch/store/loopback"
)

// staged is a real Envoy with the plan of a proxy, in front of applications that tell by which cluster they are
// reached. Connections state their addresses by the PROXY protocol, in the place of redirection.
type staged struct {
	t       *testing.T
	mesh    *authority // of the mesh's certificates
	public  *authority // of the clients of gateways
	ports   map[string]int
	arrived *arrivals
	bodies  *bootstrapv3.Bootstrap
	certs   map[string]tls.Certificate
}

// arrivals records the clusters by which each request has arrived at applications.
type arrivals struct {
	mu   sync.Mutex
	of   map[string][]string
	more chan struct{} // closed and replaced at each arrival
}

func (a *arrivals) add(number, cluster string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[number] = append(a.of[number], cluster)
	close(a.more)
	a.more = make(chan struct{})
}

// wait reports whether a request arrives by a cluster.
func (a *arrivals) wait(number, cluster string) bool {
	limit := time.After(envoytest.Patience)
	for {
		a.mu.Lock()
		there, more := slices.Contains(a.of[number], cluster), a.more
		a.mu.Unlock()
		if there {
			return true
		}
		select {
		case <-more:
		case <-limit:
			return false
		}
	}
}

// runStaged starts an Envoy with the plan of a proxy, which has a certificate of the mesh.
func runStaged(t *testing.T, set *manifest.Set, mesh, public *authority) *staged {
	t.Helper()
	s := &staged{t: t, mesh: mesh, public: public, ports: map[string]int{}, certs: map[string]tls.Certificate{},
		arrived: &arrivals{of: map[string][]string{}, more: make(chan struct{})},
		bodies: &bootstrapv3.Bootstrap{Node: &corev3.Node{Id: "x", Cluster: "x"},
			StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{{Name: xds.SDSCluster}}}}}
	dir := t.TempDir()
	for i, r := range set.Types[xds.Cluster].Sorted() {
		c := clusterOf(t, set, r.Name)
		if c.GetType() == clusterv3.Cluster_EDS {
			c.LoadAssignment = decode(t, set, xds.Endpoint, r.Name, &endpointv3.ClusterLoadAssignment{})
		}
		s.lead(c, filepath.Join(dir, fmt.Sprint("c", i)))
		s.bodies.StaticResources.Clusters = append(s.bodies.StaticResources.Clusters, c)
	}
	for _, r := range set.Types[xds.Listener].Sorted() {
		if l := listenerOf(t, set, r.Name); l.GetUdpListenerConfig() == nil {
			s.listen(set, l)
			s.bodies.StaticResources.Listeners = append(s.bodies.StaticResources.Listeners, l)
		}
	}
	raw, err := protojson.Marshal(s.bodies)
	if err != nil {
		t.Fatal(err)
	}
	envoytest.Start(t, envoytest.JSON(t, raw)).Live()
	return s
}

// lead changes a cluster to one whose endpoints, where they are and whatever they are, are an application at a socket.
func (s *staged) lead(c *clusterv3.Cluster, socket string) {
	if c.GetType() == clusterv3.Cluster_ORIGINAL_DST || c.GetClusterType() != nil {
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: c.Name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{}}}}}
	}
	c.ClusterDiscoveryType, c.EdsClusterConfig = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, nil
	c.TransportSocket, c.TransportSocketMatches, c.UpstreamBindConfig = nil, nil, nil
	if c.LbConfig = nil; c.LbPolicy == clusterv3.Cluster_CLUSTER_PROVIDED {
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	}
	for _, l := range c.LoadAssignment.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			e.HostIdentifier = &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: socket}}}}}
		}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		s.t.Fatal(err)
	}
	leaf, key := s.public.issue("spiffe://application")
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	app := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.arrived.add(r.Header.Get("x-walk"), c.Name)
		w.Header().Set("x-cluster", c.Name)
	})}
	go func() { _ = app.Serve(bothListener{l, pair(s.t, leaf, key)}) }() // ends with Close
	s.t.Cleanup(func() { _ = app.Close() })
}

// bothListener accepts connections with TLS and without.
type bothListener struct {
	net.Listener
	cert tls.Certificate
}

func (l bothListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &bothConn{Conn: conn, cert: l.cert}, err
}

// bothConn is a connection whose first byte tells whether it is TLS.
type bothConn struct {
	net.Conn
	cert  tls.Certificate
	begun sync.Once
}

// ahead is a connection of which some bytes were read ahead.
type ahead struct {
	net.Conn
	from *bufio.Reader
}

func (b ahead) Read(p []byte) (int, error) { return b.from.Read(p) }

func (b *bothConn) Read(p []byte) (int, error) {
	b.begun.Do(func() {
		raw := ahead{b.Conn, bufio.NewReader(b.Conn)}
		b.Conn = raw
		if first, err := raw.from.Peek(1); err == nil && first[0] == 0x16 {
			b.Conn = tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{b.cert}})
		}
	})
	return b.Conn.Read(p)
}

// pair returns a certificate for Go's TLS.
func pair(t testing.TB, leaf, pkcs8 []byte) tls.Certificate {
	t.Helper()
	key, err := x509.ParsePKCS8PrivateKey(pkcs8)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: key}
}

// listen changes a listener that binds to one at a free port of the loopback address, behind the PROXY protocol. Its
// routes and secrets become parts of the bootstrap.
func (s *staged) listen(set *manifest.Set, l *listenerv3.Listener) {
	if l.GetBindToPort() == nil || l.GetBindToPort().GetValue() {
		port := local.PortFor(s.t)
		at := l.GetAddress().GetSocketAddress()
		s.ports[l.Name] = port
		s.ports[net.JoinHostPort(at.GetAddress(), fmt.Sprint(at.GetPortValue()))] = port
		l.Address = &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}}}
		l.AdditionalAddresses = nil
		kept := []*listenerv3.ListenerFilter{{Name: "envoy.filters.listener.proxy_protocol",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: xds.Any(&proxyprotocolv3.ProxyProtocol{})}}}
		for _, f := range l.ListenerFilters {
			if f.Name != "envoy.filters.listener.original_dst" && f.Name != "envoy.filters.listener.original_src" {
				kept = append(kept, f)
			}
		}
		l.ListenerFilters, l.Transparent = kept, nil
	}
	for _, chain := range append(slices.Clone(l.FilterChains), l.DefaultFilterChain) {
		s.chain(set, chain)
	}
}

func (s *staged) chain(set *manifest.Set, chain *listenerv3.FilterChain) {
	for _, f := range chain.GetFilters() {
		m := &hcmv3.HttpConnectionManager{}
		if !f.GetTypedConfig().MessageIs(m) || f.GetTypedConfig().UnmarshalTo(m) != nil {
			continue
		}
		if m.GetRds() != nil {
			rc := decode(s.t, set, xds.Route, m.GetRds().GetRouteConfigName(), &routev3.RouteConfiguration{})
			rc.ValidateClusters = wrapperspb.Bool(false) // as by RDS
			m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: rc}
		}
		m.AccessLog = nil
		f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: xds.Any(m)}
	}
	context := &tlsv3.DownstreamTlsContext{}
	socket := chain.GetTransportSocket()
	if !socket.GetTypedConfig().MessageIs(context) || socket.GetTypedConfig().UnmarshalTo(context) != nil {
		return
	}
	common := context.GetCommonTlsContext()
	for _, own := range common.GetTlsCertificateSdsSecretConfigs() {
		s.secret(own, true)
	}
	s.secret(common.GetCombinedValidationContext().GetValidationContextSdsSecretConfig(), false)
	s.secret(common.GetValidationContextSdsSecretConfig(), false)
	socket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: xds.Any(context)}
}

// secret changes the source of a secret to the bootstrap, into which it puts one of the right authority.
func (s *staged) secret(of *tlsv3.SdsSecretConfig, own bool) {
	if of == nil {
		return
	}
	of.SdsConfig = nil
	if slices.ContainsFunc(s.bodies.StaticResources.Secrets, func(one *tlsv3.Secret) bool { return one.Name == of.Name }) {
		return
	}
	from := s.public
	if of.Name == xds.SDSDefault || of.Name == xds.SDSRoot {
		from = s.mesh
	}
	inline := func(kind string, der []byte) *corev3.DataSource {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
	}
	secret := &tlsv3.Secret{Name: of.Name, Type: &tlsv3.Secret_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline("CERTIFICATE", from.cert.Raw)}}}
	if own {
		leaf, key := from.issue("spiffe://cluster.local/ns/a/sa/sa")
		secret.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline("CERTIFICATE", leaf), PrivateKey: inline("PRIVATE KEY", key)}}
	}
	s.bodies.StaticResources.Secrets = append(s.bodies.StaticResources.Secrets, secret)
}

// observed is the answer of a real Envoy.
type observed struct {
	ended   bool   // the connection ended without an answer
	status  int    // of the answer
	grpc    string // status of gRPC; empty: none
	cluster string // by which the answer came; empty: Envoy's own
}

func (o observed) String() string {
	if o.ended {
		return "the connection is closed"
	}
	return fmt.Sprintf("%d (gRPC %q) by cluster %q", o.status, o.grpc, o.cluster)
}

// port returns the port of Envoy to which a connection in a direction goes.
func (s *staged) port(direction walk.Direction, r walk.Request) (int, bool) {
	virtual := map[walk.Direction]string{walk.Outbound: xds.VirtualOutbound, walk.Inbound: xds.VirtualInbound}[direction]
	for _, name := range []string{net.JoinHostPort(r.Address, fmt.Sprint(r.Port)), net.JoinHostPort("0.0.0.0", fmt.Sprint(r.Port)), virtual} {
		if port, there := s.ports[name]; there {
			return port, true
		}
	}
	return 0, false
}

// ask sends a request with a number, and returns the answer.
func (s *staged) ask(direction walk.Direction, r walk.Request, number string) observed {
	port, there := s.port(direction, r)
	if !there {
		return observed{ended: true}
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(r.Peer)}}
	raw, err := dialer.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		s.t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(envoytest.Patience))
	_, _ = fmt.Fprintf(raw, "PROXY TCP4 %s %s 40000 %d\r\n", r.From, r.Address, r.Port)
	conn := raw
	if r.Identity != "" || r.Scheme == "https" || r.Scheme == "h2" || r.Scheme == "tls" {
		conn = tls.Client(raw, s.client(r))
	}
	if r.Scheme == "h2c" || r.Scheme == "h2" {
		return s.askHTTP2(conn, r, number)
	}
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nX-Walk: %s\r\n",
		r.Headers[":method"], r.Headers[":path"], r.Headers[":authority"], number)
	for name, value := range r.Headers {
		if name[0] != ':' {
			text += name + ": " + value + "\r\n"
		}
	}
	_, _ = io.WriteString(conn, text+"Connection: close\r\n\r\n") // fails where Envoy has ended the connection already
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return observed{ended: true}
	}
	defer res.Body.Close()
	return observed{status: res.StatusCode, cluster: res.Header.Get("x-cluster"), grpc: res.Header.Get("grpc-status")}
}

// client returns the TLS settings of a client: one of the mesh, or one of gateways.
func (s *staged) client(r walk.Request) *tls.Config {
	from, id, c := s.mesh, r.Identity, &tls.Config{ServerName: r.Name, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	if r.Scheme == "h2" {
		c.NextProtos = []string{"h2"}
	}
	switch {
	case r.Identity != "" && r.Scheme == "h2c":
		c.ServerName, c.NextProtos = r.ServerName, []string{"istio-h2", "istio", "h2"}
	case r.Identity != "":
		c.ServerName, c.NextProtos = r.ServerName, []string{"istio-http/1.1", "istio", "http/1.1"}
	case r.Certificate != "":
		from, id = s.public, r.Certificate
	default:
		if r.Scheme == "tls" {
			c.NextProtos = nil
		}
		return c
	}
	cert, known := s.certs[id]
	if !known {
		leaf, key := from.issue(id)
		cert = pair(s.t, leaf, key)
		s.certs[id] = cert
	}
	// Go would show no certificate whose authority the server does not name.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	return c
}

// number returns the number of a request as text.
func number(n int) string { return strconv.Itoa(n) }
