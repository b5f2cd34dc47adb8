package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// sent sends a literal request and returns status, body and redirection of the response.
func sent(t *testing.T, address, request string) (status int, body, location string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header.Get("Location")
}

// The server answers the requests of istioctl and Kiali over HTTP, in their form: to ports of a replica's Pod by
// port-forward (istio pkg/kube/client.go, portForwardRequest; kiali kubernetes/istio.go, forwardGetRequest), or by the
// API server's proxy of Pods (GetIstioVersions). Port 15014 refuses guarded pages as the other port does.
// Promise: security-connections.md#http-ports-of-navarchd
func TestIstioctlAsksOverHTTP(t *testing.T) {
	parallel(t)
	d := twoTenants(t, t.TempDir())
	forwarded := func(path string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:41234\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: identity\r\n\r\n"
	}
	byAPIServer := func(path string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: 10.1.2.3:15014\r\nUser-Agent: istioctl/1.31.1 (linux/amd64)\r\nAccept: application/vnd.kubernetes.protobuf,application/json\r\n" +
			"Accept-Encoding: identity\r\nX-Forwarded-For: 10.0.0.9, 127.0.0.1\r\nX-Forwarded-Host: 10.0.0.1:6443\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Uri: /api/v1/namespaces/istio-system/pods/istiod-0:15014/proxy" + path + "\r\n\r\n"
	}
	for _, one := range []struct {
		who, address, request string
		status                int
		want                  string // text in the body, or the target of a redirection
	}{
		{"istioctl version", d.monitoring, byAPIServer("/version"), 200, "dev"},
		{"istioctl remote-clusters", d.monitoring, forwarded("/debug/clusterz"), 200, "[]"},
		{"istioctl remote-clusters, before 1.20", d.monitoring, forwarded("//debug/clusterz"), http.StatusTemporaryRedirect, "/debug/clusterz"},
		{"istioctl proxy-status, before 1.13", d.monitoring, forwarded("/debug/syncz"), 200, `"proxy": "p-0.shop"`},
		{"istioctl proxy-status of a Pod", d.monitoring, forwarded("/debug/config_dump?proxyID=p-0.shop"), 200, "ClustersConfigDump"},
		{"Kiali, whether the replica answers", d.http, forwarded("/ready"), 200, "ok"},
		{"Kiali, whether the pages answer", d.monitoring, forwarded("/debug"), http.StatusTemporaryRedirect, "/debug/"},
		{"Kiali, proxy status", d.monitoring, forwarded("/debug/syncz"), 200, `"cluster_id": "Kubernetes"`},
		{"Kiali, services", d.monitoring, forwarded("/debug/registryz"), 200, `"hostname": "web.shop.svc.cluster.local"`},
		{"Kiali, configuration", d.monitoring, forwarded("/debug/configz"), 200, `"kind": "VirtualService"`},
		{"the mesh configuration", d.monitoring, forwarded("/debug/mesh"), 200, `"rootNamespace": "istio-system"`},
		{"by the API server's proxy, without a token", d.monitoring, byAPIServer("/debug/syncz"), 403, "is not a name of this server"},
		{"by a proxy", d.monitoring, strings.Replace(byAPIServer("/debug/syncz"), "Host: 10.1.2.3:15014", "Host: 127.0.0.1:15014", 1), 401, ""},
		{"another site's page", d.monitoring, strings.Replace(forwarded("/debug/syncz"), "User-Agent", "Origin: http://evil.example\r\nUser-Agent", 1), 403, ""},
	} {
		status, body, location := sent(t, one.address, one.request)
		if status != one.status || !strings.Contains(body+location, one.want) {
			t.Errorf("%s: %d %.300q %s, want %d %s", one.who, status, body, location, one.status, one.want)
		}
	}
	if _, body, _ := sent(t, d.monitoring, byAPIServer("/version")); strings.ContainsAny(body, "{}\n") {
		t.Errorf("istioctl version would print %q", body)
	}
	if _, body, _ := sent(t, d.monitoring, forwarded("/version?output=json")); !strings.Contains(body, fmt.Sprintf("%q", "golang_version")) {
		t.Errorf("navarchctl version reads %q", body)
	}
}
