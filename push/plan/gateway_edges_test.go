//go:build !race

package plan

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/model"
)

// authorizationPolicy returns a policy of a message in YAML, for all proxies of its namespace.
func authorizationPolicy(t *testing.T, name, text string) model.Record {
	t.Helper()
	p := &securityv1.AuthorizationPolicy{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, p)
	}
	if err == nil {
		raw, err = proto.Marshal(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rec(t, model.KindAuthorizationPolicy, name, "{istio: '"+base64.StdEncoding.EncodeToString(raw)+"'}")
}

// backend returns a Service of one endpoint, an application that answers its name and what it was asked for, and the
// edit of a bootstrap that leads to it.
func backend(t *testing.T, name, address string) (records []model.Record, edit func([]byte) []byte) {
	t.Helper()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s%s", name, r.Host, r.RequestURI)
	}))
	t.Cleanup(app.Close)
	port := app.Listener.Addr().(*net.TCPAddr).Port
	return []model.Record{svc(t, "a/"+name, "10.96.0.1", "http:80:HTTP"), eps(t, "a/"+name+"-1", fmt.Sprintf("{name: http, number: %d}", port), address)},
		func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"`+address+`"`), []byte(`"127.0.0.1"`)) }
}

// leadsTo returns a VirtualService that leads requests of a host at the Gateway edge/front to a backend.
func leadsTo(t *testing.T, name, host, backend string) model.Record {
	t.Helper()
	return rec(t, model.KindVirtualService, "edge/"+name, fmt.Sprintf(
		"{hosts: ['%s'], gateways: [edge/front], http: [{route: [{destination: {host: %s.a.svc.cluster.local}}]}]}", host, backend))
}

// startGateway runs Envoy as a gateway of a mesh, with the Gateway edge/front of these servers at 127.0.0.1.
func startGateway(t *testing.T, n view.Node, servers string, edits []func([]byte) []byte, records ...model.Record) {
	t.Helper()
	s := snapshot(append(records, rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: ["+servers+"]}"))...)
	text := fold(t, planFor(s, n))
	for _, edit := range edits {
		text = edit(text)
	}
	envoytest.Start(t, envoytest.JSON(t, text)).Live()
}

// ask sends the text of a request to a port, and returns the status of the answer and what the backend has answered.
func ask(t *testing.T, conn net.Conn, text string) string {
	t.Helper()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(envoytest.Patience))
	_, _ = io.WriteString(conn, text) // fails where Envoy has ended the connection already
	return answerOf(http.ReadResponse(bufio.NewReader(conn), nil))
}

func answerOf(r *http.Response, err error) string {
	if err != nil {
		return "ended"
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusOK {
		return fmt.Sprint(r.StatusCode)
	}
	return string(body)
}

// ask2 is ask for a request by HTTP/2 with these headers, pairs of name and value beside method, scheme and path.
func ask2(t *testing.T, conn net.Conn, headers ...string) string {
	t.Helper()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(envoytest.Patience))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	headers = append([]string{":method", "GET", ":scheme", "http", ":path", "/"}, headers...)
	for i := 0; i < len(headers); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1]})
	}
	_ = f.WriteSettings()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	status, body := "", ""
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return "ended"
		}
		ended := false
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			status, ended = frame.PseudoValue("status"), frame.StreamEnded()
		case *http2.DataFrame:
			body, ended = body+string(frame.Data()), frame.StreamEnded()
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "ended"
		}
		switch {
		case ended && status != "200":
			return status
		case ended:
			return body
		}
	}
}

func dialPort(t *testing.T, port int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// get is a request by HTTP/1.1 for a path of a host, with further headers.
func get(path, host string, headers ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(headers, "Connection: close", "", ""), "\r\n")
}

// plainServer is a server of all hosts at a port.
func plainServer(port int) string {
	return fmt.Sprintf("{port: {number: %d, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ['*']}", port)
}

// A DENY policy of a host holds for each form in which a request names the host, and an ALLOW policy with notHosts for
// each form of these.
// Promise: security-gateways.md#policies-at-gateways
func TestHostsOfRequestsAtGateways(t *testing.T) {
	records, edit := backend(t, "s0", "10.1.0.1")
	for _, c := range []struct{ policy, secret, open string }{
		{"{action: DENY, rules: [{to: [{operation: {hosts: [secret.test, '*.secret.test']}}]}]}", "403", "s0 open.test/"},
		{"{rules: [{to: [{operation: {notHosts: [secret.test, '*.secret.test']}}]}]}", "403", "s0 open.test/"},
	} {
		port := loopback.PortFor(t)
		startGateway(t, routerOf("edge", "gw"), plainServer(port), []func([]byte) []byte{edit}, append(records, authorizationPolicy(t, "edge/p", c.policy),
			leadsTo(t, "secret", "secret.test", "s0"), leadsTo(t, "open", "open.test", "s0"), leadsTo(t, "any", "*", "s0"))...)
		for _, row := range []struct{ request, want string }{
			{get("/", "open.test"), c.open},
			{get("/", "secret.test"), c.secret},
			{get("/", "secret.test:8080"), c.secret},
			{get("/", "secret.test:"), c.secret},
			{get("/", "secret.test:x"), c.secret},
			{get("/", "SECRET.Test"), c.secret},
			{get("/", "secret.test."), c.secret},
			{get("/", "secret.test.:80"), c.secret},
			{get("/", "a.secret.test"), c.secret},
			{get("/", "a.secret.test:80"), c.secret},
			{get("/", "A.secret.TEST.:80"), c.secret},
			{get("http://secret.test/", "open.test"), c.secret},
			{get("http://SECRET.test:80/", "open.test"), c.secret},
			{get("http://open.test/", "secret.test"), c.open},                         // the absolute form counts, for the route and the policy
			{get("/", "open.test", "Host: secret.test"), "s0 open.test,secret.test/"}, // one name, which a server of all hosts takes
			{"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "400"},
			{"GET / HTTP/1.0\r\n\r\n", "426"},
			{"GET / HTTP/1.0\r\nHost: secret.test\r\n\r\n", "426"},
		} {
			if got := ask(t, dialPort(t, port), row.request); got != row.want {
				t.Errorf("%s: %q: %s, want %s", c.policy, row.request, got, row.want)
			}
		}
		for _, row := range []struct {
			headers []string
			want    string
		}{
			{[]string{":authority", "open.test"}, c.open},
			{[]string{":authority", "secret.test"}, c.secret},
			{[]string{":authority", "SECRET.test.:80"}, c.secret},
			{[]string{"host", "secret.test"}, c.secret},
			{[]string{":authority", "secret.test", "host", "open.test"}, c.secret},
			{[]string{":authority", "open.test", "host", "secret.test"}, c.open}, // the application is told of open.test
		} {
			if got := ask2(t, dialPort(t, port), row.headers...); got != row.want {
				t.Errorf("%s: HTTP/2 %q: %s, want %s", c.policy, row.headers, got, row.want)
			}
		}
	}
}

// Where the proxy takes HTTP/1.0, a request without Host has no route, and one with a Host is judged by it.
func TestHTTP10AtGateways(t *testing.T) {
	records, edit := backend(t, "s0", "10.1.0.1")
	port, n := loopback.PortFor(t), routerOf("edge", "gw")
	n.Metadata = map[string]string{"HTTP10": "1"}
	startGateway(t, n, plainServer(port), []func([]byte) []byte{edit}, append(records, leadsTo(t, "any", "*", "s0"),
		authorizationPolicy(t, "edge/p", "{action: DENY, rules: [{to: [{operation: {hosts: [secret.test]}}]}]}"))...)
	for request, want := range map[string]string{"": "400", "Host: secret.test\r\n": "403", "Host: open.test\r\n": "s0 open.test/"} {
		if got := ask(t, dialPort(t, port), "GET / HTTP/1.0\r\n"+request+"\r\n"); got != want {
			t.Errorf("%q: %s, want %s", request, got, want)
		}
	}
}

// Paths of a DENY policy hold for what the application gets, as far as the mesh normalises paths: by default without
// repeated slashes and %2F, with pathNormalization DECODE_AND_MERGE_SLASHES with them. Path parameters and other cases
// are other paths, which a prefix covers, or not.
// Promise: security-gateways.md#policies-at-gateways
func TestPathsOfRequestsAtGateways(t *testing.T) {
	records, edit := backend(t, "s0", "10.1.0.1")
	const mesh = "{rootNamespace: istio-system, defaultVirtualServiceExportTo: ['*'], defaultServiceExportTo: ['*'], defaultDestinationRuleExportTo: ['*'], " +
		"pathNormalization: {normalization: %s}}"
	for normalization, strict := range map[string]bool{"DEFAULT": false, "DECODE_AND_MERGE_SLASHES": true} {
		port := loopback.PortFor(t)
		startGateway(t, routerOf("edge", "gw"), plainServer(port), []func([]byte) []byte{edit}, append(records, rec(t, model.KindMesh, "/mesh", fmt.Sprintf(mesh, normalization)),
			authorizationPolicy(t, "edge/p", "{action: DENY, rules: [{to: [{operation: {paths: [/admin, '/private/*', '/prefix*']}}]}]}"),
			leadsTo(t, "any", "*", "s0"))...)
		for _, row := range []struct{ path, byDefault, strictly string }{
			{"/", "s0 h/", "s0 h/"},
			{"/admin", "403", "403"},
			{"/admin?x=/", "403", "403"},
			{"/x/../admin", "403", "403"},
			{"/./admin", "403", "403"},
			{"/%61dmin", "403", "403"},
			{"/private/x", "403", "403"},
			{"/private/../open", "s0 h/open", "s0 h/open"},
			{"http://h/admin", "403", "403"},
			{"//admin", "s0 h//admin", "403"},
			{"/private//x", "403", "403"},
			{"//private/x", "s0 h//private/x", "403"},
			{"/%2fadmin", "s0 h/%2fadmin", "403"},
			{"/private%2Fx", "s0 h/private%2Fx", "403"},
			{"/x/..%2fadmin", "s0 h/x/..%2fadmin", "403"},
			{"/admin;v=1", "s0 h/admin;v=1", "s0 h/admin;v=1"},
			{"/prefix;v=1", "403", "403"},
			{"/ADMIN", "s0 h/ADMIN", "s0 h/ADMIN"},
			{"/admin/", "s0 h/admin/", "s0 h/admin/"},
		} {
			want := row.byDefault
			if strict {
				want = row.strictly
			}
			if got := ask(t, dialPort(t, port), get(row.path, "h")); got != want {
				t.Errorf("strict %v: %s: %s, want %s", strict, row.path, got, want)
			}
		}
	}
}

// The address of a client is that of its connection, or the one that so many trusted proxies have added to
// X-Forwarded-For. Addresses that a client writes there itself do not count.
// Promise: security-gateways.md#policies-at-gateways
func TestAddressesOfClientsAtGateways(t *testing.T) {
	records, edit := backend(t, "s0", "10.1.0.1")
	const bad, good = "198.51.100.7", "203.0.113.9"
	for hops, rows := range [][]struct {
		forwarded    string
		denied, only bool // of a policy that denies one range, and of one that denies all others
	}{
		{{"", false, true}, {bad, false, true}, {good, false, true}, {bad + ", " + good, false, true}},
		{{"", false, true}, {bad, true, true}, {good, false, false}, {good + ", " + bad, true, true}, {bad + ", " + good, false, false}},
		{{"", false, true}, {bad, false, true}, {good, false, true}, {bad + ", 10.0.0.1", true, true}, {good + ", 10.0.0.1", false, false},
			{good + ", " + bad + ", 10.0.0.1", true, true}},
	} {
		port, n := loopback.PortFor(t), routerOf("edge", "gw")
		n.ProxyConfig = settings(t, fmt.Sprintf(`{"gatewayTopology": {"numTrustedProxies": %d}}`, hops))
		startGateway(t, n, plainServer(port), []func([]byte) []byte{edit}, append(records, leadsTo(t, "any", "*", "s0"),
			authorizationPolicy(t, "edge/denied", "{action: DENY, rules: [{from: [{source: {remoteIpBlocks: [198.51.100.0/24]}}], to: [{operation: {hosts: [denied]}}]}]}"),
			authorizationPolicy(t, "edge/only", "{action: DENY, rules: [{from: [{source: {notRemoteIpBlocks: [203.0.113.0/24]}}], to: [{operation: {hosts: [only]}}]}]}"))...)
		for _, row := range rows {
			for host, denied := range map[string]bool{"denied": row.denied, "only": row.only} {
				want := "s0 " + host + "/"
				if denied {
					want = "403"
				}
				headers := []string{"X-Forwarded-For: " + row.forwarded}
				if row.forwarded == "" {
					headers = nil
				}
				if got := ask(t, dialPort(t, port), get("/", host, headers...)); got != want {
					t.Errorf("%d trusted hops, X-Forwarded-For %q, host %s: %s, want %s", hops, row.forwarded, host, got, want)
				}
			}
		}
	}
}
