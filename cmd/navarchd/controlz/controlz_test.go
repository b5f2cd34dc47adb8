package controlz

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/store/obs"
)

// served serves the handler on a loopback address, and returns its levels and its log.
func served(t *testing.T) (*httptest.Server, *obs.Levels, *bytes.Buffer) {
	t.Helper()
	levels, _, err := obs.NewLevels("warn,ca:debug")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server := httptest.NewServer(Handler(levels, slog.New(slog.NewTextHandler(&log, nil))))
	t.Cleanup(server.Close)
	return server, levels, &log
}

// ask sends a request, and returns the status and the body. Headers are "Name: value"; Host is one of them.
func ask(t *testing.T, server *httptest.Server, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	res, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// The requests of `istioctl admin log` (istio 1.29: istioctl/pkg/admin/istiodconfig.go) get istiod's answers: it lists
// without a slash at the end, expects 202 for changes, and resets by setting every scope to info and none.
func TestIstioctl(t *testing.T) {
	server, levels, log := served(t)
	const ads = `{"name":"ads","description":"Role xds: plans, streams of proxies, what they refuse","output_level":"warn","stack_trace_level":"none","log_callers":false}`
	for _, list := range []string{"/scopej", "/scopej/"} {
		if status, body := ask(t, server, "GET", list, ""); status != 200 || strings.Count(body, `"name"`) != 6 || !strings.Contains(body, ads) {
			t.Errorf("%s: %d %s", list, status, body)
		}
	}
	if status, body := ask(t, server, "GET", "/scopej/ads", ""); status != 200 || strings.TrimSpace(body) != ads {
		t.Errorf("%d %s", status, body)
	}
	for _, step := range []struct{ body, want string }{{`{"name":"ads","output_level":"debug"}`, "debug"}, {`{"name":"ads","stack_trace_level":"none"}`, "debug"},
		{`{"name":"ads","output_level":"info","stack_trace_level":"none"}`, "info"}, {`{"name":"ads","output_level":"none"}`, "none"}} {
		if status, body := ask(t, server, "PUT", "/scopej/ads", step.body); status != 202 || levels.Find("ads").Level() != step.want {
			t.Errorf("%s: %d %s, level %s", step.body, status, body, levels.Find("ads").Level())
		}
	}
	if !strings.Contains(log.String(), `msg="the level of log lines is changed" name=ads least=debug before=warn`) {
		t.Errorf("the log is %s", log)
	}
	if status, _ := ask(t, server, "DELETE", "/scopej/ads", ""); status != 202 || levels.Find("ads").Level() != "warn" {
		t.Errorf("after the reset: %d, level %s", status, levels.Find("ads").Level())
	}
}

// Invalid and unsupported requests are refused by name, and so are callers elsewhere and pages in browsers; no level
// changes.
// Promise: security-connections.md#http-ports-of-navarchd
func TestRefused(t *testing.T) {
	server, levels, _ := served(t)
	for name, c := range map[string]struct {
		method, path, body, header string
		status                     int
		says                       string
	}{
		"another scope":     {"PUT", "/scopej/wle", `{"output_level":"debug"}`, "", 400, `unknown scope name: "wle": the scopes are admit, ads, ca,`},
		"another level":     {"PUT", "/scopej/ads", `{"output_level":"loud"}`, "", 400, `scope ads: output_level: log level "loud"`},
		"stack traces":      {"PUT", "/scopej/ads", `{"output_level":"debug","stack_trace_level":"debug"}`, "", 400, "scope ads: stack_trace_level: "},
		"callers":           {"PUT", "/scopej/ads", `{"output_level":"debug","log_callers":true}`, "", 400, "scope ads: log_callers: "},
		"another name":      {"PUT", "/scopej/ads", `{"name":"ca","output_level":"debug"}`, "", 400, `scope ads: name: it is "ca"`},
		"no JSON":           {"PUT", "/scopej/ads", `debug`, "", 400, "cannot be decoded"},
		"another method":    {"POST", "/scopej/ads", `{"output_level":"debug"}`, "", 405, ""},
		"another path":      {"GET", "/memj", "", "", 404, ""},
		"a page":            {"PUT", "/scopej/ads", `{"output_level":"debug"}`, "Origin: http://example.com", 403, "the request comes from a page of another site"},
		"a rebound name":    {"PUT", "/scopej/ads", `{"output_level":"debug"}`, "Host: example.com", 403, "is not a name of this server"},
		"by a proxy":        {"PUT", "/scopej/ads", `{"output_level":"debug"}`, "X-Forwarded-For: 192.0.2.1", 403, "from the machine"},
		"a page that reads": {"GET", "/scopej", "", "Sec-Fetch-Site: cross-site", 403, "the request comes from a page of another site"},
	} {
		var headers []string
		if c.header != "" {
			headers = []string{c.header}
		}
		if status, body := ask(t, server, c.method, c.path, c.body, headers...); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %q", name, status, body)
		}
	}
	if got := levels.Find("ads").Level(); got != "warn" {
		t.Errorf("the level is %s", got)
	}
}
