//go:build !race

package plan

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/http2"

	"navarch.io/navarch/push/walk"
)

// askHTTP2 sends a request by HTTP/2.
func (s *staged) askHTTP2(conn net.Conn, r walk.Request, number string) observed {
	u, err := url.ParseRequestURI(r.Headers[":path"])
	if err != nil {
		s.t.Fatal(err)
	}
	u.Scheme, u.Host = "http", r.Headers[":authority"]
	if conn, encrypted := conn.(*tls.Conn); encrypted {
		if err := conn.Handshake(); err != nil {
			return observed{ended: true}
		}
		u.Scheme = "https"
	}
	request, err := http.NewRequestWithContext(s.t.Context(), r.Headers[":method"], u.String(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.URL, request.Host = u, u.Host
	request.Header.Set("x-walk", number)
	for name, value := range r.Headers {
		if name[0] != ':' {
			request.Header.Set(name, value)
		}
	}
	//lint:ignore SA1019 over TLS http.Transport speaks HTTP/2 only if ALPN selects h2; a mesh selects others
	client, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(conn)
	if err != nil {
		return observed{ended: true}
	}
	defer client.Close()
	res, err := client.RoundTrip(request)
	if err != nil {
		return observed{ended: true}
	}
	defer res.Body.Close()
	return observed{status: res.StatusCode, cluster: res.Header.Get("x-cluster"), grpc: res.Header.Get("grpc-status")}
}
