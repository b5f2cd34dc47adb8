package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// The monitoring port serves the pages for operators without a credential, with and without /debug.
func TestPagesForOperatorsAreServed(t *testing.T) {
	for path, want := range map[string]int{"/docs/": http.StatusOK, "/docs/alerts.md": http.StatusOK, "/docs/none.md": http.StatusNotFound, "/debug/problems": http.StatusNotFound} {
		w := httptest.NewRecorder()
		monitoring(nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
}
