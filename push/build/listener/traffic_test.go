package listener

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/model"
)

func freePort(t *testing.T) uint32 { return uint32(loopback.PortFor(t)) }

// serve runs a TCP server on loopback until the test ends.
func serve(t *testing.T, handle func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// exchange sends text and reads n bytes, or fewer if the peer closes the connection.
func exchange(t *testing.T, c net.Conn, err error, text string, n int) string {
	t.Helper()
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, text); err != nil {
		return ""
	}
	got := make([]byte, n)
	read, err := io.ReadFull(c, got)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("neither bytes nor an end")
	}
	return string(got[:read])
}

// get returns the status, the server header and the body of a response, or the error.
func get(p uint32) string {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/x//y", p))
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return fmt.Sprintf("%d %s %s", r.StatusCode, r.Header.Get("Server"), body)
}

// Traffic through a real Envoy: HTTP, TLS and other protocols are told apart on one port, an ingress reaches its
// application, and a closed port accepts nothing.
func TestTraffic(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "app ", r.URL.Path) }))
	defer app.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secure") }))
	defer secure.Close()
	banner := serve(t, func(c net.Conn) { fmt.Fprint(c, "220 hello"); _, _ = io.Copy(io.Discard, c) })
	echo := serve(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	port := func(s *httptest.Server) int { return s.Listener.Addr().(*net.TCPAddr).Port }

	c := stock(t)
	mixed, open, shut, bannerServer, closedBannerServer := freePort(t), freePort(t), freePort(t), freePort(t), freePort(t)
	out := Outbound{
		Common: c, Name: "mixed", Bind: "127.0.0.1", Port: mixed, BindToPort: true, Route: "80", Fallback: xds.Passthrough,
		TCP: chains.List(Chain{SNI: strs.List("secure.test"), Targets: targets.List(Target{Cluster: "secure"})}),
	}
	ingress := func(p uint32, protocol model.Protocol, closed bool, cluster string) Ingress {
		return Ingress{Common: c, Name: fmt.Sprint("i", p), Bind: "127.0.0.1", Closed: closed,
			Inner: InboundPort{Port: p, Protocol: protocol, Cluster: cluster, Host: "web.shop", ServicePort: p}}
	}
	var all []*listenerv3.Listener
	for _, b := range []builder{
		out,
		ingress(open, model.Protocol_PROTOCOL_HTTP, false, "app"), ingress(shut, model.Protocol_PROTOCOL_HTTP, true, "app"),
		ingress(bannerServer, model.Protocol_PROTOCOL_TCP, false, "banner"), ingress(closedBannerServer, model.Protocol_PROTOCOL_TCP, true, "banner"),
	} {
		_, l := build(t, b)
		all = append(all, l)
	}
	envoytest.Start(t, fold(t, inboundRoutes("80", "v", "ingress", "o", false), map[string]int{
		"app": port(app), "secure": port(secure), "banner": banner, xds.Passthrough: echo, "ingress": int(open), xds.BlackHole: 0,
	}, all...)).Live()

	hello := func(name string) (net.Conn, error) {
		return tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", mixed), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	}
	raw := func(p uint32, text string, n int) string {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		return exchange(t, conn, err, text, n)
	}
	conn, err := hello("secure.test")
	for _, check := range []struct{ what, got, want string }{
		{"HTTP by way of the outbound listener and the ingress", get(mixed), "200 envoy app /x//y"},
		{"HTTP to the ingress", get(open), "200 istio-envoy app /x//y"},
		{"HTTP to a closed ingress", get(shut), "403 istio-envoy RBAC: access denied"},
		// At least five bytes are needed: the TLS inspector waits for the header of a record.
		{"bytes that are no HTTP", raw(mixed, "\x00\x01\x02\x03\x04", 5), "\x00\x01\x02\x03\x04"},
		{"TLS with the name of a chain", exchange(t, conn, err, "GET / HTTP/1.0\r\n\r\n", 8), "HTTP/1.0"},
		{"a server that speaks first", raw(bannerServer, "", 9), "220 hello"},
		{"a closed server that speaks first", raw(closedBannerServer, "", 9), ""},
		{"a closed server that is spoken to", raw(closedBannerServer, "EHLO", 9), ""},
	} {
		if check.got != check.want {
			t.Errorf("%s: got %q, want %q", check.what, check.got, check.want)
		}
	}
	if conn, err := hello("other.test"); err == nil {
		conn.Close()
		t.Error("TLS with another name reached a server that ends TLS; want the fallback, which echoes")
	}
}
