package web

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// closed records whether a body was closed.
type closed struct {
	io.Reader
	is bool
}

func (c *closed) Close() error {
	c.is = true
	return nil
}

// A local request is answered by the handler, and its body is closed, as http.RoundTripper requires.
func TestLocalClosesTheBody(t *testing.T) {
	body := &closed{Reader: strings.NewReader("x")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/", body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := Local{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})}.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if raw, err := io.ReadAll(res.Body); string(raw) != "x" || err != nil || !body.is {
		t.Errorf("%q, %v, closed: %v", raw, err, body.is)
	}
}
