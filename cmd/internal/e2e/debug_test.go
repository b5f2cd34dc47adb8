package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/push/xds"
)

// connected connects a proxy until the test ends, and returns once it has its clusters.
func connected(t *testing.T, address, namespace, workload, ip string) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(func() { cancel(); conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(namespace, workload, ip), TypeUrl: xds.Cluster.URL()})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// askedFrom returns the status and body of a page for a caller of another machine: a proxy on this machine forwards the
// request.
func askedFrom(t *testing.T, d *daemon, path, token string) (int, string) {
	t.Helper()
	return postedFrom(t, d, path, token, "")
}

// postedFrom is askedFrom that posts a body. Without one it gets the page.
func postedFrom(t *testing.T, d *daemon, path, token, body string) (int, string) {
	t.Helper()
	method := map[bool]string{true: http.MethodGet, false: http.MethodPost}[body == ""]
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.http+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", "10.1.2.3")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// askedWith returns the status of a page, requested on this machine with one header.
func askedWith(t *testing.T, address, path, header, value string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if req.Header.Set(header, value); header == "Host" {
		req.Host = value
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// twoTenants starts a replica with proxies of two tenants: one with the namespaces shop and pay, and one with the
// namespace other. The configuration has a mistake in pay and in other.
func twoTenants(t *testing.T, data string) *daemon {
	t.Helper()
	space := func(name, tenant string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}}\n---\n", name, tenant)
	}
	bad := func(namespace string) string {
		return strings.NewReplacer("namespace: shop", "namespace: "+namespace, "timeout: 1s", "timeout: soon", "name: web,", "name: bad-"+namespace+",").Replace(routes(1)) + "---\n"
	}
	dir := folder(t)
	write(t, dir, "more.yaml", space("shop", "navarch.io/tenant: t")+space("pay", "navarch.io/tenant: t")+space("other", "")+bad("pay")+bad("other"))
	d := start(t, "--config-dir", dir, "--data-dir", data, "--debug-hosts", "debug.example")
	eventually(t, patience, serves(t, d, 1))
	for i, namespace := range []string{"shop", "pay", "other"} {
		connected(t, d.grpc, namespace, "p", fmt.Sprintf("10.1.9.%d", i+1))
	}
	return d
}

// A tenant sees only its own proxies and problems, in all namespaces that its label joins; the system namespace and
// this machine see everything.
// Promise: security-workloads.md#other-configuration-through-a-credential
func TestDebugShowsTenantsTheirOwn(t *testing.T) {
	parallel(t)
	data := t.TempDir()
	d := twoTenants(t, data)
	words := regexp.MustCompile(`p-0\.\w+|bad-\w+`)
	sees := func(path, token string) []string {
		_, body := askedFrom(t, d, path, token)
		found := words.FindAllString(body, -1)
		slices.Sort(found)
		return slices.Compact(found)
	}
	shop, other, system := token(t, data, "shop", "web"), token(t, data, "other", "web"), token(t, data, "istio-system", "operator")
	for _, one := range []struct {
		path, token string
		want        []string
	}{
		{"/debug/syncz", shop, []string{"p-0.pay", "p-0.shop"}},
		{"/debug/connections", shop, []string{"p-0.pay", "p-0.shop"}},
		{"/debug/problems", shop, []string{"bad-pay"}},
		{"/debug/syncz", other, []string{"p-0.other"}},
		{"/debug/problems", other, []string{"bad-other"}},
		{"/debug/syncz", system, []string{"p-0.other", "p-0.pay", "p-0.shop"}},
		{"/debug/problems", system, []string{"bad-other", "bad-pay"}},
		{"/debug/syncz", "", nil},
	} {
		eventually(t, patience, func() error {
			if got := sees(one.path, one.token); !slices.Equal(got, one.want) {
				return fmt.Errorf("%s: saw %v, want %v", one.path, got, one.want)
			}
			return nil
		})
	}
	for _, one := range []struct {
		path, token string
		want        int
	}{
		{"/debug/config_dump?proxyID=p-0.pay", shop, 200},
		{"/debug/config_dump?proxyID=p-0.other", shop, 404}, // like a proxy that does not exist
		{"/debug/explain?resource=x&proxyID=p-0.other", shop, 404},
		{"/debug/snapshot", shop, 403},
		{"/debug/pprof/cmdline", shop, 403},
		{"/debug/pprof/cmdline", system, 200},
		{"/debug/config_dump?proxyID=p-0.shop", "", 401},
		{"/ready", "", 200},
	} {
		if got, body := askedFrom(t, d, one.path, one.token); got != one.want {
			t.Errorf("%s: %d, want %d: %.200s", one.path, got, one.want, body)
		}
	}
	for _, one := range []struct {
		address, path, header, value string
		want                         int
	}{
		{d.http, "/debug/syncz", "Host", "localhost:1234", 200}, // kubectl port-forward
		{d.http, "/debug/syncz", "Host", "debug.example", 200},
		{d.http, "/debug/syncz", "Host", "evil.example", 403},
		{d.http, "/debug/pprof/profile?seconds=1", "Sec-Fetch-Site", "cross-site", 403},
		{d.http, "/ready", "Host", "10.1.2.3:8080", 200}, // the kubelet
		{d.monitoring, "/metrics", "Host", "10.1.2.3:15014", 200},
		{d.monitoring, "/version", "Host", "navarchd", 200},
		{d.monitoring, "/version", "X", strings.Repeat("x", 64<<10), 431},
		{d.http, "/ready", "X", strings.Repeat("x", 64<<10), 431},
	} {
		if got := askedWith(t, one.address, one.path, one.header, one.value); got != one.want {
			t.Errorf("%s with %s %.40s: %d, want %d", one.path, one.header, one.value, got, one.want)
		}
	}
	if page, err := get(d.http, "/debug/syncz"); err != nil || !strings.Contains(page, "p-0.other") {
		t.Errorf("from this machine: %v %s", err, page)
	}
}
