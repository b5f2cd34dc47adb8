package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	resolver "github.com/miekg/dns"

	"navarch.io/navarch/store/loopback"
)

// unknownMesh has the proxy of workload web resolve the names of unknown hosts, on a listener of its own.
const unknownMesh = `
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}"}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: known, namespace: shop}
spec: {hosts: [known.example.com], ports: [{number: 8000, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: NET.2}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  egress: [{port: {number: 8000, protocol: HTTP, name: http}, bind: NET.1, captureMode: NONE, hosts: ["./*"]}]
`

// machineAddress returns an IPv4 address of this machine that is not a loopback address.
func machineAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, is := a.(*net.IPNet); is && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address beside loopback: no name may lead to one of those, so that there is none to lead to")
	return ""
}

// answerNames runs a DNS server with these addresses by name, and returns its address.
func answerNames(t *testing.T, names map[string][]string) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &resolver.Server{PacketConn: conn, Handler: resolver.HandlerFunc(func(w resolver.ResponseWriter, q *resolver.Msg) {
		m := new(resolver.Msg)
		m.SetReply(q)
		addresses, known := names[strings.TrimSuffix(q.Question[0].Name, ".")]
		if !known {
			m.Rcode = resolver.RcodeNameError
		}
		for _, a := range addresses {
			m.Answer = append(m.Answer, &resolver.A{Hdr: resolver.RR_Header{Name: q.Question[0].Name, Rrtype: resolver.TypeA, Class: resolver.ClassINET, Ttl: 60}, A: net.ParseIP(a)})
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return conn.LocalAddr().String()
}

// With ALLOW_ANY_DYNAMIC_DNS a real Envoy resolves unknown hosts by name, whatever address the request was sent to,
// with the DNS server that its agent names. No name leads to servers that trust the Pod's own network, although a
// server there would answer.
// Promise: security-tenants.md#unknown-hosts-by-name
func TestUnknownHostsByName(t *testing.T) {
	parallel(t)
	at, own := loopback.NetFor(t), machineAddress(t)
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Host, " at ", r.Context().Value(http.LocalAddrContextKey))
		}))
	}()
	port := l.Addr().(*net.TCPAddr).Port
	names := answerNames(t, map[string][]string{
		"shop.example.com": {own}, "either.example.com": {"127.0.0.1", own, at + ".1"},
		"rebound.example.com": {"127.0.0.1"}, "loopback.example.com": {at + ".1"}, "any.example.com": {"0.0.0.0"}, "credentials.example.com": {"169.254.169.254"},
	})
	dir, data := t.TempDir(), t.TempDir()
	write(t, dir, "mesh.yaml", strings.ReplaceAll(unknownMesh, "NET", at))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	runAgentWith(t, d, data, filepath.Join(data, "root-cert.pem"), "web", at+".1", []string{fmt.Sprintf(`ISTIO_METAJSON_DNS={"DNS_CAPTURE":"true","DNS_PROXY_ADDR":%q}`, names)})
	ask := func(host string) string {
		r, err := http.NewRequest("GET", "http://"+at+".1:8000/", nil)
		if err != nil {
			return err.Error()
		}
		r.Host = fmt.Sprintf("%s:%d", host, port)
		res, err := (&http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return fmt.Sprintf("%d %s", res.StatusCode, body)
	}
	served := func(host string) string { return fmt.Sprintf("200 %s:%d at %s:%d", host, port, own, port) }
	eventually(t, patience, func() error {
		if got := ask("shop.example.com"); got != served("shop.example.com") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	if got := ask("either.example.com"); got != served("either.example.com") {
		t.Errorf("a name of addresses of which one is allowed: %q", got)
	}
	for _, host := range []string{"rebound.example.com", "loopback.example.com", "any.example.com", "credentials.example.com", "localhost", "unknown.example.com"} {
		if got := ask(host); !strings.HasPrefix(got, "503 ") {
			t.Errorf("%s: %q, want 503", host, got)
		}
	}
	// With an IP address as the host, a request goes to its own destination, which is the proxy itself here.
	for _, host := range []string{"127.0.0.1", at + ".1", "0.0.0.0", own} {
		if got := ask(host); strings.HasPrefix(got, "200 ") {
			t.Errorf("%s: %q", host, got)
		}
	}
}
