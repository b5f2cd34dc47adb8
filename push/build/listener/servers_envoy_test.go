package listener

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
)

// at binds a gateway's listener to a port of loopback.
func at(t *testing.T, s Servers) (uint32, *listenerv3.Listener) {
	s.Port = freePort(t)
	s.Name, s.Bind = xds.ListenerName("127.0.0.1", s.Port), "127.0.0.1"
	_, l := build(t, s)
	return s.Port, l
}

// Traffic through a real Envoy as a gateway: plain HTTP and several servers with TLS on one port, TLS that is passed
// on, with and without the mesh's ALPN, the PROXY protocol, and servers that are the first to speak.
// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestServersThroughEnvoy(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		certificate := r.Header.Get("X-Forwarded-Client-Cert")
		from := r.Header.Get("X-Forwarded-For")
		for _, of := range [][3]string{{certificate, "forged", "forged"}, {certificate, "DNS=client.test", "known"}, {from, "198.51.100.7", "proxied"}} {
			if strings.Contains(of[0], of[1]) {
				fmt.Fprint(w, of[2])
			}
		}
	}))
	defer app.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secure") }))
	defer secure.Close()
	banner := serve(t, func(c net.Conn) { fmt.Fprint(c, "220 hello"); _, _ = io.Copy(io.Discard, c) })
	ours := newAuthority(t)
	for _, name := range []string{"a.test", "b.test"} {
		ours.issue(name)
	}
	client := ours.issue("client.test")
	ended := func(name string, mode ServerTLS) ServerChain {
		s := httpServer(stock(t), "r", name)
		s.TLS = mode
		s.TLS.Certificate, s.TLS.Key = ours.file(name), ours.file(name+".key")
		return s
	}
	auto := tcpServer(stock(t), "secure", "outbound_.443_._.secure")
	auto.Protocols = strs.List("istio", "istio-h2")
	broken := ended("wild.b.test", ServerTLS{Mode: mutual}) // without authorities: its name is not the wildcard's
	behind := configured(t, stock(t), "gatewayTopology: {proxyProtocol: {}}")
	speaks := gatewayOf(t, stock(t), tcpServer(stock(t), "banner"))
	speaks.Opaque = true
	simply, mutually := ended("a.test", ServerTLS{Mode: simple}), ended("b.test", ServerTLS{Mode: mutual, Authorities: ours.file("ca")})
	below := ended("a.test", ServerTLS{Mode: simple})
	below.Names = strs.List("*.b.test")
	pass, plainHTTP := tcpServer(stock(t), "secure", "pass.test"), httpServer(stock(t), "r")
	web, first := at(t, gatewayOf(t, stock(t), simply, mutually, pass, broken, below, plainHTTP))
	mesh, second := at(t, gatewayOf(t, stock(t), auto))
	proxied, third := at(t, gatewayOf(t, behind, httpServer(behind, "r")))
	raw, fourth := at(t, speaks)
	first.ListenerFiltersTimeout = durationpb.New(300 * time.Millisecond) // Envoy's is 15 s
	envoy := envoytest.Start(t, fold(t, inboundRoutes("r", "v", "app", "o", false), map[string]int{
		"app": app.Listener.Addr().(*net.TCPAddr).Port, "secure": secure.Listener.Addr().(*net.TCPAddr).Port, "banner": banner, xds.BlackHole: 0,
	}, first, second, third, fourth))
	envoy.Live()

	trust := x509.NewCertPool()
	trust.AddCert(ours.cert)
	call := func(port uint32, config *tls.Config) string {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), config)
		if err != nil {
			return "refused"
		}
		return answer(t, conn)
	}
	plain := func(port uint32, before string) string {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, before); err != nil {
			t.Fatal(err)
		}
		return answer(t, conn)
	}
	with := func(name string, certificates ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: trust, ServerName: name, Certificates: certificates}
	}
	unknown := func(name string, alpn ...string) *tls.Config {
		return &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: alpn}
	}
	const named, nameless, header = "200 known", "200 ", "PROXY TCP4 198.51.100.7 198.51.100.1 1234 80\r\n"
	for _, check := range []struct{ what, got, want string }{
		{"plain HTTP", plain(web, ""), nameless},
		{"TLS", call(web, with("a.test")), nameless},
		{"mutual TLS without a certificate", call(web, with("b.test")), "refused"},
		{"mutual TLS", call(web, with("b.test", client)), named},
		{"TLS that is passed on", call(web, unknown("pass.test")), "200 secure"},
		{"a name without authorities, below a wildcard", call(web, unknown("wild.b.test", "http/1.1")), "refused"},
		{"another name below the wildcard", call(web, unknown("other.b.test", "http/1.1")), nameless},
		{"between networks", call(mesh, unknown("outbound_.443_._.secure", "istio", "http/1.1")), "200 secure"},
		{"between networks, not of the mesh", call(mesh, unknown("outbound_.443_._.secure", "http/1.1")), "refused"},
		{"between networks, another service", call(mesh, unknown("outbound_.443_._.other", "istio", "http/1.1")), "refused"},
		{"the PROXY protocol", plain(proxied, header), "200 proxied"},
		{"no PROXY protocol", plain(proxied, ""), "refused"},
		{"a server that speaks first", exchange(t, dial(t, raw), nil, "", 9), "220 hello"},
	} {
		if check.got != check.want {
			t.Errorf("%s: got %q, want %q", check.what, check.got, check.want)
		}
	}
	staysIdle(t, envoy, web, nameless)
}

// staysIdle opens a connection ahead of its first request: it stays, though the inspector has waited in vain.
func staysIdle(t *testing.T, envoy *envoytest.Envoy, port uint32, want string) {
	t.Helper()
	idle := dial(t, port)
	waited := time.Now()
	for timeouts := 0; timeouts == 0; time.Sleep(envoytest.Pause(time.Since(waited))) {
		stats, err := envoytest.Stats(envoy.Admin)
		if err != nil || time.Since(waited) > envoytest.Patience {
			t.Fatal(err, stats)
		}
		timeouts = stats[fmt.Sprintf("listener.127.0.0.1_%d.downstream_pre_cx_timeout", port)]
	}
	if got := answer(t, idle); got != want {
		t.Errorf("a connection that was idle: %q, want %q", got, want)
	}
}

func dial(t *testing.T, port uint32) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// answer returns the status and the body of the answer to a request that forges a client's certificate; refused: the
// connection ends without an answer.
func answer(t *testing.T, conn net.Conn) string {
	t.Helper()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Client-Cert: forged\r\nConnection: close\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "refused"
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return fmt.Sprintf("%d %s", r.StatusCode, body)
}
