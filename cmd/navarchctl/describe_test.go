package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
)

// runDescribe runs describe with arguments, and returns its output and its error.
func runDescribe(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	cmd := root()
	cmd.SetArgs(append([]string{"describe"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.Execute()
	return out.String(), err
}

// The folder of the demo is described without a server.
func TestDescribeOffline(t *testing.T) {
	offline := []string{"--config-dir", "../../deploy/demo/shop", "--proxy", "../../deploy/demo/node.json"}
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"host": {[]string{"host", "catalog.shop"}, []string{"outbound of web-0.shop", "VirtualService shop/catalog spec.http[0]",
			"next: navarchctl why --from ../../deploy/demo/node.json http://catalog.shop.svc.cluster.local:8000/ " +
				"--config-dir ../../deploy/demo/shop # follows a request"}},
		"pod":      {[]string{"po", "web-0.shop"}, []string{"PeerAuthentication shop/web spec.mtls", "Sidecar shop/web spec.egress", "--host HOST"}},
		"workload": {[]string{"workload", "deploy/web.shop", "--host", "catalog"}, []string{"Service shop/catalog", "policy, merged"}},
		"service":  {[]string{"svc", "catalog", "-n", "shop"}, []string{"addresses 10.96.11.1 Service shop/catalog", "1 ready in harbour/west"}},
		"route":    {[]string{"vs", "backend/reviews"}, []string{"2 http, 0 tls, 0 tcp"}},
		"gateway": {[]string{"gw", "edge/shop"}, []string{"server port 443 HTTPS, hosts shop/shop.example.com, TLS SIMPLE with shop-cert " +
			"Gateway edge/shop spec.servers[0]"}},
	} {
		out, err := runDescribe(t, append(c.args, offline...)...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("%s: %q is not in\n%s", name, want, out)
			}
		}
	}
	out, err := runDescribe(t, append([]string{"host", "catalog.shop", "-o", "json"}, offline...)...)
	var d show.Described
	if err != nil || json.Unmarshal([]byte(out), &d) != nil || d.Schema != fleetapi.Schema || d.Subject != "host catalog.shop" || len(d.Groups) != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

// Subjects that cannot be described, and flags that do not belong together, are refused with the reason.
func TestDescribeRefuses(t *testing.T) {
	offline := " --config-dir ../../deploy/demo/shop --proxy ../../deploy/demo/node.json"
	for args, want := range map[string]string{
		"gateway shop.shop" + offline:                    `no Gateway "shop" in namespace "shop"; Gateway edge/shop has this name`,
		"host nothing.example" + offline:                 `no visible proxy has the host "nothing.example"`,
		"node web.shop" + offline:                        "noun",
		"service catalog.shop --host x" + offline:        "--host is for a pod or a workload",
		"pod web-0.shop --from web-0.shop" + offline:     "--from is for",
		"pod web-0.shop --host nosuch" + offline:         `the pod shop/web-0 is connected, and does not have the host "nosuch"`,
		"host catalog.shop --from no.shop" + offline:     `the proxy "no.shop" is not connected, or does not have the host "catalog.shop"`,
		"host x --config-dir ../../deploy/demo/shop":     "--proxy has to name",
		"host x --limit 501" + offline:                   "limit",
		"host x --proxy ../../deploy/demo/node.json":     "--proxy needs --config-dir",
		"host x --server 1.2.3.4:1" + offline:            "none of the others can be",
		"route reviews.backend extra --server 1.2.3.4:1": "accepts 2 arg(s)",
	} {
		if out, err := runDescribe(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q\n%s", args, err, want, out)
		}
	}
}

// A server is asked for the description, and then for the problems and changes of exactly its objects.
func TestDescribeAsks(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, _ := url.QueryUnescape(r.URL.RawQuery)
		asked = append(asked, strings.TrimPrefix(r.URL.Path, fleetapi.Root)+"?"+q)
		items := map[string]string{
			"describe": `{"groups": [{"side": "outbound", "proxies": ["web-0.shop"], "total": 1, "sections": [{"name": "host b.a",
				"facts": [{"subject": "port 8000", "text": "t", "by": ["VirtualService a/b spec.http[0]", "Service a/b"]}]}]}]}`,
			"problems": `{"object": "VirtualService a/b", "field": "spec.hosts", "code": "invalid", "severity": "warning", "message": "odd"}`,
			"changes":  `{"lane": "config", "last": 9, "affected": 3, "acknowledged": 2, "objects": ["Service z/z", "VirtualService a/b"]}`,
		}
		fmt.Fprintf(w, `{"schema": %q, "revision": 9, "partial": [{"replica": "r-2", "reason": "no answer"}], "items": [%s]}`,
			fleetapi.Schema, items[strings.TrimPrefix(r.URL.Path, fleetapi.Root)])
	}))
	defer server.Close()
	out, err := runDescribe(t, "host", "b.a", "--from", "web-0.shop", "--server", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"warning: proxies may be missing in this answer, because 1 replicas are not in it: r-2", "port 8000 t VirtualService a/b spec.http[0], Service a/b",
		"warning invalid odd VirtualService a/b spec.hosts",
		"config: 2 of 3 proxies have acknowledged it VirtualService a/b next: navarchctl why --from web-0.shop http://b.a:8000/"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	want := []string{"describe?from=web-0.shop&limit=30&name=b.a&noun=host", "problems?limit=5000&object=Service a/b,VirtualService a/b",
		"changes?limit=10&object=Service a/b,VirtualService a/b"}
	if strings.Join(asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}

// All windows of the problems are read, and a process that did not answer with its problems is named.
func TestDescribeReadsAllProblems(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `"items": []`
		switch at := r.URL.Query().Get("continue"); strings.TrimPrefix(r.URL.Path, fleetapi.Root) {
		case "describe":
			answer = `"items": [{"groups": [{"side": "outbound", "proxies": ["web-0.shop"], "total": 1, "sections": [{"name": "host b.a",
				"facts": [{"subject": "port 8000", "text": "t", "by": ["Service a/b"]}]}]}]}]`
		case "problems":
			answer = `"partial": [{"replica": "ingest-0", "reason": "no answer"}], "items": [{"object": "Service a/b", "severity": "warning",
				"code": "invalid", "message": "problem ` + at + `"}]`
			if at == "" {
				answer += `, "next": "two"`
			}
		}
		fmt.Fprintf(w, `{"schema": %q, %s}`, fleetapi.Schema, answer)
	}))
	defer server.Close()
	out, err := runDescribe(t, "host", "b.a", "--server", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"invalid problem Service a/b", "invalid problem two Service a/b",
		"problems that ingest-0 alone knows are not listed: no answer"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}
