package manual

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/docs"
)

// get requests a path as a browser does.
func get(t *testing.T, h http.Handler, method, path string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Result(), string(body)
}

// Every page exists as HTML. Every link of every page leads to an existing page and heading, or out of this server by
// https.
func TestPages(t *testing.T) {
	h := Handler()
	files, err := fs.ReadDir(docs.Pages, ".")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	_, list := get(t, h, "GET", Root)
	ids, links := map[string]bool{}, map[string][]string{}
	for _, f := range files {
		r, body := get(t, h, "GET", Root+f.Name())
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(body, "<h1 ") ||
			strings.Count(body, "<!-- raw HTML omitted -->") != strings.Count(string(source(f.Name())), "\n<!-- ") { // comments alone are raw HTML
			t.Errorf("%s: %s, %v", f.Name(), r.Status, r.Header)
		}
		if !strings.Contains(list, `<a href="`+f.Name()+`">`) {
			t.Errorf("the list of pages lacks %s", f.Name())
		}
		ids[f.Name()] = true
		for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(body, -1) {
			ids[f.Name()+"#"+m[1]] = true
		}
		for _, m := range regexp.MustCompile(`<a href="([^"]+)"`).FindAllStringSubmatch(body, -1) {
			links[f.Name()] = append(links[f.Name()], m[1])
		}
	}
	for page, all := range links {
		for _, link := range all {
			if strings.HasPrefix(link, "#") {
				link = page + link
			}
			if !ids[link] && link != "./" && !strings.HasPrefix(link, "https://") {
				t.Errorf("%s links to %s, which is not there", page, link)
			}
		}
	}
	if !ids["alerts.md#navarchnoleader"] {
		t.Error("the page of alerts has no heading for NavarchNoLeader: a runbook's URL would not find it")
	}
}

// Other paths and methods are refused.
func TestNothingElse(t *testing.T) {
	h := Handler()
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", Root + "docs.go", 404}, {"GET", Root + "none.md", 404}, {"GET", Root + "%2e%2e/docs.go", 404}, {"GET", "/metrics", 404},
		{"POST", Root + "alerts.md", 405}, {"HEAD", Root + "alerts.md", 200},
	} {
		if r, _ := get(t, h, c.method, c.path); r.StatusCode != c.want {
			t.Errorf("%s %s: %s, want %d", c.method, c.path, r.Status, c.want)
		}
	}
}
