package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/describe"
)

// The suggested request is one that a described proxy can answer: of a workload's proxy rather than a gateway, at a
// port of the service in its protocol, and at the port that a gateway binds.
func TestRequestTo(t *testing.T) {
	host := func(name, ports string, routes ...string) []describe.Section {
		all := []describe.Section{{Name: "host " + name}, {Name: "routes, the first that matches wins"}}
		if ports != "" {
			all[0].Facts = []describe.Fact{{Subject: "service", Text: "ports " + ports}}
		}
		for _, subject := range routes {
			all[1].Facts = append(all[1].Facts, describe.Fact{Subject: subject, Text: "/* -> b.a:80"})
		}
		return all
	}
	of := func(gateway bool, proxy string, sections []describe.Section) describe.Group {
		return describe.Group{Side: describe.Outbound, Gateway: gateway, Proxies: []string{proxy}, Sections: sections}
	}
	for want, groups := range map[string][]describe.Group{
		"--from web-0.a http://b.a:9080/": {of(true, "gw.a", host("b.a", "9080 HTTP")),
			of(false, "web-0.a", host("b.a", "9080 HTTP", "port 80", "port 9080"))},
		"--from web-0.a https://x.example:443/":       {of(false, "web-0.a", host("x.example", "443 TLS"))},
		"--from web-0.a tcp://db.a:27017/":            {of(false, "web-0.a", host("db.a", "27017 MONGO"))},
		"--from web-0.a http://b.a:8000/":             {of(false, "web-0.a", host("b.a", "", "port 8000"))},
		"--to gw.a http://x.example/ --address :8080": {of(true, "gw.a", host("x.example", "", "http.8080.127.0.40.20"))},
		"--to gw.a https://y.example/ --address :8443": {of(true, "gw.a", []describe.Section{{Name: "routes",
			Facts: []describe.Fact{{Subject: "y.example https.8443.https.gw.a"}}}})},
		"--to gw.a http://HOST/ --address :8080": {of(true, "gw.a", host("*", "", "http.8080"))},
		"":                                       {of(true, "gw.a", host("www.example", "443 TLS"))},
	} {
		out := &show.Described{Part: describe.Part{Groups: groups}}
		if got := strings.Join(requestTo(out, ""), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// apiThat serves answers of /api/v1/describe with a revision and items; other lists are empty.
func apiThat(t *testing.T, revision int, items string) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found := ""
		if strings.HasSuffix(r.URL.Path, "/describe") {
			found = items
		}
		fmt.Fprintf(w, `{"schema": %q, "revision": %d, "items": [%s]}`, fleetapi.Schema, revision, found)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// A Pod without a connected proxy is described as such, and a control plane without configuration is not one without
// the object.
func TestDescribeSaysWhatIsMissing(t *testing.T) {
	pod := `{"objects": [{"object": "Workload a/web-0", "facts": []}]}`
	for name, c := range map[string]struct {
		args, want string
		revision   int
		items      string
	}{
		"no proxy":  {"pod web-0.a", "no proxy of this pod is connected: its ports, mTLS", 7, pod},
		"not ready": {"gateway b.a", "the control plane has no configuration yet", 0, ""},
		"unknown":   {"gateway b.a", `there is no Gateway "b" in namespace "a"`, 7, ""},
	} {
		server := apiThat(t, c.revision, c.items)
		out, err := runDescribe(t, append(strings.Fields(c.args), "--server", server)...)
		if text := fmt.Sprint(out, err); !strings.Contains(text, c.want) {
			t.Errorf("%s: %q is not in\n%s", name, c.want, text)
		}
	}
}
