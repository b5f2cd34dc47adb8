package listener

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
)

// Requests to the HTTP proxy through a real Envoy are routed by the host and port in them; port 80 is the default.
func TestHTTPProxyThroughEnvoy(t *testing.T) {
	clusters := map[string]int{xds.BlackHole: 0}
	routes := &routev3.RouteConfiguration{Name: xds.HTTPProxy}
	add := func(cluster string, domains ...string) {
		app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, cluster, " ", r.URL.Path) }))
		t.Cleanup(app.Close)
		clusters[cluster] = app.Listener.Addr().(*net.TCPAddr).Port
		host := inboundRoutes("r", cluster, cluster, "o", false).VirtualHosts[0]
		host.Domains = domains
		routes.VirtualHosts = append(routes.VirtualHosts, host)
	}
	add("usual", "a.test", "a.test:80")
	add("other", "a.test:8080")
	add("unknown", "*")
	port := freePort(t)
	_, l := build(t, Outbound{Common: stock(t), Name: "proxy", Bind: "127.0.0.1", Port: port, BindToPort: true, Route: xds.HTTPProxy})
	envoytest.Start(t, fold(t, routes, clusters, l)).Live()
	proxy := &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyURL(proxy)}}
	for target, want := range map[string]string{
		"http://a.test/x": "usual /x", "http://a.test:80/x": "usual /x", "http://a.test:8080/x": "other /x", "http://a.test:81/x": "unknown /x", "http://b.test/x": "unknown /x",
	} {
		r, err := client.Get(target)
		if err != nil {
			t.Error(err)
			continue
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if string(body) != want {
			t.Errorf("%s: %s, want %s", target, body, want)
		}
	}
}
