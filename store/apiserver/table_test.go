package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestColumns(t *testing.T) {
	answers := map[string]string{
		"/api/v1/nodes": `{"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Age"}, {"name": "Version"}], "rows": [{"cells": ["n1", 5, "v1.33.1"]}, {"cells": ["n2", 6, "v1.32.0"]}]}`,
		"/none":         `{"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Version"}], "rows": null}`,
		"/short":        `{"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Version"}], "rows": [{"cells": ["n1"]}]}`,
		"/without":      `{"kind": "Table", "columnDefinitions": [{"name": "Name"}]}`,
		"/api/v1/no":    `{"kind": "NodeList", "items": []}`,
		"/api/v1/text":  `text`,
	}
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "includeObject=None&resourceVersion=0" || !strings.Contains(r.Header.Get("Accept"), "as=Table") {
			t.Errorf("%s, Accept %s", r.URL, r.Header.Get("Accept"))
		}
		if answer, there := answers[r.URL.Path]; there {
			fmt.Fprint(w, answer)
			return
		}
		http.NotFound(w, r)
	}))
	defer api.Close()
	c, err := New(kubeconfig(t, api))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/api/v1/nodes": "[[n1 v1.33.1] [n2 v1.32.0]] <nil>", "/none": "[] <nil>", "/short": "too short", "/without": "no column Version", "/api/v1/no": "no table", "/api/v1/text": "not the JSON", "/absent": "404",
	} {
		rows, err := c.Columns(t.Context(), path, "Name", "Version")
		if got := fmt.Sprint(rows, err); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
