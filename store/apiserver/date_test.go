package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Every response of the API server contains its time; a response from a cache contains the time of its creation.
func TestDate(t *testing.T) {
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		code      int
		date, age string
		good      bool
	}{
		"yes":          {http.StatusOK, noon.Format(http.TimeFormat), "", true},
		"no":           {http.StatusForbidden, noon.Format(http.TimeFormat), "", true},
		"from a cache": {http.StatusOK, noon.Format(http.TimeFormat), "3600", false},
		"not a time":   {http.StatusOK, "noon", "", false},
	} {
		api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", c.date)
			if c.age != "" {
				w.Header().Set("Age", c.age)
			}
			w.WriteHeader(c.code)
		}))
		client, err := New(kubeconfig(t, api))
		if err != nil {
			t.Fatal(err)
		}
		said, roundTrip, err := client.Date(t.Context())
		if (err == nil) != c.good || err == nil && (!said.Equal(noon) || roundTrip <= 0) {
			t.Errorf("%s: %v after %v, %v", name, said, roundTrip, err)
		}
		api.Close()
	}
}
